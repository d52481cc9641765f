"""The clients under test: honest, but for one round."""

import time
from pathlib import Path

import numpy as np
from flwr.app import Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp

from privet.federated.flower import client_app
from privet.federated.flower.encoding import ARRAYS, CONFIG, ROUNDS_DONE, array_record, weights_of
from trial.task import FAULTY, clients, trainer

WRONG = {
    0: lambda shape: np.full(shape, np.nan),
    1: lambda shape: np.zeros((*shape, 2)),
    2: lambda shape: np.full(shape, 1e200),
}


class Trial(ClientApp):
    def __call__(self, message, context):
        client, told = context.node_config["partition-id"], context.run_config
        if message.metadata.message_type == "train" and message.content[CONFIG][ROUNDS_DONE] == FAULTY:
            return faulty(message, client, Path(told["folder"]))
        honest = client_app(lambda context: trainer(), lambda context: clients()[client], seed=told["seed"])
        return honest(message, context)


def faulty(message, client, folder):
    """Answer by something else than an update, or not at all."""
    if client not in WRONG:
        (folder / "training").touch()
        time.sleep(600)  # until the node is killed
    layers = weights_of(message.content[ARRAYS])
    reply = RecordDict({ARRAYS: array_record({name: WRONG[client](layer.shape) for name, layer in layers.items()})})
    reply["metrics"] = MetricRecord({"num-examples": 10**9})  # nobody may weigh by it
    return Message(reply, reply_to=message)


app = Trial()
