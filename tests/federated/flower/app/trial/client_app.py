"""The clients under test. They are honest in all rounds except one.

Flower starts a process per message, so torch is imported only by the honest training that needs it.
"""

import time
from pathlib import Path

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from privet.federated.flower import client_app
from privet.federated.flower.encoding import ARRAYS, CONFIG, ROUNDS_DONE, array_record, weights_of
from trial import FAULTY

WRONG = {
    0: lambda shape: np.full(shape, np.nan),
    1: lambda shape: np.zeros((*shape, 2)),
    2: lambda shape: np.full(shape, 1e200),
}


class Trial(ClientApp):
    def __call__(self, message, context):
        client, settings = context.node_config["partition-id"], context.run_config
        if message.metadata.message_type == "train" and message.content[CONFIG][ROUNDS_DONE] == FAULTY:
            return faulty(message, client, Path(settings["folder"]))
        return client_app(trainer, data, random_state=settings["seed"])(message, context)


def trainer(context):
    from trial import task

    return task.trainer()


def data(context):
    from trial import task

    return task.clients()[context.node_config["partition-id"]]


def faulty(message, client, folder):
    """Reply with something that is not an update, or wait until the node is killed."""
    if client not in WRONG:
        (folder / "training").touch()
        time.sleep(600)
    layers = weights_of(message.content[ARRAYS])
    reply = RecordDict({ARRAYS: array_record({name: WRONG[client](layer.shape) for name, layer in layers.items()})})
    reply["metrics"] = MetricRecord({"num-examples": 10**9})  # must not be used as a weight
    return Message(reply, reply_to=message)


app = Trial()
