"""MPC Out-P: each party minimises on its own rows, and the average of the minimisers is opened once, noised.

Section 6.3.1 of "Towards Efficient and Effective Privacy-Preserving Machine Learning" (L. Wang, 2021), Theorem 6.3.1,
repaired: minimisers are inexact, with a certified tolerance, and the noise is one whose l2 sensitivity counts. (The
theorem's proof needs noise of density exp(-epsilon ||z||_2 / sensitivity), its implementation draws Laplace noise a
coordinate, which gives sqrt(d) epsilon.)
"""

from typing import Any

from numpy.typing import NDArray

from privet.multiparty.protocol.aggregation import Aggregator
from privet.multiparty.protocol.problem import JointProblem
from privet.plans.aggregation import AggregationPlan
from privet.plans.stabilities.minimiser import default_tolerance
from privet.privacy.budget import Budget
from privet.privacy.guarantees.guarantee import enforced
from privet.solvers.base.minimise import check_minimisable, least_tolerance, minimise
from privet.solvers.base.problem import Problem
from privet.solvers.base.release import Release


def output_plan(problem: JointProblem, budget: Budget) -> AggregationPlan:
    """Return the plan of one noisy average of local minimisers within ``budget``.

    Party j's minimiser, of a gradient of at most xi_j, moves by (2L/n_j + 2 xi_j)/lambda when one of its n_j records is
    replaced (:class:`~privet.plans.stabilities.minimiser.MinimiserStability`), and weighs n_j/n. It is no longer than
    (L + xi_j)/lambda, the gradient at zero being at most L.
    """
    sensitivity, longest = _bounds(problem)
    return AggregationPlan.for_budget(
        budget, dimension=problem.n_weights, steps=1, sensitivity=sensitivity, largest=longest
    )


def _bounds(problem: JointProblem) -> tuple[float, float]:
    """Return how far the average of minimisers moves, and how long it can be.

    Each minimiser is multiplied with its weight in floating point, which rounds a vector of the longest length by one
    unit roundoff of it, on each side.
    """
    modulus, lipschitz = problem.regulariser.strong_convexity, problem.lipschitz
    tolerances = {count: tolerance_of(problem, problem.of_zeros(count)) for count in {*problem.counts} - {0}}
    moves = max(2 * (lipschitz + count * tolerance) / modulus for count, tolerance in tolerances.items())
    longest = max(lipschitz + tolerance for tolerance in tolerances.values()) / modulus
    return moves / problem.n * (1 + 1e-12) + 2.0**-52 * longest, longest * (1 + 1e-9)


def tolerance_of(problem: JointProblem, party: Problem) -> float:
    """Return how long the gradient at a party's minimiser may be: 1 % of one record's influence, if floats allow it.

    It depends on the number of rows and on public constants, not on what is in the rows.
    """
    check_minimisable(party)
    return max(default_tolerance(party.rows.n, problem.lipschitz), least_tolerance(party))


async def joint_output_perturbation(problem: JointProblem, aggregator: Aggregator, *, delta: float) -> Release:
    """Open the noisy average, over records, of the parties' own minimisers.

    Formal guarantees
    -----------------
    The plan's, for a convex loss with bounded gradients and a strongly convex regulariser. Each party certifies its own
    minimiser. Only the noisy average is opened.
    """
    plan = aggregator.plan
    if (plan.sensitivity, plan.largest) != _bounds(problem):
        raise ValueError("the plan was made for other parties or constants: make it from the problem, by output_plan")
    noisy = await aggregator.noisy_sum(lambda party: _weighed_minimiser(problem, party))
    bound = enforced(
        f"rows are bounded and each party's minimiser is certified, so that a replaced record moves the average by at "
        f"most {plan.sensitivity:.6g}"
    )
    guarantee = plan.guarantee(delta, bound=bound, released="the average of the parties' minimisers, noised once")
    trace = {"steps": 1, "noise_std": plan.noise_std}
    return Release(noisy.reshape(problem.start().shape), guarantee.assuming(*aggregator.conditions()), trace)


def _weighed_minimiser(problem: JointProblem, party: Problem) -> NDArray[Any]:
    found = minimise(party, tolerance=tolerance_of(problem, party))
    weighed: NDArray[Any] = found.ravel() * (party.rows.n / problem.n)
    return weighed
