"""Plans whose unit is a client.

Such a plan is an ordinary :class:`~privet.plans.GradientPlan`: its steps are rounds, and its sums are sums of clients'
updates. If a committee of servers forms the sums, it is a :class:`~privet.federated.committee.CommitteePlan`.
"""

from typing import TypeAlias

from privet import cautions
from privet.checks import count
from privet.federated.committee.plan import CommitteePlan
from privet.plans import FixedSize, FullBatch, GradientPlan, Poisson, Sampler
from privet.plans.samplers import named_sampler
from privet.privacy import Budget, Unit
from privet.privacy.analyses.closed_forms import dp_fed_ls_noise_poisson, dp_fed_ls_noise_uniform
from privet.privacy.budget import BudgetLike, as_budget, given_budget

RoundsPlan: TypeAlias = GradientPlan | CommitteePlan


def client_plan(
    budget: BudgetLike | None = None,
    *,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    n_clients: int,
    clients_per_round: int,
    rounds: int,
    clip_norm: float,
    sampling: str = "poisson",
) -> GradientPlan:
    """Return the plan of federated rounds that adds the least noise within the budget, or the given noise.

    Parameters
    ----------
    budget : Budget, float, or pair of floats
        Budget of each client for the whole run. A number is an epsilon, a pair is (epsilon, delta).
    epsilon, delta : float
        An alternative to ``budget``. The default delta is min(1e-6, 0.01/n_clients).
    noise_multiplier : float
        Another alternative to ``budget``, optionally with ``delta``: the standard deviation of the noise on the sum of
        updates, divided by ``clip_norm``. The guarantee states the epsilon that results. 0 adds no noise, and the
        guarantee says that there is no privacy.
    n_clients : int
        The number of clients. With Poisson sampling it determines only the sampling rate, the divisor and the default
        delta, and it must be public. A rough number that does not depend on who takes part works as well.
    clients_per_round : int
        How many clients take part in a round: on average (Poisson sampling), or exactly (uniform sampling).
    rounds : int
        How many global models are released after the initial one.
    clip_norm : float
        Bound on the l2 norm of one client's update, over all layers together.
    sampling : {"poisson", "uniform"}
        ``"poisson"`` samples each client independently and hides whether a client takes part (add-or-remove).
        ``"uniform"`` samples a fixed number without replacement and hides the replacement of one client's data by
        another's (replace-one).

    Formal guarantees
    -----------------
    Those of :meth:`GradientPlan.for_budget`: the epsilon is computed by an accountant and never exceeds the budget.
    """
    sampler = _sampler(sampling, n_clients, clients_per_round)
    target = given_budget(budget, epsilon, delta, noise_multiplier, n_clients)
    if isinstance(target, Budget):
        cautions.about_budget(target.epsilon, target.delta, n_clients, "client's data")
    return GradientPlan.for_budget(
        target, sampler=sampler, steps=rounds, clip_norm=clip_norm, public_n=_public_n(sampler, n_clients)
    )


def paper_plan(
    budget: BudgetLike,
    *,
    n_clients: int,
    clients_per_round: int,
    rounds: int,
    clip_norm: float,
    sampling: str = "poisson",
    rounded_order: bool = True,
) -> GradientPlan:
    """Return the plan with the noise of the paper, to reproduce its results. Use :func:`client_plan` otherwise.

    The noise follows the closed forms of "Differentially Private Federated Learning with Laplacian Smoothing",
    Theorem 1 (uniform sampling) and Theorem 2 (Poisson sampling), with the best split from a grid. If no split meets
    their side conditions, ``SideConditionError`` is raised. The paper has delta = 1/n_clients^1.1, which is larger than
    privet's default, so give it with the budget. ``rounded_order=False`` uses the noise as printed, which is proved
    only for integer orders (:mod:`privet.privacy.analyses.closed_forms`). In either case, the guarantee of the plan is
    computed by an accountant, and its epsilon is usually far below that of the budget.
    """
    target = as_budget(budget, n_clients)
    sampler = _sampler(sampling, n_clients, clients_per_round)
    terms = {"clip": clip_norm, "epsilon": target.epsilon, "delta": target.delta}
    if isinstance(sampler, Poisson):
        noise = dp_fed_ls_noise_poisson(sampler.rate, rounds, **terms, rounded_order=rounded_order)
    else:
        noise = dp_fed_ls_noise_uniform(n_clients, clients_per_round, rounds, **terms, rounded_order=rounded_order)
    return GradientPlan(sampler, rounds, clip_norm, noise.std / clip_norm, public_n=_public_n(sampler, n_clients))


def check_plan(plan: RoundsPlan) -> None:
    """Raise if federated rounds cannot carry out the plan."""
    if isinstance(plan, CommitteePlan):
        return  # It has checked itself.
    if not isinstance(plan, GradientPlan):
        raise TypeError(
            f"Federated rounds need a GradientPlan, got {type(plan).__name__}. Make one with client_plan()."
        )
    if plan.release != "all":
        raise ValueError(
            f'A federated run needs a plan with release="all", got {plan.release!r}. Every round releases a global '
            "model, and privacy amplification by iteration does not cover clipped local training."
        )
    if plan.sampler.implied_steps is not None or plan.tasks > 1:
        raise ValueError(
            "A federated run needs a plan for one task that samples by Poisson, FixedSize or FullBatch, got "
            f"{plan.sampler!r} for {plan.tasks} task(s)."
        )
    plan.divisor(1)  # raises if the plan has no public constant to divide by


def epsilon_after(plan: RoundsPlan, rounds: int, delta: float) -> float:
    """Return the epsilon that the first rounds of a plan spend."""
    return plan.truncated(rounds).guarantee(delta, unit=Unit.CLIENT).epsilon if rounds else 0.0


def _sampler(sampling: str, n_clients: int, clients_per_round: int) -> Sampler:
    if count("clients_per_round", clients_per_round) > count("n_clients", n_clients):
        raise ValueError(
            f"clients_per_round={clients_per_round} exceeds n_clients={n_clients}. Sample at most {n_clients} clients "
            "per round."
        )
    return named_sampler(sampling, clients_per_round, n_clients)


def _public_n(sampler: Sampler, n_clients: int) -> int | None:
    """Return the public number of clients, or None if the sampler already fixes the divisor."""
    return None if isinstance(sampler, FixedSize | FullBatch) else n_clients
