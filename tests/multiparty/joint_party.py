"""One party of the computations in test_aggregation.py and test_participation.py, in its own process."""

import asyncio
import contextlib
import json
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from privet.multiparty import JointAggregator, JointProblem, Network, NetworkError
from privet.multiparty.protocol.aggregation import prime_above
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.protocol.joint_noise import joint_draw
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.multiparty.protocol.participation import take_part
from privet.multiparty.protocol.results import sign
from privet.multiparty.study import Study
from privet.objectives import L2, BoundedRows, Huber, Logistic, Squared
from privet.plans.aggregation import AggregationPlan
from privet.privacy import Budget
from privet.privacy.noise.lattice import LatticeLaw
from privet.privacy.noise.law import Bits, Recipe
from privet.solvers.base.interface import Problem

HOST = "127.0.0.1"
BUDGET = Budget(1.0, 1e-5)
STEPS = 12
SMALL = LatticeLaw(4, 2, 2)
DRAWS = 100_000
DEFAULT_DRAWS = 400
EXTREMES = np.array([0.0, 1.0, -1.0, 2.0**30, -(2.0**30), 12345.0, -1e6])  # contribution of one party
# The sum of all parties exceeds a field that has room for one contribution only. The noise is small.
LARGE = AggregationPlan(EXTREMES.size, 2, 1.0, 2.0**30, 1.0, LatticeLaw(20, 6, 3), 1e-3)
# Noise for pure epsilon: biased bits, in a small field.
BIASED = Recipe((Bits((1, -1), 7, 4), Bits((2, -2, 4, -4), 3, 3), Bits((8, -8), 1, 5)))
PRIME = prime_above(1 << 20)
PURE = AggregationPlan.for_budget(Budget(1.0), dimension=104, steps=1, sensitivity=2.0, largest=1e5)
KINDS = ("logistic", "ridge", "huber", "output")


def problems(kind):
    """Return the parties' problems. With ridge, the last party brings no data."""
    rng = np.random.default_rng(8)
    weights = np.array([3.0, -2.0, 0.5, 0.0])
    objective = {"ridge": Squared(), "huber": Huber(0.2)}.get(kind, Logistic())
    made = []
    for n in (40, 25, 60):
        X = rng.normal(size=(n, 4)) / 2
        scores = X @ weights + rng.normal(size=n) / 4
        targets = (scores > 0).astype(float) if isinstance(objective, Logistic) else np.clip(scores / 4, -1, 1)
        made.append(Problem(objective, L2(0.05), BoundedRows(X, 1.0, 0.5), targets))
    return [*made[:2], None] if kind == "ridge" else made


def public(kind):
    """Return the public part of the problems, and the plan."""
    parties = problems(kind)
    joint = JointProblem.of([each for each in parties if each is not None])
    if kind == "output":
        return joint, output_plan(joint, BUDGET)
    return joint, gradient_plan(joint, BUDGET, steps=STEPS, clip_norm=0.3 if kind == "ridge" else None)


async def descend(kind, aggregator):
    joint, _ = public(kind)
    if kind == "output":
        return await joint_output_perturbation(joint, aggregator, delta=BUDGET.delta)
    return await joint_gradient_descent(joint, aggregator, delta=BUDGET.delta)


class Watched(JointAggregator):
    """A party that keeps what was opened, and its share of the noise."""

    def __init__(self, *arguments):
        super().__init__(*arguments)
        self.opened = []

    async def _opened(self, summand):
        self.opened.append(await super()._opened(summand))
        return self.opened[-1]

    def _joint_noise(self):
        self.noise = super()._joint_noise()
        return self.noise


class Silent(Watched):
    """A party that adds no noise."""

    def _joint_noise(self):
        return self._secret.array(np.full(self.plan.dimension, self.plan.law.reach, dtype=object))


async def sums(session, orders):
    """Sum values of various sizes and signs, without noise and with noise."""
    found = {}
    for name, kind in (("silent", Silent), ("noisy", Watched)):
        aggregator = kind(LARGE, session, problems("logistic")[session.index % 3])
        found[name] = (await aggregator.noisy_sum(lambda party: EXTREMES)).tolist()
    return found


async def descents(session, orders):
    """Run every method, without noise and with noise."""
    found = {}
    for kind in KINDS:
        _, plan = public(kind)
        for name, aggregator in (("silent", Silent), ("noisy", Watched)):
            made = aggregator(plan, session, problems(kind)[session.index])
            release = await descend(kind, made)
            found[f"{kind} {name}"] = {
                "opened": [each.tolist() for each in made.opened],
                "weights": release.weights.tolist(),
                "statement": release.guarantee.statement(verbose=True),
            }
    return found


async def draws(session, orders):
    """Draw only noise, and keep this party's share of it."""
    start = time.perf_counter()
    for name, law, number in (("small", SMALL, DRAWS), ("default", LatticeLaw(), DEFAULT_DRAWS)):
        aggregator = Watched(AggregationPlan(number, 1, 1.0, 1.0, 1.0, law, 1e-3), session, None)
        drawn = await aggregator.noisy_sum(lambda party: None)
        share = await session.wait(session.runtime.gather(aggregator.noise))
        np.save(f"{name}.npy", drawn.astype(np.int64))
        np.save(f"{name}_share.npy", np.array([int(each) for each in share.value], dtype=np.int64))
    return {"seconds": time.perf_counter() - start}


async def release(session, orders):
    """Measure one release of 104 coordinates."""
    plan = AggregationPlan.for_budget(BUDGET, dimension=104, steps=1, sensitivity=2.0, largest=1e5)
    aggregator = JointAggregator(plan, session, problems("logistic")[session.index % 3])
    await session.exchange(b"ready")
    sent, start, used = session.bytes_sent, time.perf_counter(), time.process_time()
    await aggregator.noisy_sum(lambda party: np.linspace(-1, 1, 104))
    return {
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - used,
        "sent": session.bytes_sent - sent,
    }


async def pure_draws(session, orders):
    """Draw biased bits, without and with uniformly random numbers in a quarter of the draws."""
    runtime, found = session.runtime, {}
    secret = runtime.SecFld(modulus=PRIME, signed=True)
    for name, reset, number in (("usual", None, 3000), ("reset", 2, 600)):
        drawn = await session.wait(runtime.output(joint_draw(runtime, secret, replace(BIASED, reset=reset), number)))
        found[name] = [int(each) for each in drawn]
    return found


async def pure_release(session, orders):
    """Measure one release of 104 coordinates with pure epsilon."""
    aggregator = JointAggregator(PURE, session, problems("logistic")[session.index])
    await session.exchange(b"ready")
    sent, start, used = session.bytes_sent, time.perf_counter(), time.process_time()
    opened = await aggregator.noisy_sum(lambda party: np.linspace(-1, 1, 104))
    return {
        "opened": opened.tolist(),
        "std": aggregator.noise_std,
        "seconds": time.perf_counter() - start,
        "processor": time.process_time() - used,
        "sent": session.bytes_sent - sent,
    }


async def signing(session, orders):
    """Sign a result. One party may have a different one."""
    result = {"weights": [1.0 if session.index == orders["other"] else 0.0]}
    try:
        signatures = await sign(session, Study.from_values(orders["study"]), result)
    except (ValueError, NetworkError) as error:
        return {"error": str(error)}
    return {"signatures": [each.signature.hex() for each in signatures]}


async def ordered(session, orders):
    """Take part in a study and record the order of events. Party 1 brings no table; one party is slow."""
    events, exchange, output = [], session.exchange, session.runtime.output
    times = {}

    async def watched_exchange(payload):
        answers = await exchange(payload)
        if not events:
            events.append("agreed")
        return answers

    def watched_output(*arguments, **options):
        if isinstance(arguments[0], session.runtime.SecureObject):  # Otherwise MPyC is making joint bits.
            events.append("opened")
        return output(*arguments, **options)

    def book(guarantee):
        if session.index == orders.get("refuses"):
            raise ValueError("the ledger is full")
        events.append("booked")
        times.update(booked=time.monotonic(), epsilon=guarantee.epsilon)

    session.exchange, session.runtime.output = watched_exchange, watched_output
    rng = np.random.default_rng(session.index)
    table = None if session.index == 1 else (rng.uniform(-1, 1, (20, 1)), rng.integers(0, 2, 20).astype(float))
    if session.index == orders["slow"]:
        time.sleep(0.5)
    times["started"] = time.monotonic()
    try:
        release = await take_part(session, Study.from_values(orders["study"]), table, book=book)
    except (ValueError, NetworkError) as error:
        await session.abandon(error)
        return {"events": events, "error": str(error)}
    session.exchange = exchange
    slowest = max(float(each) for each in await exchange(str(times["started"]).encode()))
    return {"events": events, "slowest": slowest, "counts": release.trace["counts"], **times}


async def _take_part(orders):
    addresses = [(HOST, port) for port in orders["ports"]]
    found = {}
    with contextlib.suppress(NetworkError, ValueError):  # The tests look at what was found until then.
        async with Network(addresses, orders["index"], orders.get("keys"), 60.0, 60.0).connect() as session:
            for name in orders["do"]:
                found[name] = await globals()[name](session, orders)
    return found


def main(orders):
    found = asyncio.run(_take_part(orders))
    Path("found.json").write_text(json.dumps(found))
