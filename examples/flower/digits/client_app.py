"""The client, which trains on its own images and sends only a clipped update."""

from digits.task import own_images, trainer
from privet.federated.flower import client_app

app = client_app(trainer, own_images)
