"""How fast federated training of the small LSTM could be at most: its matrix products alone, beside whole rounds.

An engine of exact training in float32 has to compute the products of a round, and the sigmoids and tanhs of its gates.
This script computes nothing else, with buffers of the right shapes that are allocated once, on one thread, by torch's
`mm`, which calls MKL. The products of inputs and states are merged into one, which is faster, and those of the first
state, which is zero, are left out. All take turns with whole rounds of pfl-research, whose Python is given by
PFL_PYTHON, and of privet. A round of pfl divided by the products is an upper bound on the speed relative to pfl of any
engine that multiplies no faster than MKL.

    PFL_PYTHON=... python benchmarks/lstm_products.py [--turns 5] [--json]
"""

import argparse
import os
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from statistics import median

import torch
from federated_tasks import CHARACTERS, TASKS, CharacterLSTM

from federated import PFL_TO_REACH, Pfl, privet_seconds
from privet.federated.engines.thread_limit import one_thread

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "experiments"))
from support import console, print_table, write_results

NAME = "LSTM"
TASK = TASKS[NAME]
(LENGTH,) = TASK.shape
LSTM = CharacterLSTM().lstm
UNITS, BOTH = LSTM.hidden_size, LSTM.hidden_size + LSTM.input_size
GATES = 4 * UNITS
Work = tuple[int, Callable[[], object]]  # how often, and what is done


def batches_of_a_round() -> Counter[int]:
    """Return how often batches of each size are trained on if every client takes part once."""
    sizes: Counter[int] = Counter()
    for count in TASK.counts().tolist():
        whole, rest = divmod(count, TASK.batch)
        sizes[TASK.batch] += whole * TASK.epochs
        sizes[rest] += TASK.epochs
    return Counter({size: number for size, number in sizes.items() if size})


def products(size: int) -> tuple[list[Work], float]:
    """Return the matrix products of one step with a batch, and their floating-point operations."""

    def product(rows: int, inner: int, columns: int, times: int = 1) -> Work:
        nonlocal operations
        operations += 2.0 * rows * inner * columns * times
        left, right, result = torch.randn(rows, inner), torch.randn(columns, inner).T, torch.empty(rows, columns)
        return times, lambda: torch.mm(left, right, out=result)

    operations = 0.0
    later = LENGTH - 1  # characters after the first, whose previous state is not zero
    work = [
        product(size, BOTH, GATES, later),  # gates
        product(size, BOTH - UNITS, GATES),
        product(size, GATES, BOTH, later),  # gradients of states and inputs
        product(size, GATES, BOTH - UNITS),
        product(BOTH, later * size, GATES),  # gradients of weights
        product(BOTH - UNITS, size, GATES),
        product(size, UNITS, CHARACTERS),  # scores, and the gradients of states and weights
        product(size, CHARACTERS, UNITS),
        product(UNITS, size, CHARACTERS),
    ]
    return work, operations


def activations(size: int) -> list[Work]:
    """Return the sigmoids and tanhs of one step with a batch."""
    gates, cells = torch.randn(size, 3 * UNITS), torch.randn(size, UNITS)
    sigmoids, tanhs = torch.empty_like(gates), torch.empty_like(cells)
    return [
        (LENGTH, lambda: torch.sigmoid(gates, out=sigmoids)),
        (2 * LENGTH, lambda: torch.tanh(cells, out=tanhs)),  # of the new values, and of the cell states
    ]


def seconds_per_round(work: dict[int, list[Work]], batches: Counter[int]) -> float:
    """Return the time that the work of an average round takes."""
    begin = time.perf_counter()
    for size, number in batches.items():
        for _ in range(number):
            for times, call in work[size]:
                for _ in range(times):
                    call()
    return (time.perf_counter() - begin) * TASK.per_round / TASK.clients


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--turns", type=int, default=5)
    parser.add_argument("--json", action="store_true", help="write docs/results/lstm_products_benchmark.json")
    told = parser.parse_args()
    batches = batches_of_a_round()
    multiplied = {size: products(size) for size in batches}
    of_products = {size: work for size, (work, _) in multiplied.items()}
    of_activations = {size: activations(size) for size in batches}
    share = TASK.per_round / TASK.clients
    operations = share * sum(number * multiplied[size][1] for size, number in batches.items())
    pfl = Pfl(os.environ["PFL_PYTHON"], 1)
    seconds: dict[str, list[float]] = {}
    with one_thread():
        for _ in range(1 + told.turns):  # the first turn fills caches
            turn = {
                "products": seconds_per_round(of_products, batches),
                "activations": seconds_per_round(of_activations, batches),
                "pfl": pfl.seconds_per_round(NAME),
                "privet": privet_seconds(TASK, "auto", 1)[0],
            }
            for name, took in turn.items():
                seconds.setdefault(name, []).append(took)
    pfl.close()
    counted = {name: each[1:] for name, each in seconds.items()}
    ratios = {
        "products": [a / b for a, b in zip(counted["pfl"], counted["products"], strict=True)],
        "products and activations": [
            a / (b + c) for a, b, c in zip(counted["pfl"], counted["products"], counted["activations"], strict=True)
        ],
        "privet": [a / b for a, b in zip(counted["pfl"], counted["privet"], strict=True)],
    }
    found = {
        "task": TASK.description,
        "gigaflop_a_round": operations / 1e9,
        "gigaflop_per_second": operations / 1e9 / median(counted["products"]),
        "seconds_a_round": {name: median(each) for name, each in counted.items()},
        "each_turn": counted,
        "ratio": {name: median(each) for name, each in ratios.items()},
        "ratio_of_each_turn": ratios,
        "to_reach": PFL_TO_REACH,
        "load": os.getloadavg()[0],
    }
    rows = [[name, f"{value:.4f}"] for name, value in found["seconds_a_round"].items()]
    print_table(f"{NAME}: {TASK.description}", ["", "seconds per round, one core"], rows)
    console.print(f"Products: {operations / 1e9:.2f} GFLOP at {found['gigaflop_per_second']:.0f} GFLOP per second")
    for name, ratio in found["ratio"].items():
        console.print(f"A round of pfl takes {ratio:.2f} times as long as {name}")
    if told.json:
        write_results("lstm_products_benchmark", found)


if __name__ == "__main__":
    main()
