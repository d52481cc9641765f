"""The server under test: four rounds without noise; models and guarantee go into files."""

import time
import traceback
from pathlib import Path

import numpy as np
from flwr.serverapp import ServerApp

from privet.federated import Server
from privet.federated.flower import PrivateStrategy
from privet.federated.local_training import trained_weights
from trial.task import CLIENTS, DELTA, FAULTY, NODES, PLAN, denoiser, model, without_noise

app = ServerApp()


@app.main()
def main(grid, context):
    folder = Path(context.run_config["folder"])
    try:
        with without_noise():
            run(grid, folder, int(context.run_config["seed"]))
    except BaseException:
        (folder / "error").write_text(traceback.format_exc())
        raise
    finally:
        (folder / "ended").touch()


def run(grid, folder, seed):
    server = Server(PLAN, trained_weights(model()), CLIENTS, delta=DELTA, denoiser=denoiser(), seed=seed)
    began = time.monotonic()

    def keep(weights):
        nonlocal began
        np.savez(folder / f"model-{server.rounds_done}.npz", **weights)
        took, began = time.monotonic() - began, time.monotonic()
        # In the faulty round one client never answers: the others have a few times what a round takes on this machine.
        strategy.timeout = max(45.0, 6 * took) if server.rounds_done == FAULTY else 400.0
        return 0.0

    strategy = PrivateStrategy(
        server, timeout=400.0, min_clients=NODES, evaluate=keep, save=folder / "run.npz", resume=True
    )
    result = strategy.start(grid)
    np.savez(folder / "result.npz", **result.weights)
    (folder / "guarantee.json").write_text(result.guarantee.to_json())
