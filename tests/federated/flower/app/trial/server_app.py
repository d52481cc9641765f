"""The server under test. It makes three rounds without noise and writes its models and its guarantee to files."""

import time
import traceback
from pathlib import Path
from unittest import mock

import numpy as np
from flwr.serverapp import ServerApp

from privet.federated import Server, trained_weights
from privet.federated.flower import PrivateStrategy, messaging
from trial import CLIENTS, NODES
from trial.task import DELTA, PLAN, denoiser, model, without_noise

app = ServerApp()


@app.main()
def main(grid, context):
    folder = Path(context.run_config["folder"])
    waits = Waits(folder)
    try:
        with (
            without_noise(),
            mock.patch.object(messaging, "time", waits),
            mock.patch.object(messaging, "pull", waits.pull),
        ):
            run(grid, folder, int(context.run_config["seed"]), waits)
    except BaseException:
        (folder / "error").write_text(traceback.format_exc())
        raise
    finally:
        (folder / "ended").touch()


class Waits:
    """The clock by which the server waits for replies.

    A killed node never answers, so its round ends by a timeout. A fixed timeout would have to be long enough for the
    other nodes on a busy machine. Here the time is up as soon as the node is dead and all other nodes have answered.
    """

    sleep = staticmethod(time.sleep)

    def __init__(self, folder):
        self.killed, self.replies, self._pull = folder / "killed", 0, messaging.pull

    def monotonic(self):
        is_up = self.replies == NODES - 1 and self.killed.exists()
        return time.monotonic() + (1e6 if is_up else 0.0)

    def pull(self, grid, name):
        reply = self._pull(grid, name)
        self.replies += reply is not None
        return reply


def run(grid, folder, seed, waits):
    server = Server(PLAN, trained_weights(model()), CLIENTS, delta=DELTA, denoiser=denoiser(), random_state=seed)

    def keep(weights):
        np.savez(folder / f"model-{server.rounds_done}.npz", **weights)
        waits.replies = 0
        return 0.0

    strategy = PrivateStrategy(
        server, timeout=400.0, min_clients=NODES, evaluate=keep, save=folder / "run.npz", resume=True
    )
    result = strategy.start(grid)
    np.savez(folder / "result.npz", **result.weights)
    (folder / "guarantee.json").write_text(result.guarantee.to_json())
