"""Simulated federated learning with client-level privacy, in this process or in worker processes.

Example::

    result = simulate(
        nn.Linear(784, 10), Partitioned((X, y), iid(60_000, 1000, generator)),
        loss=nn.CrossEntropyLoss(), local=LocalTraining(0.1, batch_size=10, epochs=5),
        budget=(6.0, 5e-4), rounds=30, clients_per_round=50, clip_norm=0.3, denoiser=LaplacianSmoothing(1.0),
    )
    print(result.guarantee)
"""

import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from torch import nn

from privet.checks import count
from privet.denoise import Denoiser
from privet.deprecation import renamed, renamed_argument
from privet.federated.averaging import AverageWeight
from privet.federated.clients import Clients, Fetching, Partitioned, tensors
from privet.federated.committee.plan import CommitteePlan, committee_plan
from privet.federated.committee.price import RoundPrice
from privet.federated.engines.base import Answer, Engine
from privet.federated.engines.registry import engine_for
from privet.federated.local_training import ClientTrainer, LocalTraining
from privet.federated.plan import RoundsPlan, client_plan, epsilon_after
from privet.federated.results import RoundHistory, RoundReport, RunResult
from privet.federated.server import Server
from privet.networks import Loss, Weights, trained_weights, with_weights
from privet.plans.committee import Committee
from privet.privacy import Adjacency, Assumption, assumed
from privet.privacy.budget import BudgetLike
from privet.privacy.ledger.spending import LedgerLike
from privet.progress import status_bar


@dataclass(frozen=True, kw_only=True)
class FederatedResult(RunResult):
    """The trained model and its guarantee.

    Attributes
    ----------
    model : nn.Module
        A copy of the initial model with the released weights, in eval mode.
    engine : str
        Name of the engine that trained the clients.

    Notes
    -----
    The attributes ``weights``, ``guarantee``, ``history`` and ``plan`` are those of
    :class:`~privet.federated.results.RunResult`.
    """

    model: nn.Module
    engine: str


def simulate(
    model: nn.Module,
    clients: Clients,
    *,
    loss: Loss,
    local: LocalTraining,
    budget: BudgetLike | None = None,
    epsilon: float | None = None,
    delta: float | None = None,
    noise_multiplier: float | None = None,
    rounds: int | None = None,
    clients_per_round: int | None = None,
    clip_norm: float | None = None,
    sampling: str = "poisson",
    plan: RoundsPlan | None = None,
    committee: Committee | None = None,
    denoiser: Denoiser | None = None,
    order: str = "OIHW",
    step_size: float | Callable[[int], float] = 1.0,
    average: AverageWeight | None = None,
    weighting: str = "equal",
    evaluate: Callable[[nn.Module], float] | None = None,
    evaluate_every: int = 1,
    engine: str = "auto",
    workers: int | None = None,
    random_state: int | None = None,
    ledger: LedgerLike | None = None,
    verbose: bool = True,
    progress: Callable[[int, int], None] | None = None,
    save: str | os.PathLike[str] | None = None,
    resume: bool = False,
    seed: int | None = None,
) -> FederatedResult:
    """Train a model over simulated clients, such that the entire data of each client is protected.

    Parameters
    ----------
    model : nn.Module
        The initial global model, which must not depend on the clients' data. It is not modified.
    clients : sequence
        ``clients[i]`` is a tuple of inputs followed by targets. Use :class:`Partitioned` for rows of common arrays, a
        list, or any object that fetches a client on access. Only sampled clients are accessed. A client that is None
        or raises an error has dropped out.
    loss : callable
        ``loss(outputs, targets)`` must return one value per example. The ``reduction`` of a ``torch.nn`` loss is set
        to ``'none'``.
    local : LocalTraining
        How a client trains in a round.
    budget, epsilon, delta, noise_multiplier, rounds, clients_per_round, clip_norm, sampling
        See :func:`client_plan`. The number of clients is ``len(clients)``.
    plan : GradientPlan, CommitteePlan or None
        A plan to use instead of ``budget``, ``epsilon``, ``noise_multiplier``, ``rounds``, ``clients_per_round``,
        ``clip_norm``, ``sampling`` and ``committee``. ``delta`` is then needed only if the plan was made without one.
    committee : Committee or None
        The servers that open the noisy sums, instead of one server that is trusted with all updates. The budget
        holds towards them (see :func:`committee_plan`). The result says what a round costs.
    denoiser, order, step_size, average, weighting
        See :class:`Server`.
    evaluate : callable or None
        Takes the model after a round, in eval mode, and returns a score for the history. It must use **public** data
        only, because a score on clients' data is an additional release that the budget does not cover. See
        :func:`accuracy`.
    evaluate_every : int
        Number of rounds between two evaluations. The last round is always evaluated.
    engine : {"auto", "batched", "batched_processes", "processes", "sequential"}
        How clients are trained: several in one batched computation, such computations in forked worker processes (Linux
        only), one by one in worker processes, or one after another in this process.
        ``"auto"`` chooses by the kind and size of the model. All engines return the same model up to rounding errors.
        Models with random layers, such as dropout, are always trained one client at a time.
    workers : int or None
        Number of worker processes, or of threads with ``engine="batched"``; None uses one per processor. Workers of
        ``engine="batched_processes"`` read the rows of :class:`Partitioned` as they are before the first round.
    random_state : int or None
        An integer makes the run repeatable. The guarantee then holds only while it is secret.
    ledger : path, Ledger or None
        Where all rounds are booked before the first one. See :class:`Server`.
    verbose : bool
        Whether to show a progress bar with rounds, score and epsilon.
    progress : callable or None
        Called as ``progress(rounds_spent, rounds_planned)`` after each round.
    save : path or None
        File to which the run is written after every round.
    resume : bool
        Whether to continue the run in the file ``save``, if the file exists.
    seed : int or None
        Deprecated name of ``random_state``.

    Returns
    -------
    FederatedResult
        Model, guarantee and history.

    Formal guarantees
    -----------------
    The guarantee is that of :class:`Server`, for each client. A sampled client that fails or does not answer counts as
    a zero update, and a warning informs the operator. A round continues even if all its clients fail, because stopping
    would reveal information about them. Whether the model and the loss fit the clients of a :class:`Partitioned` is
    therefore tested before the first round, on examples of zeros or ones.

    A client's update must not depend on other clients. Engines that train one client at a time ensure this. With
    ``engine="batched"`` and ``engine="batched_processes"`` the rounding of an update can depend on the other clients in
    the batch. Training that amplifies rounding errors would amplify this dependence, and the guarantee lists it as
    assumed.
    """
    random_state = renamed_argument("simulate", "seed", seed, "random_state", random_state)
    if isinstance(progress, bool):  # the deprecated name of `verbose`
        renamed("The value True or False of simulate(progress=...)", "verbose")
        verbose, progress = progress, None
    n = len(clients)
    if n == 0:
        raise ValueError("There are no clients. Give a sequence with at least one client.")
    plan_uses_n = plan is None  # the plan is then computed from the number of clients
    amount = {"budget": budget, "epsilon": epsilon, "noise_multiplier": noise_multiplier}
    sizes = {"rounds": rounds, "clients_per_round": clients_per_round, "clip_norm": clip_norm}
    make = client_plan if committee is None else _with_committee(committee, model)
    plan, delta = _plan_and_delta(plan, n, amount, sizes, delta, sampling, make)
    trainer = ClientTrainer(model, loss, local, plan.clip_norm)
    _check_fit(trainer, clients)
    chosen_engine = engine_for(engine, trainer, random_state, workers)
    server = Server(
        plan,
        trained_weights(model),
        n,
        delta=delta,
        denoiser=denoiser,
        order=order,
        step_size=step_size,
        average=average,
        weighting=weighting,
        random_state=random_state,
        ledger=ledger,
        assumptions=_assumptions(chosen_engine, plan_uses_n and plan.adjacency is Adjacency.ADD_OR_REMOVE),
    )
    history = RoundHistory(server, delta, save, resume)
    every = count("evaluate_every", evaluate_every)
    try:
        with status_bar("federated rounds", plan.steps, verbose) as show:
            while not server.is_done:
                _round(server, chosen_engine, clients)
                is_due = evaluate is not None and (server.is_done or server.rounds_done % every == 0)
                history.add(float(evaluate(with_weights(model, server.output))) if evaluate and is_due else None)
                if verbose:
                    show(server.rounds_spent, _bar_text(history.reports))
                if progress is not None:
                    progress(server.rounds_spent, plan.steps)
    finally:
        chosen_engine.close()
        server.close()
    weights = server.output
    return FederatedResult(
        model=with_weights(model, weights),
        weights=weights,
        guarantee=server.guarantee,
        history=tuple(history.reports),
        plan=plan,
        outsiders=server.outsiders,
        price=RoundPrice.of(plan) if isinstance(plan, CommitteePlan) else None,
        engine=chosen_engine.name,
    )


def _with_committee(committee: Committee, model: nn.Module) -> Callable[..., CommitteePlan]:
    """Return the function that makes plans for rounds with a committee."""
    dimension = sum(layer.size for layer in trained_weights(model).values())
    return partial(committee_plan, committee=committee, dimension=dimension)


def _plan_and_delta(
    plan: RoundsPlan | None,
    n: int,
    amount: dict[str, Any],
    sizes: dict[str, Any],
    delta: float | None,
    sampling: str,
    make: Callable[..., RoundsPlan],
) -> tuple[RoundsPlan, float]:
    """Return the given plan, or the one made for the budget or the noise, with its delta."""
    if plan is not None:
        given = [name for name, value in (sizes | amount).items() if value is not None]
        given += [] if make is client_plan else ["committee"]
        if given:
            raise ValueError(f"The plan already determines {', '.join(given)}. Leave out either these or the plan.")
        delta = plan.delta if delta is None else delta
        if delta is None:
            raise ValueError("The plan has no delta. Give delta=, or make the plan with client_plan().")
        return plan, delta
    missing = [name for name, value in sizes.items() if value is None]
    if all(value is None for value in amount.values()):
        missing.append("budget (or epsilon and delta, or noise_multiplier)")
    if missing:
        raise ValueError(f"Without a plan, simulate() also needs {', '.join(missing)}.")
    made = make(n_clients=n, delta=delta, sampling=sampling, **amount, **sizes)
    assert made.delta is not None
    return made, made.delta


def _assumptions(engine: Engine, uses_n: bool) -> list[Assumption]:
    """Return the assumptions of a run. They are published, so they must not depend on the number of clients.

    ``uses_n`` says whether the plan was computed from the number of clients, under add-or-remove adjacency.
    """
    found = []
    if uses_n:
        found.append(assumed("the number of clients, which determines the sampling rate and the divisor, is public"))
    if not engine.isolates_clients:
        found.append(
            assumed(
                "local training does not amplify rounding errors, which depend on the other clients in a batch "
                '(engine="sequential" and engine="processes" avoid this assumption)'
            )
        )
    return found


def _round(server: Server, engine: Engine, clients: Clients) -> None:
    """Sample the clients of a round, train them, and aggregate their updates."""
    chosen = [int(client) for client in server.sample()]
    answers = engine.answers(server.weights, server.rounds_done, chosen, Fetching(clients, engine.trainer.kind))
    server.aggregate(_without_errors(answers))


def _check_fit(trainer: ClientTrainer, clients: Clients) -> None:
    """Raise if the model or the loss fails on examples like those of the clients.

    The check sees zeros, or ones if classes are numbered from 1. All clients have these shapes in common, so the
    outcome does not depend on their data. For clients of unknown shapes there is no such check.
    """
    if type(clients) is not Partitioned:
        return
    errors = []
    for value in (0, 1):
        try:
            example = tensors(clients.transformed(clients.blank(2, value)), trainer.kind)
            if example is not None:
                trainer.check(example)
        except Exception as error:
            errors.append(error)
        else:
            return
    raise RuntimeError(
        "The model or the loss cannot be applied to the clients' data: examples of zeros with the same shapes fail "
        f"with {errors[0]!r}, and examples of ones fail, too. Nothing was released."
    ) from errors[0]


def _without_errors(answers: Iterator[Answer]) -> Iterator[tuple[int, Weights | None]]:
    """Yield each client's answer, or None if the client failed. Warn if all clients fail."""
    errors: list[Exception] = []
    others = 0
    for client, answer in answers:
        if isinstance(answer, Exception):
            errors.append(answer)
            yield client, None
        else:
            others += 1
            yield client, answer
    if errors and not others:
        warnings.warn(
            f"All {len(errors)} clients of a round failed. The first error was {errors[0]!r}. If the model or the loss "
            "does not fit the clients' data, stop the run: further rounds would spend the budget on noise.",
            stacklevel=4,
        )


def _bar_text(reports: list[RoundReport]) -> str:
    scores = [report.score for report in reports if report.score is not None]
    score = f"score {scores[-1]:.4g}, " if scores else ""
    last = reports[-1]
    # Accounting can take longer than training. The rounds spent are therefore rounded up to tenths of the planned
    # rounds, so that epsilon is computed for at most ten different numbers.
    block = math.ceil(last.plan.steps / 10)
    spent = min(last.plan.steps, math.ceil(last.spent / block) * block)
    return f"{score}epsilon {epsilon_after(last.plan, spent, last.delta):.3g}"
