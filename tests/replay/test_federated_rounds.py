"""Replays of federated rounds, in which a client is replaced, added or removed, with every engine of the package.

Correct rounds are never refuted, whatever the client sends. Planted bugs are found in one replay.
"""

import pkgutil
import warnings
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="Federated rounds need torch: install the extra deep")
from torch import nn  # noqa: E402

from privet.audit import replay  # noqa: E402
from privet.denoise import LaplacianSmoothing  # noqa: E402
from privet.federated import (  # noqa: E402
    ClientTrainer,
    LocalTraining,
    Partitioned,
    Server,
    accuracy,
    engines,
    simulate,
    simulation,
    tail,
    trained_weights,
)
from privet.federated import updates as updating  # noqa: E402
from privet.federated.engines.base import Engine  # noqa: E402
from privet.federated.engines.registry import ENGINES, engine_for  # noqa: E402
from privet.federated.updates import UpdateSum  # noqa: E402
from privet.plans import FixedSize, FullBatch, GradientPlan, Poisson  # noqa: E402

DELTA, CLIP, CLIENTS, CHANGED = 1e-5, 0.5, 6, 2
LOCAL = LocalTraining(0.5, batch_size=2, epochs=2)
EVERYBODY = GradientPlan(FullBatch(), 2, CLIP, 1.0)
SOME = GradientPlan(FixedSize(3, CLIENTS), 3, CLIP, 1.0)
ANYBODY = GradientPlan(Poisson(0.5), 3, CLIP, 1.0, public_n=CLIENTS)  # add or remove


def example(seed, n=3):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(n, 4, generator=generator), torch.randint(3, (n,), generator=generator)


FLEET: list[Any] = [example(seed) for seed in range(CLIENTS)]
X, y = FLEET[CHANGED]
OTHERS = {
    "another": example(9),
    "more examples": example(9, n=17),
    "no examples": example(9, n=0),
    "huge": (torch.full_like(X, 1e22), y),
    "overflowing": (torch.full_like(X, 3e38), y),
    "subnormal": (torch.full_like(X, 1e-42), y),
    "negative zeros": (torch.full_like(X, -0.0), y),
    "duplicates": (X[:1].expand(3, 4), y[:1].expand(3)),
    "missing values": (torch.full_like(X, torch.nan), y),
    "unknown labels": (X, torch.full_like(y, 77)),
    "other shapes": (torch.zeros(3, 9), y),
    "gone": None,
}


def replaced(by: Any) -> list[Any]:
    return [*FLEET[:CHANGED], by, *FLEET[CHANGED + 1 :]]


REMOVED = [*FLEET[:CHANGED], *FLEET[CHANGED + 1 :]]


def network() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 3), nn.Tanh(), nn.Linear(3, 3))


def all_engines() -> set[type[Engine]]:
    """Return the engine and all engines derived from it, in all modules of their package."""
    for module in pkgutil.iter_modules(engines.__path__, f"{engines.__name__}."):
        import_module(module.name)
    found, waiting = set(), [Engine]
    while waiting:
        found.add(kind := waiting.pop())
        waiting += kind.__subclasses__()
    return found


@pytest.fixture(scope="module", params=sorted(kind.name for kind in all_engines()))
def engine(request):
    """Return an engine that all replays share, because worker processes take seconds to start."""
    made = engine_for(request.param, ClientTrainer(network(), nn.CrossEntropyLoss(), LOCAL, CLIP), None, workers=1)
    yield made
    made.close()


def rounds(engine: Engine, plan: GradientPlan) -> Callable[[Any], Any]:
    def train(clients):
        server = Server(plan, trained_weights(engine.trainer.model), len(clients), delta=DELTA)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about clients that failed
            while not server.is_done:
                simulation._round(server, engine, clients)
        return server, server.guarantee, server.output

    return train


def simulated(plan: GradientPlan = EVERYBODY, model: nn.Module | None = None, **options: Any) -> Callable[[Any], Any]:
    model = network() if model is None else model

    def train(clients):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return simulate(
                model,
                clients,
                **{"loss": nn.CrossEntropyLoss(), "local": LOCAL, "engine": "sequential"} | options,
                plan=plan,
                delta=DELTA,
                verbose=False,
            )

    return train


# ------------------------------------------------------------------------------------------------------- correct rounds


def test_every_engine_is_replayed():
    assert {kind.name for kind in all_engines()} == set(ENGINES) - {"auto"}


def test_a_client_that_is_replaced_moves_each_sum_within_the_bound(engine):
    for name, other in OTHERS.items():
        found = replay(rounds(engine, EVERYBODY), FLEET, replaced(other))
        assert not found.is_violation, (name, found)
        assert found.moved == 2, name
    assert not replay(rounds(engine, SOME), FLEET, replaced(OTHERS["huge"])).is_violation


def test_a_client_that_is_added_or_removed_moves_the_sums_of_its_rounds_only(engine):
    for pair in ((FLEET, REMOVED), (REMOVED, FLEET)):
        found = replay(rounds(engine, ANYBODY), *pair)
        assert not found.is_violation, found
        assert 2 <= found.moved <= 3  # The replay puts it into two of the three batches.


@pytest.mark.parametrize("engine", ["sequential", "batched"])
def test_random_layers_of_one_client_do_not_depend_on_another(engine):
    """With one generator for all, a client with more examples would change the dropout of those after it."""
    model = nn.Sequential(nn.Linear(4, 6), nn.Dropout(0.5), nn.Linear(6, 3))
    found = replay(simulated(model=model, engine=engine), FLEET, replaced(OTHERS["more examples"]))
    assert not found.is_violation, found


@pytest.mark.parametrize(("plan", "other"), [(SOME, replaced(OTHERS["huge"])), (ANYBODY, REMOVED)])
def test_a_simulation_leaves_nothing_else_behind(plan, other, tmp_path):
    """This includes its files, scores on public data, and everything that can be reached from its result."""
    options = {
        "engine": "auto",
        "denoiser": LaplacianSmoothing(1.0),
        "local": LocalTraining(0.5, batch_size=2, epochs=1, denoiser=LaplacianSmoothing(1.0)),
        "average": tail(3),
        "evaluate": accuracy(*example(11)),
        "save": tmp_path / "run",
    }
    found = replay(simulated(plan, **options), FLEET, other, folder=tmp_path)
    assert not found.is_violation, found
    assert found.releases == 3


def test_rows_of_common_arrays_can_be_replayed():
    X, y = (torch.cat(parts) for parts in zip(*FLEET, strict=True))
    parts = np.arange(3 * CLIENTS).reshape(CLIENTS, 3)
    fleets = [
        Partitioned((X * sign, y), parts)
        for sign in (torch.ones(len(X), 1), 1 - 2.0 * (torch.arange(len(X)) < 3)[:, None])
    ]
    found = replay(simulated(), *fleets)
    assert not found.is_violation, found
    assert found.moved == 2


def summed(updates):
    """Make rounds in which the clients send the same updates whatever the model is."""
    server = Server(EVERYBODY, {"layer": np.zeros(4)}, len(updates), delta=DELTA)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        while not server.is_done:
            server.aggregate({client: updates[client] for client in server.sample().tolist()})
    return server, server.guarantee


def sent(*values: float) -> list[Any]:
    return [{"layer": np.full(4, value)} for value in values]


@pytest.mark.parametrize("value", [0.0, 1e300, -1e22, 5e-324, -0.0, np.nan, np.inf])
def test_whatever_a_client_sends_moves_each_sum_within_the_bound(value):
    found = replay(summed, sent(3.0, 1e22, -1.0), sent(3.0, value, -1.0))
    assert not found.is_violation, found


# --------------------------------------------------------------------------------------------------------- planted bugs


def test_clipping_in_the_wrong_norm_is_found(monkeypatch):
    """If each entry is clipped by itself, a sum of four moves twice as far."""
    monkeypatch.setattr(updating, "clipped", lambda vector, clip_norm: np.clip(vector, -clip_norm, clip_norm))
    found = replay(summed, sent(3.0, 1e22, -1.0), sent(3.0, -1e22, -1.0))
    assert "moved by 1.99998 times the bound of 1" in found.verdict


class Centred(nn.Module):
    """A layer behind a running mean, which a forward pass writes into a buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.Linear(4, 3)
        self.register_buffer("mean", torch.zeros(4))

    def forward(self, X):
        self.mean.mul_(0.5).add_(0.5 * X.detach().mean(0))
        return self.layer(X - self.mean)


def buffers_passed_on_to_the_next_client(patch):
    def objective(self, parameters, inputs, targets):
        return self.loss(torch.func.functional_call(self.model, {**parameters, **self._fixed}, inputs), targets)

    patch.setattr(ClientTrainer, "objective", objective)


def one_generator_for_the_random_layers_of_all_clients(patch):
    patch.setattr(ClientTrainer, "update", ClientTrainer._trained)


def clients_weighed_by_their_examples(patch):
    update, add, last = ClientTrainer.update, UpdateSum.add, {}

    def counted(self, weights, data, *rest):
        last["examples"] = len(data[-1])
        return update(self, weights, data, *rest)

    def weighed(self, vector):
        bound, self._bound = self._bound, self._bound * last["examples"] / 3
        add(self, vector * last["examples"] / 3)
        self._bound = bound

    patch.setattr(ClientTrainer, "update", counted)
    patch.setattr(UpdateSum, "add", weighed)


def divided_by_the_number_of_answers(patch):
    add, answers = UpdateSum.add, []

    def counted(self, vector):
        answers.append(1)
        add(self, vector)

    patch.setattr(UpdateSum, "add", counted)
    patch.setattr(GradientPlan, "divisor", lambda plan, n: len(answers) or 1)


def stopped_if_all_clients_fail(patch):
    without_errors = simulation._without_errors

    def stopping(answers):
        found = list(without_errors(answers))
        if all(answer is None for _, answer in found):
            raise RuntimeError("All clients failed.")
        return iter(found)

    patch.setattr(simulation, "_without_errors", stopping)


ONE_LEFT: list[Any] = [FLEET[CHANGED] if place == CHANGED else None for place in range(CLIENTS)]
HUGE = OTHERS["huge"]
LONG = example(9, n=17)
BUGS = [
    (buffers_passed_on_to_the_next_client, (FLEET, replaced(HUGE)), "times the bound", {"model": Centred()}),
    (
        one_generator_for_the_random_layers_of_all_clients,
        (FLEET, replaced(LONG)),
        "times the bound",
        {"model": nn.Sequential(nn.Dropout(0.5), nn.Linear(4, 3))},
    ),
    (clients_weighed_by_their_examples, (FLEET, replaced(LONG)), "times the bound", {}),
    (divided_by_the_number_of_answers, (FLEET, replaced(None)), "weights", {}),
    (stopped_if_all_clients_fail, (ONE_LEFT, [None] * CLIENTS), "RuntimeError: All clients failed", {}),
]


@pytest.mark.parametrize(("bug", "pair", "message", "options"), BUGS, ids=[bug[0].__name__ for bug in BUGS])
def test_a_planted_bug_is_found_and_the_correct_rounds_are_not_refuted(bug, pair, message, options, monkeypatch):
    # Every step is long, so that clipping matters.
    options = {"local": LocalTraining(50.0, batch_size=2, epochs=2), **options}
    found = replay(simulated(**options), *pair)
    assert not found.is_violation, found
    bug(monkeypatch)
    found = replay(simulated(**options), *pair)
    assert found.is_violation
    assert message in "\n".join(found.problems), found
