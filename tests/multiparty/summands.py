"""Helpers for tests of the joint methods: small parties, neighbouring tables, and a record of all summands."""

import asyncio
import itertools
from dataclasses import replace

import numpy as np

from privet.multiparty.protocol.aggregation import SimulatedAggregator
from privet.objectives import L2, BoundedRows
from privet.solvers.base.interface import Problem


class Spy(SimulatedAggregator):
    """A simulation that keeps the summands it was given."""

    def __init__(self, plan, problems):
        super().__init__(plan, problems, None)
        self.summands = []

    async def noisy_sum(self, summand):
        self.summands.append(summand)
        return await super().noisy_sum(summand)


def run(method, problem, plan, parties, **options):
    """Run a method without noise, and return its release and its summands."""
    spy = Spy(plan, parties)
    return asyncio.run(method(problem, spy, delta=1e-5, **options)), spy.summands


def party(objective, X, targets, *, alpha=0.1, row_norm=1.0, intercept=0.5):
    return Problem(objective, L2(alpha), BoundedRows(np.array(X, dtype=float), row_norm, intercept), np.array(targets))


def rows_of(problem):
    return problem.rows._X


def replaced(problem, place, row, target):
    """Return the neighbour of a party's table with one record replaced."""
    X, targets = rows_of(problem).copy(), problem.targets.copy()
    X[place], targets[place] = row, target
    return replace(problem, rows=BoundedRows(X, problem.rows.row_norm, problem.rows.intercept), targets=targets)


def neighbours(parties, records):
    """Yield pairs of neighbouring lists of parties, with each record replaced by each of the given records."""
    for index, each in enumerate(parties):
        for place, (row, target) in itertools.product(range(each.rows.n), records):
            yield parties, [*parties[:index], replaced(each, place, row, target), *parties[index + 1 :]]


def moved(plan, summand, one, other):
    """Return how far the rounded sum moves between two lists of parties."""
    sums = [sum(plan.on_lattice(summand(party)) for party in parties) for parties in (one, other)]
    return float(np.linalg.norm(sums[0] - sums[1]))


def extreme_records(targets, dimension=2):
    """Return rows of various norms, most of them at the bound or far beyond it, with each of the targets."""
    ones = np.ones(dimension)
    first = np.eye(dimension)[0]
    rows = [0 * ones, first, -first, ones, -ones, 1e9 * ones, -1e9 * first, 1e-9 * ones, 0.5 * first]
    return list(itertools.product(rows, targets))
