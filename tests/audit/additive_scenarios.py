"""Audits of additive models: tables of cells on which one record moves what is released as far as possible."""

from dataclasses import replace

import numpy as np

from privet.objectives import Logistic, Squared
from privet.plans.additive import AdditivePlan
from privet.privacy import NoiseSource
from privet.solvers import AdditiveProblem, Run, additive_descent

CELLS = np.array([[0], [0], [1]])


def crowds():
    """Return two tables of 40 records, of which one is in another cell of every column."""
    found = []
    for first in (0, 1):
        cells = np.zeros((40, 2), dtype=int)
        cells[0], cells[30:] = first, 1
        found.append((cells, np.arange(40) % 2.0))
    return tuple(found)


def moves(release):
    """Return the noisy gradient of the intercept, up to a factor that depends on the noisy counts alone."""
    (iterate,) = release.trace["iterates"]
    return iterate[-1:]


def ratios(release):
    """Return the noisy shares of the two levels of each column as logarithms of ratios."""
    return np.array([np.log(curve.shares[0] / curve.shares[1]) for curve in release.trace["curves"]])


def additive(budget, clip, Scenario):
    """Return the audits."""
    flips = tuple((CELLS, np.array([label, 0.0, 1.0])) for label in (0.0, 1.0))
    ends = tuple((CELLS, np.array([target, 0.5, 1.0])) for target in (-1.0, 1.0))
    number = {"objective": Squared(), "standardises": True}
    cases = [
        ("a flipped label", flips, {}, 0.05, moves, 0.4, "only the gradient of the intercept is seen", 400),
        ("the ends of a target", ends, number, 0.05, moves, 0.0, "noisy moments decide the unit of targets", 200),
        ("counts", crowds(), {}, 0.95, ratios, 0.3, "counts that are not above their noise are not seen", 800),
    ]
    found = []
    for name, pair, fields, share, seen, reached, why, runs in cases:

        def run(table, source, fields=fields, share=share):
            cells, targets = table
            given = {"objective": Logistic(), **fields}
            problem = AdditiveProblem(cells, (2,) * cells.shape[1], targets=targets, **given)
            columns = problem.n_counted
            plan = AdditivePlan.for_columns(budget, n_columns=columns, steps=1, clip_norm=clip, share=share)
            return additive_descent(problem, Run(replace(plan, delta=budget.delta), source), keep_iterates=True)

        def mechanism(table, source, run=run, seen=seen):
            return seen(run(table, source))

        claim, about = run(pair[0], NoiseSource(0)).guarantee, ("additive_descent",)
        found.append(Scenario(about, f"additive_descent, {name}", mechanism, pair, claim, reached, why, runs))
    return found
