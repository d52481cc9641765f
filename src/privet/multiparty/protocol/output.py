"""MPC Out-P: each party minimises on its own rows, and one noisy average of the minimisers is opened.

Section 6.3.1 of "Towards Efficient and Effective Privacy-Preserving Machine Learning" (L. Wang, 2021), Theorem 6.3.1,
with two corrections. Minimisers are inexact within a certified tolerance, and the noise is calibrated to the l2
sensitivity. (The theorem's proof needs noise with density exp(-epsilon ||z||_2 / sensitivity), but its implementation
draws Laplace noise on each coordinate, which gives sqrt(d) epsilon.)
"""

from typing import Any

from numpy.typing import NDArray

from privet.multiparty.protocol.aggregation import Aggregator, JointProblem
from privet.plans.aggregation import AggregationPlan
from privet.plans.stabilities.minimiser import default_tolerance
from privet.privacy.budget import Budget
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.interface import Problem, Release
from privet.solvers.base.minimise import least_tolerance, minimise


def output_plan(problem: JointProblem, budget: Budget, *, jointly: bool = True) -> AggregationPlan:
    """Return the plan of one noisy average of local minimisers within ``budget``.

    Let xi_j bound the gradient at party j's minimiser. Replacing one of the party's n_j records moves the minimiser by
    at most (2L/n_j + 2 xi_j)/lambda (:class:`~privet.plans.stabilities.minimiser.MinimiserStability`). Its weight in
    the average is n_j/n. The norm of the minimiser is at most (L + xi_j)/lambda, because the gradient at zero is at
    most L. ``jointly`` says whether the parties draw the noise together.
    """
    sensitivity, longest = _bounds(problem)
    return AggregationPlan.for_budget(
        budget, dimension=problem.n_weights, steps=1, sensitivity=sensitivity, largest=longest, jointly=jointly
    )


def _bounds(problem: JointProblem) -> tuple[float, float]:
    """Return the sensitivity of the average of minimisers, and the largest norm of a minimiser.

    The certified tolerance of n rows is the larger of a multiple of 1/n and a bound on rounding errors that grows with
    n. So both n times the tolerance and the tolerance itself are largest for the fewest or the most rows.

    Each minimiser is multiplied by its weight in floating point. For both neighbours, this rounds a vector of at most
    the largest norm by at most one unit roundoff, which the sensitivity includes.
    """
    modulus, lipschitz = problem.regulariser.strong_convexity, problem.lipschitz
    tolerances = {count: tolerance_of(problem, count) for count in problem.extreme_counts()}
    moves = max(2 * (lipschitz + count * tolerance) / modulus for count, tolerance in tolerances.items())
    longest = max(lipschitz + tolerance for tolerance in tolerances.values()) / modulus
    return moves / problem.n * (1 + 1e-12) + 2.0**-52 * longest, longest * (1 + 1e-9)


def tolerance_of(problem: JointProblem, n: int) -> float:
    """Return the largest allowed gradient norm at the minimiser of a party that announced n rows.

    It is 1 % of one record's influence, or more if floating point requires it. It depends on the number of rows and on
    public constants, but not on the content of the rows. Nothing is allocated in proportion to n, which is only
    claimed: otherwise one party could exhaust the memory of all others.
    """
    return max(default_tolerance(n, problem.lipschitz), least_tolerance(problem.of_zeros(1), n=n))


async def joint_output_perturbation(
    problem: JointProblem, aggregator: Aggregator, *, delta: float | None = None
) -> Release:
    """Open the noisy average of the parties' minimisers, weighted by their numbers of records.

    Formal guarantees
    -----------------
    The guarantee of the plan, for a convex loss with bounded gradients and a strongly convex regulariser. Each party
    certifies its own minimiser. Only the noisy average is opened.
    """
    plan = aggregator.plan
    if (plan.sensitivity, plan.largest) != _bounds(problem):
        raise ValueError(
            "The plan was made for other parties or constants. Make it from this problem with output_plan."
        )
    bound = enforced(
        f"rows are bounded and each party's minimiser is certified, so that a replaced record moves the average by at "
        f"most {plan.sensitivity:.6g}"
    )
    # Stated first: a plan without a delta must raise before anything is opened.
    guarantee = plan.guarantee(delta, bound=bound, released="the noisy average of the parties' minimisers")
    noisy = await aggregator.noisy_sum(lambda party: weighted_minimiser(problem, party))
    missing = problem.n / aggregator.rows_of(problem)  # above 1 if owners brought fewer rows than they might
    trace = {"steps": 1, "noise_std": missing * aggregator.noise_std}
    return Release(missing * noisy.reshape(problem.start().shape), guarantee.assuming(*aggregator.conditions()), trace)


def weighted_minimiser(problem: JointProblem, party: Problem) -> NDArray[Any]:
    """Return a party's summand: its certified minimiser, multiplied by its share of the rows."""
    found = minimise(party, tolerance=tolerance_of(problem, party.rows.n))
    weighted: NDArray[Any] = found.ravel() * (party.rows.n / problem.n)
    return weighted
