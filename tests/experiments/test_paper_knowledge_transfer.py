"""Knowledge transfer as its paper calibrates it, which docs/errata.md (j) shows not to be private."""

import math
from dataclasses import replace

import numpy as np
import pytest

from privet.objectives import L2, BoundedRows, Squared
from privet.plans import MinimiserStability, OutputPlan
from privet.privacy import Budget, NoiseSource
from privet.privacy.analyses.gaussian import gdp_delta
from privet.solvers import Problem, PublicFeatures, Run, knowledge_transfer

DELTA = 1e-5
PAPER = {"n": 1001, "n_public": 800, "n_nonzero": 3, "gradient_bound": 0.5, "alpha": 0.1, "covariance_norm": 1 / 3}


class Silent(NoiseSource):
    """A source without noise."""

    def add_gaussian(self, values, std, *options):
        return values.copy()


@pytest.fixture
def paper(opened):
    return opened("paper_knowledge_transfer")


def public(m, d, seed=9):
    return PublicFeatures(np.random.default_rng(seed).uniform(-1, 1, (m, d)))


def support_flip(n=1001):
    """Two features fit equally well, and the last record decides which of them a sparse teacher keeps."""
    half = np.repeat(np.eye(2), n // 2, axis=0)
    for last in np.eye(2):
        yield Problem(Squared(), L2(0.1), BoundedRows(np.vstack([half, last]), 1.0), np.ones(n))


def plan_of(paper, problem, features):
    budget = Budget(1.0, DELTA)
    stability = paper.PaperTransferStability(
        n=problem.rows.n, n_public=features.rows.n, n_nonzero=1, gradient_bound=1.0, alpha=0.1, covariance_norm=1 / 3
    )
    return OutputPlan(stability, stability.scale(budget), is_pure=False, delta=budget.delta)


def test_the_noise_is_that_of_theorem_3_3_3(paper):
    stability, budget = paper.PaperTransferStability(**PAPER), Budget(0.8, 1e-3)
    variance = 8 * 800 / 3 * 3 * 0.5**2 * math.log(2.5 / 1e-3) / (1001 * 0.8 * 0.1) ** 2
    assert stability.scale(budget) ** 2 == pytest.approx(variance)
    assert "its proof is wrong" in stability.in_words()
    plan = OutputPlan(stability, stability.scale(budget), is_pure=False)
    assert plan.guarantee(1e-3).is_conditional
    assert plan.guarantee(1e-3).epsilon <= 0.8


@pytest.mark.parametrize("name", PAPER)
def test_impossible_numbers_are_refused(paper, name):
    with pytest.raises(ValueError, match=f"^{name} must"):
        paper.PaperTransferStability(**PAPER | {name: 0})


def test_the_sparse_teacher_moves_much_farther_than_the_paper_says(paper):
    """The sparse minimisers of two neighbouring tables are 1.179 apart, and 0.01413 is claimed."""
    features, unit = public(1001, 2), PublicFeatures(np.eye(2))
    teachers, labels = [], []
    for problem in support_flip():
        for where, seen in ((unit, teachers), (features, labels)):
            plan = plan_of(paper, problem, where)
            release = paper.paper_knowledge_transfer(problem, Run(plan, Silent()), features=where, n_nonzero=1)
            seen.append(release.trace["labels"])
    assert teachers[0] == pytest.approx([0.8335, 0], abs=1e-4)
    assert np.linalg.norm(teachers[0] - teachers[1]) == pytest.approx(1.179, abs=1e-3)
    assert plan.stability.sensitivity / math.sqrt(2 * 1001 / 3) == pytest.approx(0.01413, rel=1e-3)
    distance = np.linalg.norm(labels[0] - labels[1])
    assert distance > 50 * plan.stability.sensitivity
    mu = distance / plan.scale
    assert mu == pytest.approx(12.3, rel=0.1)
    assert gdp_delta(mu, 1.0) > 0.999  # of a release that is said to be (1, 1e-5)-DP


def test_the_guarantee_is_conditional_and_its_first_line_says_so(paper):
    (problem, _), features = support_flip(), public(20, 2)
    run = Run(plan_of(paper, problem, features))
    guarantee = paper.paper_knowledge_transfer(problem, run, features=features, n_nonzero=1).guarantee
    statement = guarantee.statement(verbose=True)
    assert guarantee.is_conditional
    assert "provided that the assumption below holds" in statement.splitlines()[0]
    for words in ("Theorem 3.3.3", "its proof is wrong", "with noise added once"):
        assert words in statement


def test_the_library_refuses_the_papers_plan_and_the_paper_other_plans(paper):
    (problem, _), features = support_flip(), public(20, 2)
    run = Run(plan_of(paper, problem, features))
    with pytest.raises(TypeError, match="TransferStability plan, not PaperTransferStability"):
        knowledge_transfer(problem, run, features=features, n_nonzero=1)
    with pytest.raises(ValueError, match="other data or constants"):
        paper.paper_knowledge_transfer(problem, run, features=features, n_nonzero=2)
    with pytest.raises(ValueError, match="other data or constants"):
        paper.paper_knowledge_transfer(problem, run, features=public(21, 2), n_nonzero=1)
    other = replace(run.plan, stability=MinimiserStability(10, 1.0, 1.0, 0.0))
    with pytest.raises(TypeError, match="PaperTransferStability plan, not MinimiserStability"):
        paper.paper_knowledge_transfer(problem, Run(other), features=features, n_nonzero=1)
