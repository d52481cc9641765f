"""Methods with which joint noise is compared: each party adds its own noise, or too much noise is added once.

The comparison methods of section 6.4 of "Towards Efficient and Effective Privacy-Preserving Machine Learning" (L. Wang,
2021), for experiments in one process. Each release carries the guarantee of the noise that was really drawn. For two
methods this is not the given budget: :func:`pathak` spends far less, and :func:`rajkumar_agarwal` far more. Noise is
Gaussian for delta > 0 and l2 K-norm for delta = 0. (The chapter draws Laplace noise on each coordinate, which is
sqrt(d) times too little for d coordinates.)

As in the chapter, all parties have the same weight in averages, whatever their numbers of rows.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privet.checks import positive, probability
from privet.multiparty.protocol.aggregation import JointProblem
from privet.multiparty.protocol.gradient import record_clip
from privet.plans.gradient import GradientPlan
from privet.plans.output import OutputPlan
from privet.plans.samplers import FullBatch
from privet.plans.stabilities.minimiser import MinimiserStability
from privet.privacy.analyses.objective_noise import least_strong_convexity
from privet.privacy.budget import Budget
from privet.privacy.guarantees.guarantee import Assumption, assumed, enforced
from privet.privacy.noise.source import NoiseSource
from privet.solvers.base.interface import Problem, Release, Run
from privet.solvers.base.minimise import minimise
from privet.solvers.minimiser_perturbation import minimiser_perturbation, minimiser_stability
from privet.solvers.objective_perturbation import objective_perturbation, objective_plan

_NoisyMean = Callable[[NDArray[Any]], NDArray[Any]]

_APART = enforced(
    "each record belongs to one party, which adds its own noise to what it shows. A replaced record therefore changes "
    "the distribution of one party's part only, and the total is the largest of the parties' guarantees, not their sum"
)


@dataclass(frozen=True)
class AveragedMinimisers:
    """Sensitivity of the average of all parties' minimisers to the replacement of one record.

    Parameters
    ----------
    worst : MinimiserStability
        Stability of the minimiser that moves farthest, which is that of the party with the fewest rows.
    parties : int
        Number of minimisers in the average.

    Formal guarantees
    -----------------
    One term of the average moves by at most ``worst.sensitivity``, and its weight is 1/parties (Theorem 6.3.1 of the
    dissertation).
    """

    worst: MinimiserStability
    parties: int

    adjacency = MinimiserStability.adjacency

    @property
    def sensitivity(self) -> float:
        """Sensitivity of the worst party, divided by the number of parties."""
        return self.worst.sensitivity / self.parties

    def in_words(self) -> str:
        """Return the argument in one line."""
        return f"{self.worst.in_words()}; an average over {self.parties} parties by at most {self.sensitivity:.4g}"


def pathak(problems: Sequence[Problem], budget: Budget, *, source: NoiseSource) -> Release:
    """Average the parties' minimisers, and add the noise that the minimiser of the smallest party alone would need.

    "Multiparty Differential Privacy via Aggregation of Locally Trained Classifiers" (Pathak, Rane, Raj, 2010).

    Formal guarantees
    -----------------
    The noise is scaled to 2L/(n_(1) lambda), where n_(1) is the fewest rows of a party. The average moves by at most an
    m-th of that (:class:`AveragedMinimisers`), so the returned guarantee is m times stronger than ``budget``, and the
    method is correspondingly inaccurate. The guarantee holds against anybody who does not know the noise.

    Its epsilon is 0 as soon as one record changes the probability of any outcome by at most delta, as for 100 parties
    at epsilon = 0.5 and delta = 0.001. The release is then (0, delta)-DP, which is not perfect privacy: at a smaller
    delta, its epsilon is positive.
    """
    check_parties(problems)
    stabilities = [minimiser_stability(problem) for problem in problems]
    worst = max(stabilities, key=lambda stability: stability.sensitivity)
    scaled = OutputPlan.for_budget(budget, stability=worst)
    plan = replace(scaled, stability=AveragedMinimisers(worst, len(problems)))
    found = [
        minimise(problem, tolerance=stability.tolerance)
        for problem, stability in zip(problems, stabilities, strict=True)
    ]
    bound = enforced(f"rows are bounded and each minimiser is certified: {plan.stability.in_words()}")
    guarantee = plan.guarantee(
        budget.delta, bound=bound, released="the average of the parties' minimisers, with one party's noise added once"
    )
    alone = assumed("the noise is drawn where no party sees it, and nothing but the noisy average is shown")
    trace = {"parties": len(problems), "noise_scale": plan.scale}
    return Release(plan.noisy(np.mean(found, axis=0), source), guarantee.assuming(alone, source.assumption()), trace)


def local_output_perturbation(problems: Sequence[Problem], budget: Budget, *, source: NoiseSource) -> Release:
    """Average the parties' minimisers after each party has added its own noise (Local Out-P).

    Formal guarantees
    -----------------
    Each party's noisy minimiser is within ``budget`` (:func:`~privet.solvers.minimiser_perturbation`, Algorithm 1 of
    Chaudhuri, Monteleoni and Sarwate, 2011). Each record belongs to one party, so by parallel composition the total is
    the budget of one party. Nothing needs to be hidden from other parties.
    """
    check_parties(problems)
    plans = [OutputPlan.for_budget(budget, stability=minimiser_stability(problem)) for problem in problems]
    releases = [
        minimiser_perturbation(problem, Run(plan, source)) for problem, plan in zip(problems, plans, strict=True)
    ]
    return _averaged(releases, "every party's noisy minimiser, and their average")


def local_objective_perturbation(
    problems: Sequence[Problem], budget: Budget, *, source: NoiseSource, volume_share: float = 0.5
) -> Release:
    """Average the minimisers of the parties' objectives, each tilted at random (Local Obj-P).

    ``volume_share`` is the fraction of epsilon that the curvature of one record may cost. If it would cost more because
    a party's objective is not convex enough, a further penalty is added (:func:`afforded_alpha`).

    Formal guarantees
    -----------------
    Each party's minimiser is within ``budget`` (:func:`~privet.solvers.objective_perturbation`, Algorithm 2 of
    Chaudhuri, Monteleoni and Sarwate, 2011, and its Gaussian form), and each record belongs to one party, as for
    :func:`local_output_perturbation`.
    """
    check_parties(problems)
    plans = [
        objective_plan(problem, budget, added_alpha=afforded_alpha(problem, budget, volume_share))
        for problem in problems
    ]
    releases = [
        objective_perturbation(problem, Run(plan, source)) for problem, plan in zip(problems, plans, strict=True)
    ]
    return _averaged(releases, "the minimiser of every party's randomly tilted objective, and their average")


def afforded_alpha(problem: Problem, budget: Budget, volume_share: float = 0.5) -> float:
    """Return the penalty to add so that log(1 + beta/(n m)) costs at most ``volume_share`` of epsilon.

    It depends on public numbers only. With a larger penalty, the minimiser needs less noise, but is farther from that
    of the original problem.
    """
    smoothness = problem.objective.smoothness(problem.rows.norm_bound)
    share = probability("volume_share", volume_share) * budget.epsilon
    least = least_strong_convexity(smoothness, problem.rows.n, share)
    return max(0.0, least - problem.strong_convexity)


def local_gradient_descent(
    problems: Sequence[Problem],
    budget: Budget,
    *,
    steps: int,
    source: NoiseSource,
    step_size: float | None = None,
    clip_norm: float | None = None,
) -> Release:
    """Descend along the average of the parties' gradients, to which each party adds its own noise (Local Grad-P).

    After "Privacy-Preserving Deep Learning" (Shokri, Shmatikov, 2015), with the noise that composition over all steps
    needs. A ``step_size`` of None means 1/smoothness. ``clip_norm`` bounds a record's gradient if the loss does not.

    Formal guarantees
    -----------------
    All noisy gradients of one party together are within ``budget``, by composition over the steps. Each record belongs
    to one party, so this is the total. Nothing needs to be hidden from other parties.
    """
    joint = check_parties(problems)
    clip = record_clip(joint, clip_norm)
    plan = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=steps, clip_norm=clip)
    runs = [plan.run(problem.rows.n, source) for problem in problems]

    def noisy_mean(weights: NDArray[Any]) -> NDArray[Any]:
        shown = [
            next(run).noisy(_gradient_sum(problem, weights, clip)) / problem.rows.n
            for run, problem in zip(runs, problems, strict=True)
        ]
        return np.asarray(np.mean(shown, axis=0))

    weights, size = _descend(joint, noisy_mean, steps, step_size)
    guarantee = plan.guarantee(
        budget.delta, bound=_bounded(clip), released="every party's noisy gradient in every step, and all iterates"
    )
    trace = {"parties": len(problems), "steps": steps, "step_size": size, "noise_scale": plan.noise_std}
    return Release(weights, guarantee.assuming(_APART, source.assumption()), trace)


def rajkumar_agarwal(
    problems: Sequence[Problem],
    budget: Budget,
    *,
    steps: int,
    source: NoiseSource,
    step_size: float | None = None,
    clip_norm: float | None = None,
) -> Release:
    """Descend along noisy gradients of all parties, where **each step spends the whole budget**.

    After "A Differentially Private Stochastic Gradient Descent Algorithm for Multiparty Classification" (Rajkumar,
    Agarwal, 2012), in the form of section 6.4 of the dissertation: every step has the noise that a single release of
    the average gradient would need. The two noises of the paper are one Gaussian here. Every party contributes an m-th
    of its variance, and a third party adds them up. Here the sum is drawn at once, which has the same distribution.

    Formal guarantees
    -----------------
    **Not** ``budget``, which holds for one step only. The returned guarantee is its composition over all steps. The
    average over parties of average gradients, times m n_(1), moves by at most 2L, where n_(1) is the fewest rows of a
    party. The guarantee holds only against those who know no party's share of the noise, because parties that combine
    their shares can subtract them.
    """
    joint = check_parties(problems)
    clip = record_clip(joint, clip_norm)
    once = GradientPlan.for_budget(budget, sampler=FullBatch(), steps=1, clip_norm=clip)
    plan = GradientPlan(FullBatch(), steps, clip, once.noise_multiplier)
    fewest, parties = min(joint.counts), len(problems)
    run = plan.run(joint.n, source)

    def noisy_mean(weights: NDArray[Any]) -> NDArray[Any]:
        total = sum(_gradient_sum(problem, weights, clip) * (fewest / problem.rows.n) for problem in problems)
        return next(run).noisy(np.asarray(total)) / (parties * fewest)

    weights, size = _descend(joint, noisy_mean, steps, step_size)
    released = (
        f"every noisy gradient and all iterates, NOT private at epsilon = {budget.epsilon:g}, delta = "
        f"{budget.delta:g}, which each of {steps} steps spent again"
    )
    trusted = assumed(
        "a third party adds up gradients and noise and shows nothing else, and no party reveals its share of the noise"
    )
    guarantee = plan.guarantee(budget.delta, bound=_bounded(clip), released=released)
    trace = {"parties": parties, "steps": steps, "step_size": size, "noise_scale": plan.noise_std}
    return Release(weights, guarantee.assuming(trusted, source.assumption()), trace)


def check_parties(problems: Sequence[Problem]) -> JointProblem:
    """Return the public part of the parties' problems. All parties must agree on it and bring rows."""
    if not problems:
        raise ValueError("There are no parties. Give at least one problem.")
    joint = JointProblem.of(problems)
    if not min(joint.counts):
        raise ValueError("A party brings no rows, so it has no minimiser and no gradient. Leave it out.")
    return joint


def _bounded(clip: float) -> Assumption:
    return enforced(f"each record's gradient has l2 norm at most {clip:.6g}, by bounded rows or by clipping")


def _gradient_sum(problem: Problem, weights: NDArray[Any], clip: float) -> NDArray[Any]:
    return problem.objective.gradient_sum(weights, problem.rows, problem.targets, clip)


def _descend(
    joint: JointProblem, noisy_mean: _NoisyMean, steps: int, step_size: float | None
) -> tuple[NDArray[Any], float]:
    """Return the last iterate and the step size."""
    size = 1 / joint.smoothness if step_size is None else positive("step_size", step_size)
    weights = joint.start()
    for _ in range(steps):
        weights = weights - size * (noisy_mean(weights) + joint.regulariser.gradient(weights))
    return weights, size


def _averaged(releases: Sequence[Release], released: str) -> Release:
    """Return the average of the parties' releases, with the weakest of their guarantees."""
    worst = max((release.guarantee for release in releases), key=lambda guarantee: guarantee.epsilon)
    vouched = [text for release in releases for text in release.guarantee.assumptions if not text.is_enforced]
    others = [text for text in dict.fromkeys(vouched) if text not in worst.assumptions]
    trace = {"parties": len(releases), "noise_scale": max(release.trace["noise_scale"] for release in releases)}
    weights = np.mean([release.weights for release in releases], axis=0)
    return Release(weights, replace(worst, released=released).assuming(_APART, *others), trace)
