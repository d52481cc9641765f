"""Points of figures 6.1 to 6.9 of L. Wang's dissertation with real servers, next to their simulation.

python experiments/multiparty_servers.py [--full] [--datasets NAME ...] [--seeds N]

multiparty.py simulates the figures in one process. Here the same data, divided in the same way, go through the real
protocol: three servers, one process each, with ``trust = "majority"`` (the noise of one central mechanism, as in the
simulation), and 100 or 1,000 owners, who all are in one asyncio load generator, but hand in their own shares over
their own mutual TLS connections. The owners of MPC Grad-P stay connected and follow the descent, those of MPC Out-P
leave.

- Data, owners and lambda are those of the figures. 1,000 owners have 50 rows each on KDD Cup 99, 30 on Adult, and 13 on
  Bike, which stands in for KDD Cup 98 (figures 6.2, 6.5 and 6.6). One record per owner (figures 6.4, 6.6 and 6.9)
  remains simulated.
- The chapter has 1,500 steps, which would take hours per data set, because every owner does a round trip to every
  server in every step. So the descents are shorter, here and in the simulation: 100 steps for 100 owners and 50 for
  1,000 with --full, and otherwise 10 and 2. Their steps have the size 1/smoothness.
- Budget and plan of the simulation are those of the servers: both have the same lattice and the same noise.

Two comparisons are made. One is of the results: optimality gap and loss on the test part, against the mean and the
standard deviation of several simulations (20 by default). The other is sharper: the load generator knows what all
owners handed in, so it can tell the noise of each opened sum, whose standard deviation must be that of the plan.
"""

import argparse
import asyncio
import math
import tempfile
import time
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np
from multiparty_data import FILES, NAMES, load
from multiparty_methods import MPC_GRAD, MPC_OUT, Deal, Floats, Knobs, mpc_gradient
from multiparty_serving import HOST, serving
from numpy.typing import NDArray
from support import Spread, data_file, ports_of_servers, print_table, resumed, write_results

from multiparty import ALPHA, BUDGET, Judge
from privet.multiparty import make_keys
from privet.multiparty.protocol.aggregation import Summand
from privet.multiparty.protocol.committee import Committee, OwnerAggregator, sharing_of
from privet.multiparty.protocol.gradient import joint_gradient_descent
from privet.multiparty.protocol.output import weighted_minimiser
from privet.multiparty.protocol.participation import sum_plan
from privet.multiparty.study import Study
from privet.multiparty.transport.hand_in import Servers
from privet.plans.aggregation import AggregationPlan
from privet.privacy import NoiseSource
from privet.privacy.noise.lattice import rounded
from privet.solvers import Problem

SERVERS, PATIENCE = 3, 900.0
AT_ONCE = 100  # owners of MPC Out-P who are connected at the same time
PAUSE = 0.005  # seconds between the first calls of two owners of MPC Grad-P, who all stay connected
METHODS = {MPC_GRAD: "gradient", MPC_OUT: "output"}
FIGURES = {
    ("KDD Cup 99", 1000): "6.1",
    ("KDD Cup 99", 100): "6.3",
    ("Bike", 1000): "6.2 (stand-in)",
    ("Bike", 100): "6.5 (stand-in)",
    ("Adult", 100): "6.7",
    ("Adult", 1000): "6.8",
}
STEPS = {"default": {100: 10, 1000: 2}, "full": {100: 100, 1000: 50}}


@dataclass(frozen=True)
class Point:
    """One method on a data set that is divided among owners."""

    method: str
    owners: int
    steps: int = 1


def study_of(point: Point, deal: Deal, ports: Sequence[int]) -> Study:
    """Return the study: the columns have no names, and rows are handed in as multiparty_data.py encodes them."""
    is_regression = deal.study.is_regression
    target: dict[str, Any] = {"target_bounds": [-1, 1]} if is_regression else {"target_levels": ["no", "yes"]}
    model = {"model": "huber", "threshold": 1.0} if is_regression else {"model": "logistic"}
    return Study.from_values(
        {
            "name": deal.study.name,
            "epsilon": BUDGET.epsilon,
            "delta": BUDGET.delta,
            "trust": "majority",
            "owners": point.owners,
            "rows_per_owner": deal.rows_each,
            "fewest_owners": point.owners,
            "method": METHODS[point.method],
            "alpha": ALPHA,
            "steps": point.steps,
            "averaged": 0.0,
            "intercept_scaling": 0.0,
            "server": [{"name": f"server {index}", "address": f"{HOST}:{port}"} for index, port in enumerate(ports)],
            "table": {"target": "y", **target, "numeric": {f"x{place}": [-1, 1] for place in range(deal.d)}},
            **model,
        }
    )


# -------------------------------------------------------------------------------------------------------------- owners


class Observed:
    """What the load generator knows beside the result: sums of what all owners handed in, and what was opened.

    The differences are the noise.
    """

    def __init__(self, plan: AggregationPlan) -> None:
        self.plan = plan
        self.handed_in = np.zeros((plan.steps, plan.dimension), dtype=np.int64)
        self.opened: list[Floats] = []

    def noise(self) -> Floats:
        """Return the noise of all coordinates of all sums, in its standard deviations."""
        opened = np.array(self.opened) - self.plan.off_lattice(self.handed_in)
        return np.asarray(opened / self.plan.noise_std).ravel()


class ObservedOwner(OwnerAggregator):
    """An owner whose contributions are also added up in the clear, for the comparison."""

    def __init__(self, observed: Observed, *others: Any) -> None:
        super().__init__(*others)
        self._observed, self._done = observed, 0

    async def hand_in(self, summand: Summand, *, waits: bool) -> list[bytes]:
        """Hand in one summand, and add it to the sum that is observed."""

        def seen(party: Problem) -> NDArray[Any]:
            found = summand(party)
            self._observed.handed_in[self._done] += self.plan.on_lattice(found)
            return found

        answers = await super().hand_in(seen, waits=waits)
        self._done += 1
        return answers

    async def noisy_sum(self, summand: Summand) -> Floats:
        """Return the opened sum. The first owner keeps it for the comparison."""
        opened = await super().noisy_sum(summand)
        if self._index == 0:
            self._observed.opened.append(opened)
        return opened


async def all_owners(point: Point, deal: Deal, study: Study, keys: Path) -> tuple[Observed, int]:
    """Hand in as all owners, and return what was observed and the bytes that an owner sent at most."""
    problem = study.committee_problem()
    plan, committee = sum_plan(study, problem), Committee(study.trust, SERVERS)
    sharing = sharing_of(plan, study.trust, SERVERS, point.owners)
    addresses, digest = [(server.host, server.port) for server in study.servers], bytes.fromhex(study.digest)
    observed, stays = Observed(plan), point.method == MPC_GRAD
    at_once = asyncio.Semaphore(point.owners if stays else AT_ONCE)

    async def owner(index: int) -> int:
        rows = slice(index * deal.rows_each, (index + 1) * deal.rows_each)
        local = problem.local(deal.study.X[rows], deal.study.y[rows].astype(float))
        await asyncio.sleep(index * PAUSE if stays else 0)
        async with at_once, Servers(addresses, index, keys, PATIENCE, sharing.longest) as servers:
            aggregator = ObservedOwner(observed, plan, committee, sharing, servers, local, digest, index, NoiseSource())
            if stays:
                await joint_gradient_descent(problem, aggregator)
            else:
                await aggregator.hand_in(lambda party: weighted_minimiser(problem, party), waits=False)
            return servers.bytes_sent

    return observed, max(await asyncio.gather(*(owner(index) for index in range(point.owners))))


def through_servers(point: Point, deal: Deal, keys: Path) -> tuple[Floats, Observed, dict[str, Any]]:
    """Run a point with real servers. Return the weights, what was observed, and what it cost."""
    study = study_of(point, deal, ports_of_servers(SERVERS))
    with serving(study, keys, PATIENCE) as servers:
        begin = time.monotonic()
        observed, sent = asyncio.run(servers.while_alive(all_owners(point, deal, study, keys)))
        served = servers.answers()
    weights = [each["weights"] for each in served]
    if any(not np.array_equal(weights[0], other) for other in weights):
        raise RuntimeError("The servers computed different weights.")
    if point.method == MPC_OUT:
        observed.opened.append(weights[0])
    cost = {
        "seconds": max(each["end"] for each in served) - begin,
        "owners_who_took_part": min(each["owners"] for each in served),
        "bytes_per_owner_and_server": sent / SERVERS,
        "bytes_between_servers": sum(each["bytes_sent"] for each in served),
    }
    return weights[0], observed, cost


# ---------------------------------------------------------------------------------------------------------- comparison


def simulated(point: Point, deal: Deal, plan: AggregationPlan, seed: int) -> Floats:
    """Return the weights of a simulation in one process with the plan of the servers."""
    source = NoiseSource(seed, purpose=f"servers, {deal.study.name}, {point.owners} owners, {point.method}")
    if point.method == MPC_OUT:
        total = rounded(deal.minimisers(ALPHA) / point.owners, plan.scale).sum(axis=0)
        return plan.off_lattice(total + source.lattice(deal.d, plan.law))
    knobs = Knobs(ALPHA, point.steps, 1 / deal.joint(ALPHA).smoothness)
    found = mpc_gradient(deal, BUDGET, knobs, source, [point.steps])
    if not math.isclose(found.noise_std * deal.n, plan.noise_std):
        raise RuntimeError("The simulation has another plan than the servers.")
    return found.path[point.steps]


def examined(point: Point, deal: Deal, keys: Path, seeds: int) -> dict[str, Any]:
    """Return the result of a point with real servers, next to that of its simulations."""
    weights, observed, cost = through_servers(point, deal, keys)
    judge = Judge(deal.study, deal.pooled(ALPHA))
    runs = [simulated(point, deal, observed.plan, seed) for seed in range(seeds)]
    noise = observed.noise()
    row: dict[str, Any] = {"dataset": deal.study.name, "figure": FIGURES.get((deal.study.name, point.owners), "")}
    row |= {**asdict(point), "rows_each": deal.rows_each, "columns": deal.d, **cost}
    row |= {"gap_of_zero_weights": judge.gap(np.zeros(deal.d)), "loss_of_zero_weights": judge.loss(np.zeros(deal.d))}
    for name, measure in (("gap", judge.gap), ("loss", judge.loss)):
        values = [measure(each) for each in runs]
        real, spread = measure(weights), Spread.of(values)
        row[name] = {"servers": real, "simulated": asdict(spread), "least": min(values), "most": max(values)}
        row[name]["deviations"] = (real - spread.mean) / max(spread.std, 1e-12)
    row["noise"] = {
        "coordinates": noise.size,
        "ratio": float(np.sqrt(np.mean(noise**2))),
        "error": 1 / math.sqrt(2 * noise.size),
    }
    return row


def show(rows: Sequence[dict[str, Any]]) -> None:
    """Print a table of the points."""
    lines = []
    for row in rows:
        steps = f", {row['steps']} steps" if row["method"] == MPC_GRAD else ""
        cells = [
            f"{row[name]['servers']:.4g} | {row[name]['simulated']['mean']:.4g} ± {row[name]['simulated']['std']:.2g}"
            for name in ("gap", "loss")
        ]
        noise = f"{row['noise']['ratio']:.3f} ± {row['noise']['error']:.3f}"
        lines.append(
            [f"{row['dataset']}, {row['owners']:,}, {row['method']}{steps}", *cells, noise, f"{row['seconds']:.0f}"]
        )
    columns = ["data set, owners, method", "gap: servers | simulated", "loss: servers | simulated", "noise/plan", "s"]
    print_table("Real servers and simulations", columns, lines)


def summary(rows: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """Return how many results are within one, two and three standard deviations of their simulations."""
    away = [abs(row[name]["deviations"]) for row in rows for name in ("gap", "loss")]
    within = {f"within_{limit}": sum(each <= limit for each in away) for limit in (1, 2, 3)}
    noise = [(row["noise"]["ratio"] - 1) / row["noise"]["error"] for row in rows]
    return {"results": len(away), **within, "farthest": max(away), "farthest_noise": max(map(abs, noise))}


def main(arguments: Sequence[str] | None = None) -> dict[str, Any]:
    """Run the points, print and write the results, and return them."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--full", action="store_true", help="100 steps for 100 owners and 50 for 1,000, not 10 and 2")
    parser.add_argument("--datasets", nargs="+", choices=NAMES, default=list(NAMES))
    parser.add_argument("--seeds", type=int, default=20, help="simulations of each point")
    options = parser.parse_args(arguments)
    preset = "full" if options.full else "default"
    for name in options.datasets:
        data_file(FILES[name])
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        names = [f"server {index}" for index in range(SERVERS)]
        keys = make_keys(Path(folder) / "keys", names, owners=[f"owner {index}" for index in range(max(STEPS[preset]))])
        for name in options.datasets:
            data = load(name)
            for owners, steps in STEPS[preset].items():
                deal = Deal(data, owners)
                for point in (Point(MPC_OUT, owners), Point(MPC_GRAD, owners, steps)):
                    key = ("multiparty_servers", name, asdict(point), options.seeds)
                    rows.append(resumed(key, lambda point=point, deal=deal: examined(point, deal, keys, options.seeds)))
                    show(rows[-1:])
    show(rows)
    found = {"preset": preset, "trust": "majority", "servers": SERVERS, "simulations": options.seeds}
    found |= {"epsilon": BUDGET.epsilon, "delta": BUDGET.delta, "lambda": ALPHA, "summary": summary(rows), "rows": rows}
    part = "" if len(options.datasets) == len(NAMES) else "_part"
    write_results(f"multiparty_servers{part}" if options.full else f"multiparty_servers_short{part}", found)
    return found


if __name__ == "__main__":
    main()
