"""The Flower server, which writes the size of each record that it receives, and its model, to files."""

import json
import traceback
from pathlib import Path
from unittest import mock

import numpy as np
from flwr.serverapp import ServerApp

from privet.federated import Server, trained_weights
from privet.federated.committee import Coordinator
from privet.federated.flower import PrivateStrategy, messaging
from rounds import task

app = ServerApp()


@app.main()
def main(grid, context):
    folder, pull = Path(context.run_config["folder"]), messaging.pull
    received = []

    def recorded(grid, name):
        reply = pull(grid, name)
        if reply is not None and not isinstance(reply, Exception) and reply.metadata.message_type == "train":
            received.append([*reply.content] if reply.has_content() else str(reply.error))
        return reply

    try:
        study = task.study(context.run_config["ports"])
        server = Server(study.plan, trained_weights(task.model()), task.NODES, random_state=task.SEED)
        coordinator = Coordinator(study, keys=folder / "keys", timeout=300)
        with mock.patch.object(messaging, "pull", recorded):
            result = PrivateStrategy(server, timeout=400.0, min_clients=task.NODES, committee=coordinator).start(grid)
        np.savez(folder / "result.npz", **result.weights)
        (folder / "received.json").write_text(json.dumps([received, coordinator.clients]))
    except BaseException:
        (folder / "error").write_text(traceback.format_exc())
        raise
    finally:
        (folder / "ended").touch()
