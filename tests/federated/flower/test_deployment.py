"""A real SuperLink and real SuperNodes, as processes over loopback: the model is the simulation's, faults cost no more.

One run of four rounds, without noise so that models can be compared. Two are honest; in the third all nodes fail, each
in its own way, one of them by being killed; the fourth goes on with those that are left.
"""

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'privet[federated]'")

from privet.denoise import laplacian_smoothing
from privet.federated import Server, simulate
from privet.federated.local_training import order_source, trained_weights
from privet.federated.parameters import Layers, clipped
from privet.federated.saving import read
from privet.privacy import Guarantee, Unit

APP = Path(__file__).parent / "app"
sys.path.insert(0, str(APP))
from trial.task import (  # noqa: E402
    CLIENTS,
    CLIP,
    DELTA,
    FAULTY,
    LOCAL,
    NODES,
    PLAN,
    SMOOTHING,
    clients,
    denoiser,
    model,
    trainer,
    without_noise,
)

HOST = "127.0.0.1"
PATIENCE = 600.0  # seconds, on a machine that is busy with other work; on an idle one it all takes a minute
DIVISOR = 0.75 * 8
SEED = 5324  # found by search, which begins anew if the noise source ever draws otherwise

pytestmark = pytest.mark.skipif(not Path("/proc/self/environ").exists(), reason="finds its processes by /proc")


# ------------------------------------------------------------------------------------------------------- deployment


class Deployment:
    """A SuperLink, its SuperNodes and all that they start, known by the folder in their environment."""

    def __init__(self, folder):
        self.folder, self.home = folder, folder / "home"
        self.home.mkdir()
        self.environment = os.environ | {
            "FLWR_HOME": str(self.home),
            "FLWR_TELEMETRY_ENABLED": "0",
            "FLWR_DISABLE_UPDATE_CHECK": "1",
            "OMP_NUM_THREADS": "1",
            "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]]),
        }
        self.link, *ports = free_ports(1 + NODES)
        self.address = f"{HOST}:{self.link}"
        (self.home / "config.toml").write_text(
            f'[superlink]\ndefault = "trial"\n\n[superlink.trial]\naddress = "{self.address}"\ninsecure = true\n'
        )
        options = ["--insecure", "--disable-runtime-dependency-installation", "--host", HOST, "--port", str(self.link)]
        self.start("link", "flower-superlink", *options)
        self.until(lambda: answers(self.link))
        self.nodes = [
            self.start(
                *(f"node-{place}", "flower-supernode", "--insecure", "--superlink", self.address),
                *("--port", str(port), "--node-config", f"partition-id={place}"),
            )
            for place, port in enumerate(ports)
        ]

    def start(self, name, *command):
        with (self.folder / f"{name}.log").open("w") as log:
            return subprocess.Popen(command, env=self.environment, stdout=log, stderr=log, cwd=self.folder)

    def run(self, seed):
        """Submit the app."""
        app = shutil.copytree(APP, self.folder / "app", ignore=shutil.ignore_patterns("__pycache__"))
        settings = f'folder="{self.folder}" seed={seed}'
        command = ["flwr", "run", str(app), "trial", "--run-config", settings]
        assert self.start("run", *command).wait(PATIENCE) == 0, self.logs()

    def until(self, happened):
        for _ in range(int(PATIENCE / 0.2)):
            if happened():
                return
            if (self.folder / "error").exists():
                break
            time.sleep(0.2)
        pytest.fail(f"it did not happen: {self.logs()}")

    def logs(self):
        found = [*self.folder.glob("error"), *self.folder.glob("*.log")]
        return "\n".join(f"---- {path.name}\n{path.read_text()[-3000:]}" for path in found)

    def end(self):
        """End every process that is still there, whoever started it."""
        for _ in range(50):
            for process in self.processes():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(process, signal.SIGKILL)
            if not self.processes():
                return
            time.sleep(0.1)

    def processes(self):
        """Return the numbers of the processes that have this deployment's folder in their environment."""
        marker = f"FLWR_HOME={self.home}".encode()
        found = []
        for path in Path("/proc").glob("[0-9]*/environ"):
            with contextlib.suppress(OSError):
                if marker in path.read_bytes().split(b"\0"):
                    found.append(int(path.parent.name))
        return found


def free_ports(number):
    with contextlib.ExitStack() as stack:
        sockets = [stack.enter_context(socket.socket()) for _ in range(number)]
        for each in sockets:
            each.bind((HOST, 0))
        return [each.getsockname()[1] for each in sockets]


def answers(port):
    with contextlib.suppress(OSError), socket.create_connection((HOST, port), timeout=1):
        return True
    return False


def samples(seed):
    """Return the clients that each round draws."""
    server = Server(PLAN, trained_weights(model()), CLIENTS, delta=DELTA, seed=seed)
    found = []
    while not server.is_done:
        found.append({int(client) for client in server.sample()})
        with pytest.warns(UserWarning) if found[-1] else contextlib.nullcontext():
            server.aggregate({})
    return found


def is_telling(drawn):
    """Return whether a run's draws show all that is to be seen, in few steps: a client takes seconds to start."""
    first, second, faulty, last = drawn
    absent = CLIENTS - 1
    return (
        len(first) == len(second) == 2
        and first != second
        and absent in first | second
        and faulty >= set(range(NODES))
        and 0 < len(last - {absent}) < 3
        and 3 not in last
    )


@pytest.fixture(scope="module")
def trial(tmp_path_factory):
    """Return the folder with what the run left, and the clients of its rounds."""
    with without_noise():
        seed = next(seed for seed in (SEED, *range(20_000)) if is_telling(samples(seed)))
        drawn = samples(seed)
    folder = tmp_path_factory.mktemp("trial")
    deployment = None
    try:
        deployment = Deployment(folder)
        deployment.run(seed)
        deployment.until((folder / "training").exists)
        deployment.nodes[3].send_signal(signal.SIGKILL)
        deployment.until((folder / "ended").exists)
        assert not (folder / "error").exists(), deployment.logs()
    finally:
        if deployment is not None:
            deployment.end()
    assert deployment.processes() == []
    return folder, seed, drawn


def model_after(folder, rounds):
    with np.load(folder / f"model-{rounds}.npz") as file:
        return dict(file)


def moved(folder, rounds):
    """Return by how much a round moved the model."""
    before, after = model_after(folder, rounds - 1), model_after(folder, rounds)
    return {name: after[name] - before[name] for name in after}


def vector(layers):
    return Layers.of(layers).vector(layers)


# ------------------------------------------------------------------------------------------------------------ tests


def test_the_model_is_that_of_the_simulation(trial):
    folder, seed, _ = trial
    seen = []
    with without_noise(), pytest.warns(UserWarning):
        simulate(
            model(),
            [*(clients()[client] for client in range(NODES)), None],
            loss=trainer().loss,
            local=LOCAL,
            plan=PLAN,
            delta=DELTA,
            denoiser=denoiser(),
            evaluate=lambda made: seen.append(trained_weights(made)) or 0.0,
            seed=seed,
            engine="sequential",
            progress=False,
        )
    for rounds in (1, 2):
        deployed = model_after(folder, rounds)
        assert deployed.keys() == seen[rounds - 1].keys()
        for name, layer in deployed.items():
            assert np.allclose(layer, seen[rounds - 1][name], rtol=0, atol=1e-6)
    assert np.linalg.norm(vector(model_after(folder, 2)) - vector(trained_weights(model()))) > 0.02


def test_faulty_clients_move_the_sum_by_one_clip_at_most(trial):
    """Not a number, wrong shapes and a killed node count as zero; the huge update is clipped."""
    folder, _, drawn = trial
    assert drawn[FAULTY] >= set(range(NODES))
    shapes = Layers.of(model_after(folder, FAULTY))
    huge = shapes.split(clipped(np.full(shapes.size, 1e200), CLIP))
    for name, layer in moved(folder, FAULTY + 1).items():
        assert np.allclose(layer, laplacian_smoothing(huge[name], SMOOTHING) / DIVISOR, rtol=0, atol=1e-12)
    assert np.linalg.norm(vector(moved(folder, FAULTY + 1))) <= CLIP / DIVISOR


def test_the_run_goes_on_without_the_killed_node(trial):
    folder, seed, drawn = trial
    before, training = model_after(folder, 3), trainer()
    total = {name: np.zeros_like(layer) for name, layer in before.items()}
    for client in drawn[3] & set(range(NODES)):
        update = training.update(before, clients()[client], 3, order_source(seed, 3, client))
        total = {name: total[name] + update[name] for name in total}
    for name, layer in moved(folder, 4).items():
        assert np.allclose(layer, laplacian_smoothing(total[name], SMOOTHING) / DIVISOR, rtol=0, atol=1e-6)


def test_the_result_carries_the_guarantee_of_the_plan(trial):
    folder, _, _ = trial
    found = Guarantee.from_json((folder / "guarantee.json").read_text())
    planned = PLAN.guarantee(DELTA, unit=Unit.CLIENT)
    assert (found.epsilon, found.delta, found.unit, found.adjacency) == (
        planned.epsilon,
        DELTA,
        Unit.CLIENT,
        planned.adjacency,
    )
    assert "clips each client's update" in found.statement(verbose=True)
    assert "seed stays secret" in found.statement(verbose=True)
    with np.load(folder / "result.npz") as last:
        assert all((last[name] == layer).all() for name, layer in model_after(folder, 4).items())


def test_the_run_is_in_its_file(trial):
    folder, _, _ = trial
    saved = read(folder / "run.npz")
    assert (saved.state["rounds_done"], saved.state["rounds_spent"]) == (4, 4)
    assert [number for number, _, _ in saved.state["extra"]] == [1, 2, 3, 4]
