"""Federated learning with client-level privacy, all in this process or in its workers.

result = simulate(
    nn.Linear(784, 10), Partitioned((X, y), iid(60_000, 1000, generator)),
    loss=nn.CrossEntropyLoss(), local=LocalTraining(0.1, batch_size=10, epochs=5),
    budget=Budget(6.0, 5e-4), rounds=30, clients_per_round=50, clip_norm=0.3, denoiser=LaplacianSmoothing(1.0),
)
print(result.guarantee)
"""

import math
import os
import warnings
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from privet.checks import count
from privet.denoise import Denoiser
from privet.federated.averaging import AverageWeight
from privet.federated.clients import Clients, Fetching
from privet.federated.engines.base import Answer, Engine
from privet.federated.engines.registry import engine_for
from privet.federated.local_training import ClientTrainer, LocalTraining
from privet.federated.plan import client_plan, epsilon_after
from privet.federated.server import Server
from privet.networks import Loss, Weights, trained_weights, with_weights
from privet.plans import GradientPlan
from privet.privacy import Adjacency, Assumption, Budget, Guarantee, assumed
from privet.progress import telling_bar


@dataclass(frozen=True)
class RoundReport:
    """What became of one round: public facts only.

    Attributes
    ----------
    number : int
        Rounds done.
    score : float or None
        What ``evaluate`` returned, if it was asked.
    spent : int
        Rounds spent: more than ``number`` after a crash.
    """

    number: int
    score: float | None
    spent: int
    plan: GradientPlan = field(repr=False)
    delta: float = field(repr=False)

    @property
    def epsilon(self) -> float:
        """What was spent so far; computed when it is asked for, since accounting takes its time."""
        return epsilon_after(self.plan, self.spent, self.delta)


@dataclass(frozen=True)
class FederatedResult:
    """The trained model and its guarantee.

    Attributes
    ----------
    model : nn.Module
        A copy of the given model with the weights that the output rule makes, in eval mode.
    weights : dict of arrays
        The same as arrays, in the server's precision.
    guarantee : Guarantee
        For each client, of all global models.
    history : tuple of RoundReport
        One a round.
    plan : GradientPlan
        Sampling, bound, noise and rounds.
    engine : str
        How clients were trained.
    """

    model: nn.Module
    weights: Weights
    guarantee: Guarantee
    history: tuple[RoundReport, ...]
    plan: GradientPlan
    engine: str


def simulate(
    model: nn.Module,
    clients: Clients,
    *,
    loss: Loss,
    local: LocalTraining,
    budget: Budget | None = None,
    rounds: int | None = None,
    clients_per_round: int | None = None,
    clip_norm: float | None = None,
    sampling: str = "poisson",
    plan: GradientPlan | None = None,
    delta: float | None = None,
    denoiser: Denoiser | None = None,
    order: str = "OIHW",
    step_size: float | Callable[[int], float] = 1.0,
    average: AverageWeight | None = None,
    weighting: str = "equal",
    evaluate: Callable[[nn.Module], float] | None = None,
    evaluate_every: int = 1,
    engine: str = "auto",
    workers: int | None = None,
    seed: int | None = None,
    progress: bool = True,
    save: str | os.PathLike[str] | None = None,
    resume: bool = False,
) -> FederatedResult:
    """Train a model over clients, each client's whole data protected.

    Parameters
    ----------
    model : nn.Module
        The first global model, which owes nothing to the clients' data. It is left as it is.
    clients : sequence
        ``clients[i]`` is a tuple of inputs and, last, targets: :class:`Partitioned` over common arrays, a list, or
        anything that fetches a client when it is asked. Only sampled clients are asked. None, or an error, is a
        client that dropped out.
    loss : callable
        ``loss(outputs, targets)`` with one number an example; a ``torch.nn`` loss is told to make no average.
    local : LocalTraining
        What a client does in a round.
    budget, rounds, clients_per_round, clip_norm, sampling
        Of :func:`client_plan`, with the number of clients at hand.
    plan, delta : GradientPlan, float
        In the place of those: a plan that is made already.
    denoiser, order, step_size, average, weighting
        Of :class:`Server`.
    evaluate : callable or None
        Given the model after a round, in eval mode, returns its score for the history, on **public** data: a score on
        clients' data is a release of its own, for which nothing here pays. See :func:`accuracy`.
    evaluate_every : int
        How often; always after the last round.
    engine : {"auto", "batched", "processes", "sequential"}
        How clients are trained: many at once, in worker processes, or one after the other. ``auto`` chooses by the
        number of parameters. All give the same, up to rounding, for models that draw nothing (no dropout).
    workers : int or None
        How many worker processes; None takes one a processor.
    seed : int or None
        Makes a run repeatable; the guarantee then holds only while it is secret.
    progress : bool
        Show a bar with rounds, score and epsilon.
    save : path or None
        Write the run there after every round.
    resume : bool
        Go on from the file ``save``, if it is there.

    Returns
    -------
    FederatedResult
        Model, guarantee and history.

    Formal guarantees
    -----------------
    Those of :class:`Server`, for each client: an error or a missing answer of a sampled client counts as a zero
    update. If all clients of the first round fail, their error is raised: the program is at fault, and nothing is
    released. Later rounds go on whoever fails: to stop would tell about the clients, and what was released before
    cannot be taken back.

    A client's update must owe nothing to the other clients. Engines that train one client at a time see to that. In
    stacked models ("batched") only rounding can depend on who is beside a client; training that blows up rounding
    errors would pass it on, and the guarantee names this as assumed.
    """
    n = len(clients)
    if n == 0:
        raise ValueError("there are no clients: give a sequence of one at least")
    is_made_of_n = plan is None
    plan, delta = _settled(plan, delta, n, budget, rounds, clients_per_round, clip_norm, sampling)
    trainer = ClientTrainer(model, loss, local, plan.clip_norm)
    chosen_engine = engine_for(engine, trainer, seed, workers)
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
        seed=seed,
        assumptions=_assumptions(chosen_engine, is_made_of_n and plan.adjacency is Adjacency.ADD_OR_REMOVE),
    )
    history = [RoundReport(*saved, plan, delta) for saved in _taken_up(server, save, resume)]
    every = count("evaluate_every", evaluate_every)
    try:
        with telling_bar("federated rounds", plan.steps, progress) as tell:
            while not server.is_done:
                _round(server, chosen_engine, clients)
                is_due = evaluate is not None and (server.is_done or server.rounds_done % every == 0)
                score = float(evaluate(with_weights(model, server.output))) if evaluate and is_due else None
                history.append(RoundReport(server.rounds_done, score, server.rounds_spent, plan, delta))
                if save is not None:
                    server.save(save, [[report.number, report.score, report.spent] for report in history])
                if progress:
                    tell(server.rounds_spent, _in_words(history))
    finally:
        chosen_engine.close()
        server.close()
    weights = server.output
    return FederatedResult(
        with_weights(model, weights), weights, server.guarantee, tuple(history), plan, chosen_engine.name
    )


def accuracy(inputs: Any, targets: Any, batch_size: int = 10_000) -> Callable[[nn.Module], float]:
    """Return a function for ``evaluate``: the share of examples whose largest output is at their label."""
    X, y = torch.as_tensor(inputs), torch.as_tensor(targets)

    def score(model: nn.Module) -> float:
        kind = next(model.parameters()).dtype
        with torch.no_grad():
            right = [
                _right(model, part.to(kind) if part.is_floating_point() else part, y[start : start + batch_size])
                for start, part in ((at, X[at : at + batch_size]) for at in range(0, len(X), batch_size))
            ]
        return sum(right) / len(X)

    return score


def _right(model: nn.Module, X: Tensor, y: Tensor) -> int:
    return int((model(X).argmax(1) == y).sum())


def _settled(
    plan: GradientPlan | None,
    delta: float | None,
    n: int,
    budget: Budget | None,
    rounds: int | None,
    clients_per_round: int | None,
    clip_norm: float | None,
    sampling: str,
) -> tuple[GradientPlan, float]:
    """Return the plan that was given, or the one that is made for the budget; and the delta."""
    named = {"rounds": rounds, "clients_per_round": clients_per_round, "clip_norm": clip_norm, "budget": budget}
    if plan is not None:
        if delta is None or any(value is not None for value in named.values()):
            raise ValueError(f"a plan comes with a delta, and has its own {', '.join(named)}: leave those out")
        return plan, delta
    missing = [name for name, value in named.items() if value is None]
    if budget is None or rounds is None or clients_per_round is None or clip_norm is None:
        raise ValueError(f"give a plan, or {', '.join(named)}: {', '.join(missing)} missing")
    made = client_plan(
        budget,
        n_clients=n,
        clients_per_round=clients_per_round,
        rounds=rounds,
        clip_norm=clip_norm,
        sampling=sampling,
    )
    return made, budget.delta


def _assumptions(engine: Engine, is_made_of_n: bool) -> list[Assumption]:
    """Return what the caller vouches for. It must not depend on the number of clients: a guarantee is published."""
    found = []
    if is_made_of_n:
        found.append(assumed("the number of clients, from which the rate and the divisor are made, is public"))
    if not engine.keeps_apart:
        found.append(
            assumed(
                "local training does not blow up rounding errors, which in clients that train together depend on one "
                'another (engine="sequential" and "processes" keep clients apart)'
            )
        )
    return found


def _taken_up(server: Server, save: str | os.PathLike[str] | None, resume: bool) -> list[tuple[int, float | None, int]]:
    """Begin the files of a run, or go on from them; return what there is to report so far."""
    if save is None:
        if resume:
            raise ValueError("resume=True goes on from the file that save= names: give one")
        return []
    if Path(save).exists():
        if not resume:
            raise ValueError(f"{save} holds a run already: go on with it by resume=True, or give another name")
        return [(number, score, spent) for number, score, spent in server.resume(save)]
    server.save(save, [])  # from here on a journal counts the rounds
    return []


def _round(server: Server, engine: Engine, clients: Clients) -> None:
    """Make one round."""
    chosen = [int(client) for client in server.sample()]
    answers = engine.answers(server.weights, server.rounds_done, chosen, Fetching(clients, engine.trainer.kind))
    server.aggregate(_without_errors(answers, is_first=server.rounds_spent == 0))


def _without_errors(answers: Iterator[Answer], is_first: bool) -> Iterator[tuple[int, Weights | None]]:
    """Yield answers, None for those that are errors; if all are, raise in the first round, and else tell."""
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
        cause = f"all {len(errors)} clients of a round failed; the first: {errors[0]!r}"
        if is_first:
            raise RuntimeError(cause) from errors[0]
        warnings.warn(cause, stacklevel=4)


def _in_words(history: list[RoundReport]) -> str:
    scores = [report.score for report in history if report.score is not None]
    score = f"score {scores[-1]:.4g}, " if scores else ""
    last = history[-1]
    block = math.ceil(last.plan.steps / 10)  # rounded up to the next of ten places, lest accounting outlast training
    spent = min(last.plan.steps, math.ceil(last.spent / block) * block)
    return f"{score}epsilon {epsilon_after(last.plan, spent, last.delta):.3g}"
