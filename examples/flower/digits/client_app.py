"""The client: trains on its own images, and sends back a clipped update and nothing else."""

from digits.task import own_images, trainer
from privet.federated.flower import client_app

app = client_app(trainer, own_images)
