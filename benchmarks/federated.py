"""Speed of federated learning: ``privet.federated.simulate`` against pfl-research and Flower's simulation engine.

The task has the size of the paper's Table 2: 1000 clients with 60 images of 784 pixels each, 50 clients per round,
softmax regression, and 5 local epochs with batches of 10. privet trains with client-level privacy, including sampling,
projection after each step and secure noise. Its softmax regression uses one thread. Flower trains without privacy, with
FedAvg and a plain PyTorch loop, in single-threaded Ray actors on all cores. The images are synthetic and the same for
both. Flower's clients read them from files, so that Ray does not have to transfer them.

The time of privet is that of the whole call, including accounting, as the median over runs before and after Flower's.
The time of Flower starts after its first round, so that the start of Ray is not included; a few rounds suffice to
measure its rate. Before that, the peak memory of privet is measured in a separate process with 10,000 clients, 500 per
round, and all images in memory.

Flower is installed in a separate environment, together with privet (`make bench` creates it).

pfl-research, Apple's simulator, is compared on the tasks of federated_tasks.py, in one process and in one per core,
each with one thread. It runs in an environment of its own, whose Python is given by PFL_PYTHON. All take turns, and the
first round of each run, which starts processes, is left out. pfl clips and adds noise, too, but it does not project
after local steps, it does not shuffle, and its noise is not secure. privet is timed with ``engine="auto"`` on one core
and on all, and with ``engine="processes"``.

    python benchmarks/federated.py [--rounds 30] [--flower-rounds 3] [--turns 3] [--tasks CNN LSTM] [--only-pfl]
        [--json]

With ``--json``, tasks that were not timed keep their entries, so that each can be timed in a run of its own.
"""

import argparse
import importlib.util
import json
import os
import resource
import socket
import subprocess
import sys
import tempfile
import time
from contextlib import nullcontext
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from federated_tasks import TASKS, Task
from torch import Tensor, nn

from privet.federated import LocalTraining, Partitioned, accuracy, simulate, with_weights
from privet.federated.engines.thread_limit import one_thread
from privet.plans import FixedSize, GradientPlan

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import RESULTS, commit, console, print_table, write_results

CLIENTS, IMAGES, PIXELS, CLASSES = 1000, 60, 784, 10
PER_ROUND = 50
EPOCHS, BATCH, LEARNING_RATE = 5, 10, 0.1
CLIP_NORM, NOISE_MULTIPLIER, DELTA = 0.3, 1.0, 5e-4
PUBLIC = 2000  # images that belong to no client, for evaluation

MANY = 10_000  # number of clients for the memory measurement

TO_REACH = 100.0  # goal, relative to the rounds per second of Flower
MEMORY_TO_REACH = 4.0  # goal for the peak memory in GB, with many clients


def make_images(folder: Path) -> None:
    """Write synthetic images of ten classes, for the clients and for evaluation."""
    generator = np.random.default_rng(0)
    n = CLIENTS * IMAGES + PUBLIC
    y = generator.integers(0, CLASSES, n)
    prototypes = generator.random((CLASSES, PIXELS), dtype=np.float32)
    X = 0.5 * prototypes[y] + 0.5 * generator.random((n, PIXELS), dtype=np.float32)
    np.save(folder / "X.npy", X)
    np.save(folder / "y.npy", y)


def images(folder: Path) -> tuple[Any, Any]:
    """Return all images, memory-mapped."""
    X, y = (np.load(folder / f"{name}.npy", mmap_mode="r") for name in ("X", "y"))
    return X, y


def public_score(folder: Path) -> Any:
    """Return a function that scores a model on public images."""
    X, y = images(folder)
    return accuracy(np.array(X[-PUBLIC:]), np.array(y[-PUBLIC:]))


def first_model() -> nn.Module:
    layer = nn.Linear(PIXELS, CLASSES)
    nn.init.zeros_(layer.weight)
    nn.init.zeros_(layer.bias)
    return layer


# ------------------------------------------------------------------------------------------------------- contenders


def privet_run(folder: Path, rounds: int) -> tuple[float, float]:
    """Return the rounds per second of a simulation, and its accuracy."""
    X, y = (np.array(part) for part in images(folder))
    clients = Partitioned((X, y), [np.arange(IMAGES * client, IMAGES * (client + 1)) for client in range(CLIENTS)])
    begin = time.perf_counter()
    result = simulate(
        first_model(),
        clients,
        loss=nn.CrossEntropyLoss(),
        local=LocalTraining(LEARNING_RATE, batch_size=BATCH, epochs=EPOCHS),
        plan=GradientPlan(FixedSize(PER_ROUND, CLIENTS), rounds, CLIP_NORM, NOISE_MULTIPLIER),
        delta=DELTA,
        verbose=False,
    )
    seconds = time.perf_counter() - begin
    return rounds / seconds, public_score(folder)(result.model)


def be_many(folder: Path, rounds: int) -> None:
    """Simulate many clients with their images in memory, and record the peak memory."""
    n = MANY * IMAGES
    generator = np.random.default_rng(0)
    X, y = generator.random((n, PIXELS), dtype=np.float32), generator.integers(0, CLASSES, n)
    simulate(
        first_model(),
        Partitioned((X, y), [np.arange(IMAGES * client, IMAGES * (client + 1)) for client in range(MANY)]),
        loss=nn.CrossEntropyLoss(),
        local=LocalTraining(LEARNING_RATE, batch_size=BATCH, epochs=EPOCHS),
        plan=GradientPlan(FixedSize(10 * PER_ROUND, MANY), rounds, CLIP_NORM, NOISE_MULTIPLIER),
        delta=DELTA,
        verbose=False,
    )
    (folder / "peak.json").write_text(json.dumps(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024))


def peak_of_many(folder: Path, rounds: int = 3) -> float:
    """Return the peak memory of a separate process with many clients, in GB."""
    subprocess.run([sys.executable, __file__, "--as-many", str(folder), "--rounds", str(rounds)], check=True)
    return float(json.loads((folder / "peak.json").read_text())) / 1e9


def flower_run(folder: Path, rounds: int) -> tuple[float, float]:
    """Return the same for Flower, which runs in a separate process that is stopped with all its children."""
    command = [sys.executable, __file__, "--as-flower", str(folder), "--flower-rounds", str(rounds)]
    environment = os.environ | {
        "FLWR_HOME": str(folder / "home"),
        "FLWR_TELEMETRY_ENABLED": "0",
        "RAY_USAGE_STATS_ENABLED": "0",
        "RAY_DISABLE_IMPORT_WARNING": "1",
        "OMP_NUM_THREADS": "1",
    }
    with (folder / "flower.log").open("w") as log:
        done = subprocess.run(command, env=environment, stdout=log, stderr=log, check=False)
    if done.returncode or not (folder / "times.json").exists():
        sys.exit(f"Flower's simulation failed:\n{(folder / 'flower.log').read_text()[-4000:]}")
    told = json.loads((folder / "times.json").read_text())
    return (len(told["ends"]) - 1) / (told["ends"][-1] - told["ends"][0]), told["accuracy"]


def be_flower(folder: Path, rounds: int) -> None:
    """Run the simulation with Flower, and record the times at which its rounds ended."""
    from flwr.app import ArrayRecord, Context, Message, MetricRecord, RecordDict
    from flwr.clientapp import ClientApp
    from flwr.serverapp import Grid, ServerApp
    from flwr.serverapp.strategy import FedAvg
    from flwr.simulation import run_simulation

    client_app, server_app = ClientApp(), ServerApp()

    @client_app.train()
    def train(message: Message, context: Context) -> Message:
        torch.set_num_threads(1)
        X, y = images(folder)
        client = int(context.node_config["partition-id"])
        own = slice(IMAGES * client, IMAGES * (client + 1))
        model = first_model()
        model.load_state_dict(message.content["arrays"].to_torch_state_dict())
        plain_training(model, torch.tensor(X[own]), torch.tensor(y[own]))
        content = {"arrays": ArrayRecord(model.state_dict()), "metrics": MetricRecord({"num-examples": IMAGES})}
        return Message(RecordDict(content), reply_to=message)

    @server_app.main()
    def main(grid: Grid, context: Context) -> None:
        ends: list[float] = []

        def note(server_round: int, arrays: ArrayRecord) -> MetricRecord | None:
            if server_round:
                ends.append(time.perf_counter())
            return None

        strategy = FedAvg(
            fraction_train=PER_ROUND / CLIENTS,
            fraction_evaluate=0.0,
            min_train_nodes=PER_ROUND,
            min_available_nodes=CLIENTS,
        )
        first = ArrayRecord(first_model().state_dict())
        result = strategy.start(grid, first, num_rounds=1 + rounds, evaluate_fn=note)
        weights = {name: array.numpy() for name, array in result.arrays.items()}
        score = public_score(folder)(with_weights(first_model(), weights))
        (folder / "times.json").write_text(json.dumps({"ends": ends, "accuracy": score}))

    cores = len(os.sched_getaffinity(0))
    run_simulation(
        server_app,
        client_app,
        CLIENTS,
        backend_config={
            "init_args": {"num_cpus": cores, "include_dashboard": False},
            "client_resources": {"num_cpus": 1, "num_gpus": 0.0},
        },
    )


def plain_training(model: nn.Module, X: Tensor, y: Tensor) -> None:
    """Train as in a PyTorch tutorial."""
    optimizer = torch.optim.SGD(model.parameters(), lr=LEARNING_RATE)
    loss = nn.CrossEntropyLoss()
    for _ in range(EPOCHS):
        for rows in torch.randperm(len(X)).split(BATCH):
            optimizer.zero_grad()
            loss(model(X[rows]), y[rows]).backward()
            optimizer.step()


# ----------------------------------------------------------------------------------------------------- pfl-research

PFL_TO_REACH = 1.5  # goal, relative to pfl with as many cores


class Pfl:
    """pfl-research in one or more processes, which wait for the names of tasks.

    Parameters
    ----------
    python : str
        The Python of its environment.
    processes : int
        The number of processes that share the clients of a round.
    """

    def __init__(self, python: str, processes: int) -> None:
        addresses = ",".join(f"localhost:{_free_port()}" for _ in range(processes))
        self._workers = []
        for rank in range(processes):
            shared = {"PFL_WORKER_ADDRESSES": addresses, "PFL_WORKER_RANK": str(rank)} if processes > 1 else {}
            environment = os.environ | {"OMP_NUM_THREADS": "1", "PFL_PYTORCH_DEVICE": "cpu"} | shared
            command = [python, "-W", "ignore", str(Path(__file__).with_name("peer_pfl.py"))]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": None}
            self._workers.append(subprocess.Popen(command, env=environment, text=True, **pipes))

    def seconds_per_round(self, name: str) -> float:
        """Return the seconds per round of a task."""
        for worker in self._workers:
            print(name, file=worker.stdin, flush=True)
        answers = [worker.stdout.readline() for worker in self._workers]
        if not all(answers):
            sys.exit(f"pfl failed on the task {name!r}: run benchmarks/peer_pfl.py by hand to see why")
        return max(map(float, answers))

    def close(self) -> None:
        """End the processes."""
        for worker in self._workers:
            worker.stdin.close()
        for worker in self._workers:
            worker.wait(timeout=60)


def _free_port() -> int:
    with socket.socket() as each:
        each.bind(("localhost", 0))
        return int(each.getsockname()[1])


def privet_seconds(task: Task, engine: str, workers: int | None = None) -> tuple[float, str]:
    """Return the seconds per round of privet, without the first round, and the engine that was used."""
    ends = np.cumsum(task.counts())
    clients = Partitioned(task.data(), [np.arange(*each) for each in zip([0, *ends[:-1]], ends, strict=True)])
    times: list[float] = []
    result = simulate(
        task.network(),
        clients,
        loss=nn.CrossEntropyLoss(),
        local=LocalTraining(task.learning_rate, batch_size=task.batch, epochs=task.epochs),
        plan=GradientPlan(
            FixedSize(task.per_round, task.clients), 1 + task.rounds, task.clip_norm, task.noise_multiplier
        ),
        delta=DELTA,
        engine=engine,
        workers=workers,
        progress=lambda *_: times.append(time.perf_counter()),
        verbose=False,
    )
    return (times[-1] - times[0]) / task.rounds, result.engine


def race_with_pfl(python: str, turns: int, tasks: list[str]) -> dict[str, Any]:
    """Time tasks in turns, print the seconds per round, and return them."""
    cores = len(os.sched_getaffinity(0))
    peers = {processes: Pfl(python, processes) for processes in sorted({1, cores})}
    found = {name: _raced(name, TASKS[name], peers, turns) for name in tasks}
    for peer in peers.values():
        peer.close()
    return found


def write_pfl(found: dict[str, Any], turns: int) -> None:
    """Write the times of tasks. Those of tasks that were not timed stay, with the commit that they were timed at."""
    file = RESULTS / "federated_pfl_benchmark.json"
    tasks = json.loads(file.read_text())["tasks"] if file.exists() else {}
    tasks |= {name: {**each, "turns": turns, "commit": commit()} for name, each in found.items()}
    write_results("federated_pfl_benchmark", {"to_reach": PFL_TO_REACH, "tasks": tasks})


def _raced(name: str, task: Task, peers: dict[int, Pfl], turns: int) -> dict[str, Any]:
    """Time one task in turns. The first turn is not counted, because it fills caches."""
    seconds: dict[str, list[float]] = {}
    chosen: dict[int, str] = {}
    for _ in range(1 + turns):
        for cores, peer in peers.items():
            seconds.setdefault(f"pfl, {cores} processes", []).append(peer.seconds_per_round(name))
            with one_thread() if cores == 1 else nullcontext():
                took, chosen[cores] = privet_seconds(task, "auto", cores)
            seconds.setdefault(f"privet, auto, {cores} workers", []).append(took)
        seconds.setdefault(f"privet, processes, {cores} workers", []).append(privet_seconds(task, "processes")[0])
    middle = {label: median(each[1:]) for label, each in seconds.items()}
    ratios = {cores: middle[f"pfl, {cores} processes"] / middle[f"privet, auto, {cores} workers"] for cores in peers}
    rows = [[label, f"{value:.4f}"] for label, value in middle.items()]
    print_table(f"{name}: {task.description}", ["", "seconds per round"], rows)
    for cores, ratio in ratios.items():
        reached = "reached" if ratio >= PFL_TO_REACH else "NOT reached"
        console.print(f"{cores} cores: privet ({chosen[cores]}) is {ratio:.2f} times as fast; {PFL_TO_REACH} {reached}")
    return {
        "task": task.description,
        "seconds_a_round": middle,
        "each_turn": seconds,
        "engine": chosen,
        "ratio": ratios,
        "load": os.getloadavg()[0],
    }


# ------------------------------------------------------------------------------------------------------------- race


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--rounds", type=int, default=30, help="of privet")
    parser.add_argument("--flower-rounds", type=int, default=3, help="of Flower, after its first")
    parser.add_argument("--turns", type=int, default=3, help="of pfl and privet")
    parser.add_argument("--tasks", nargs="+", choices=TASKS, default=list(TASKS), help="of pfl and privet")
    parser.add_argument("--only-pfl", action="store_true", help="leave Flower out")
    parser.add_argument("--json", action="store_true", help="write docs/results/federated*_benchmark.json")
    parser.add_argument("--as-flower", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--as-many", type=Path, help=argparse.SUPPRESS)
    told = parser.parse_args()
    if told.as_many:
        be_many(told.as_many, told.rounds)
        return
    if told.as_flower:
        be_flower(told.as_flower, told.flower_rounds)
        return
    python = os.environ.get("PFL_PYTHON")
    if python is None:
        console.print(
            "pfl-research is not compared: run `make bench`, or give the Python of its environment as PFL_PYTHON"
        )
    else:
        pfl = race_with_pfl(python, told.turns, told.tasks)
        if told.json:
            write_pfl(pfl, told.turns)
    if not told.only_pfl:
        with tempfile.TemporaryDirectory() as name:
            race(Path(name), told)


def race(folder: Path, told: argparse.Namespace) -> None:
    """Run privet and Flower, print their rates, and write them to a file if requested."""
    peak = peak_of_many(folder)
    below = "below" if peak < MEMORY_TO_REACH else "NOT below"
    console.print(f"{MANY} clients: {peak:.2f} GB at the peak; {below} {MEMORY_TO_REACH:.0f}")
    make_images(folder)
    own = [privet_run(folder, told.rounds) for _ in range(3)]
    if importlib.util.find_spec("ray") is None or importlib.util.find_spec("flwr") is None:
        console.print(
            "Flower's simulation engine is not installed here: run `make bench`, which makes an environment with it, "
            "or install 'flwr[simulation]==1.41.*' beside privet in a separate environment"
        )
        console.print(f"privet: {median(rate for rate, _ in own):.2f} rounds per second")
        return
    flower, flower_accuracy = flower_run(folder, told.flower_rounds)
    own += [privet_run(folder, told.rounds) for _ in range(2)]
    rates = [rate for rate, _ in own]
    ratio = median(rates) / flower
    rows = [
        ["privet, client-level privacy", f"{median(rates):.2f}", f"{own[-1][1]:.3f} ({told.rounds} rounds)"],
        ["Flower 1.41, FedAvg in Ray", f"{flower:.4f}", f"{flower_accuracy:.3f} ({1 + told.flower_rounds} rounds)"],
    ]
    print_table(
        f"{CLIENTS} clients of {IMAGES} images, {PER_ROUND} per round, {EPOCHS} local epochs",
        ["", "rounds per second", "accuracy"],
        rows,
    )
    reached = "reached" if ratio >= TO_REACH else "NOT reached"
    console.print(f"privet makes {ratio:.0f} times the rounds of Flower; {TO_REACH:.0f} {reached}")
    if told.json:
        content = {
            "rounds_a_second": {"privet": median(rates), "privet, each run": rates, "flower": flower},
            "rounds": {"privet": told.rounds, "flower": told.flower_rounds},
            "threads": torch.get_num_threads(),
            "ratio": ratio,
            "peak_gigabytes_of_10000_clients": peak,
            "to_reach": TO_REACH,
            "accuracy": {"privet": own[-1][1], "flower": flower_accuracy},
        }
        write_results("federated_benchmark", content)


if __name__ == "__main__":
    main()
