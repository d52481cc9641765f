"""Plans whose unit is a client: who is sampled, how far one client moves a sum, the noise, the rounds.

A plan of clients is a :class:`~privet.plans.GradientPlan` like any other: its steps are rounds, its units clients, and
its sums are of clients' updates.
"""

from dataclasses import replace

from privet.checks import count
from privet.plans import FixedSize, FullBatch, GradientPlan, Poisson, Sampler
from privet.privacy import Budget, Unit
from privet.privacy.analyses.closed_forms import dp_fed_ls_noise_poisson, dp_fed_ls_noise_uniform

SAMPLINGS = ("poisson", "uniform")


def client_plan(
    budget: Budget,
    *,
    n_clients: int,
    clients_per_round: int,
    rounds: int,
    clip_norm: float,
    sampling: str = "poisson",
) -> GradientPlan:
    """Return the plan of federated rounds with the least noise that keeps within the budget.

    Parameters
    ----------
    budget : Budget
        Of the whole run, for each client.
    n_clients : int
        How many clients there are. With Poisson sampling it only makes the rate and the fixed divisor, and must be
        public: a round number that owes nothing to who takes part is as good.
    clients_per_round : int
        How many take part in a round: on average (Poisson), or always (uniform).
    rounds : int
        How many global models are released after the first.
    clip_norm : float
        Bound on the l2 norm of one client's update, all layers together.
    sampling : {"poisson", "uniform"}
        Each client independently, protected against its presence (add-or-remove); or a fixed number without
        replacement, protected against its exchange for another (replace-one).

    Formal guarantees
    -----------------
    Those of :meth:`GradientPlan.for_budget`: by accountant, the epsilon never above the budget's.
    """
    sampler = _sampler(sampling, n_clients, clients_per_round)
    return GradientPlan.for_budget(
        budget, sampler=sampler, steps=rounds, clip_norm=clip_norm, public_n=_guess(sampler, n_clients)
    )


def paper_plan(
    budget: Budget,
    *,
    n_clients: int,
    clients_per_round: int,
    rounds: int,
    clip_norm: float,
    sampling: str = "poisson",
    rounded_order: bool = True,
) -> GradientPlan:
    """Return the plan with the noise that the paper itself adds, for reproduction: Theorem 1 (uniform), 2 (Poisson).

    The closed forms of "Differentially Private Federated Learning with Laplacian Smoothing", under their side
    conditions, at the best split of a grid; a budget for which no split meets them raises ``SideConditionError``.
    ``rounded_order=False`` takes the noise as printed, which is proved only where the order is a whole number
    (:mod:`privet.privacy.analyses.closed_forms`). Either way the plan's own guarantee is by accountant: usually far
    below the budget that the theorem was given.
    """
    sampler = _sampler(sampling, n_clients, clients_per_round)
    if isinstance(sampler, Poisson):
        noise = dp_fed_ls_noise_poisson(
            sampler.rate,
            rounds,
            clip=clip_norm,
            epsilon=budget.epsilon,
            delta=budget.delta,
            rounded_order=rounded_order,
        )
    else:
        noise = dp_fed_ls_noise_uniform(
            n_clients,
            clients_per_round,
            rounds,
            clip=clip_norm,
            epsilon=budget.epsilon,
            delta=budget.delta,
            rounded_order=rounded_order,
        )
    return GradientPlan(sampler, rounds, clip_norm, noise.std / clip_norm, public_n=_guess(sampler, n_clients))


def check_plan(plan: GradientPlan) -> None:
    """Raise on a plan that federated rounds do not carry out."""
    if not isinstance(plan, GradientPlan):
        raise TypeError(
            f"federated rounds follow a GradientPlan, got {type(plan).__name__}: make one by client_plan(...)"
        )
    if plan.release != "all":
        raise ValueError(
            'every round releases a global model: the plan must say release="all". Amplification by iteration does '
            "not cover rounds of clipped local training"
        )
    if plan.sampler.implied_steps is not None or plan.tasks > 1:
        raise ValueError(f"rounds sample by Poisson, FixedSize or FullBatch, for one task; not by {plan.sampler!r}")
    plan.divisor(1)  # raises where the plan has no public constant to divide by


def epsilon_after(plan: GradientPlan, rounds: int, delta: float) -> float:
    """Return what the first rounds of a plan spend."""
    return replace(plan, steps=rounds).guarantee(delta, unit=Unit.CLIENT).epsilon if rounds else 0.0


def _sampler(sampling: str, n_clients: int, clients_per_round: int) -> Sampler:
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling must be one of {', '.join(SAMPLINGS)}, got {sampling!r}")
    if count("clients_per_round", clients_per_round) > count("n_clients", n_clients):
        raise ValueError(f"{clients_per_round} clients a round cannot be drawn from {n_clients}")
    if sampling == "uniform":
        return FixedSize(clients_per_round, n_clients)
    return Poisson(clients_per_round / n_clients)


def _guess(sampler: Sampler, n_clients: int) -> int | None:
    """Return the public guess of the number of clients, where a plan needs one."""
    return None if isinstance(sampler, FixedSize | FullBatch) else n_clients
