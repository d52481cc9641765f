"""Audits of federated rounds, whose unit is a client: servers with tiny updates, and simulations of one weight.

Attackers see every global model, and look at the change of the model in each round. Clients send anything: updates
within the clipping norm or far beyond it, NaN, or nothing. They send the same in every round, whatever the model is, so
rounds are independent. One long training can therefore be split into as many short ones as an audit needs, and each of
them is compared with the guarantee of a short training.
"""

import inspect
import pkgutil
import warnings
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from typing import Any
from weakref import WeakKeyDictionary

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scenarios import BUDGET, CLIP, DELTA, LAX, SAMPLED, Key, Scenario
from torch import nn

from privet import federated
from privet.denoise import LaplacianSmoothing
from privet.federated import (
    Committee,
    CommitteePlan,
    FederatedResult,
    LocalTraining,
    Server,
    client_plan,
    committee_plan,
    simulate,
    tail,
)
from privet.plans import FixedSize, FullBatch, GradientPlan, Poisson
from privet.privacy import Adjacency, Budget, Guarantee, NoiseSource
from privet.privacy.events import GaussianRelease, NearlyGaussian

Update = dict[str, NDArray[Any]] | None
Clients = Sequence[Update]
"""The answer of each client, the same in every round."""

Outputs = Callable[[Any, NoiseSource, int], NDArray[Any]]

FAR = 1e4
START = 1e6
OVER_A_NETWORK = {"PrivateStrategy"}  # it drives the same Server, which is audited here

# ------------------------------------------------------------------------------------------------- what must be audited


def modules() -> list[Any]:
    """Return all modules of the package, those of Flower and of real servers only if they can be imported."""
    names = [each.name for each in pkgutil.walk_packages(federated.__path__, f"{federated.__name__}.", onerror=_later)]
    extras = {".flower": "flwr", ".committee.roles": "mpyc"}
    missing = [part for part, needed in extras.items() if not find_spec(needed)]
    return [import_module(name) for name in names if not any(part in name for part in missing)]


def _later(name: str) -> None:
    """Ignore a package that cannot be imported. :func:`modules` imports it if it is needed."""


def trainings_of(found: Iterable[Any]) -> set[Key]:
    """Return the public functions whose result has a guarantee, and the public classes with a guarantee.

    A class is also included if one of its methods returns such a result.
    """
    return {
        (name,)
        for module in found
        for name, entry in vars(module).items()
        if getattr(entry, "__module__", None) == module.__name__ and not name.startswith("_")
        if (_is_training_class(entry) if inspect.isclass(entry) else _returns_guarantee(entry))
    }


def _is_training_class(kind: type) -> bool:
    is_promising = isinstance(vars(kind).get("guarantee"), property)
    return is_promising or any(_returns_guarantee(method) for name, method in vars(kind).items() if name[0] != "_")


def _returns_guarantee(function: Any) -> bool:
    if not inspect.isfunction(function):
        return False
    result = function.__annotations__.get("return")
    if isinstance(result, str):  # raises if a result is imported for type checks only, so that none is missed
        result = eval(result, function.__globals__)
    # The guarantee may be a field of a base class.
    bases = inspect.getmro(result) if inspect.isclass(result) else ()
    return any(inspect.get_annotations(base, eval_str=True).get("guarantee") is Guarantee for base in bases)


def required() -> set[Key]:
    """Return everything in the package that trains over clients."""
    return trainings_of(modules()) - {(name,) for name in OVER_A_NETWORK}


# -------------------------------------------------------------------------------------------------------------- clients


def pull(size: float, d: int = 1, where: int | None = 0) -> dict[str, NDArray[Any]]:
    """Return an update of one layer with the given entry in one coordinate, or in all."""
    layer = np.zeros(d)
    layer[slice(None) if where is None else where] = size
    return {"layer": layer}


def one_more(clients: Clients, added: Update) -> tuple[Clients, Clients]:
    """Return the clients without and with an additional one."""
    return tuple(clients), (*clients, added)


def against(others: int, d: int = 1) -> tuple[Clients, Clients]:
    """Return the pair of docs/errata.md (k): all clients send a huge update, the additional one its opposite."""
    return one_more([pull(FAR, d)] * others, pull(-FAR, d))


# -------------------------------------------------------------------------------------------------------------- servers


@dataclass(frozen=True)
class Rounds:
    """Rounds of a server over clients that send the same answer in every round.

    ``answers`` takes all clients and the sampled ones, and returns the answers of a round. ``seen`` takes the changes
    of the model in a run, an array of shape (rounds, parameters), and returns what the attacker looks at.
    """

    plan: GradientPlan | CommitteePlan
    pair: tuple[Clients, Clients]
    delta: float = DELTA
    options: dict[str, Any] = field(default_factory=dict)
    answers: Callable[[int, Clients, list[int]], Any] = lambda rounds_done, clients, drawn: {
        client: clients[client] for client in drawn
    }
    seen: Callable[[NDArray[Any]], ArrayLike] = np.ravel

    def server(self, clients: Clients, seed: int, runs: int = 1) -> Server:
        """Return a server before its first round, for the given number of consecutive runs."""
        first = {name: np.zeros_like(layer) for name, layer in _model(self.pair).items()}
        plan = longer(self.plan, runs)
        return Server(plan, first, len(clients), delta=self.delta, random_state=seed, **self.options)

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one run."""
        return as_gaussian(self.server(self.pair[0], 0).guarantee)

    def outputs(self, clients: Clients, source: NoiseSource, runs: int) -> NDArray[Any]:
        """Return what the attacker sees, one row per run."""
        server = self.server(clients, source.below(10**15), runs)
        models = [vector(server)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about clients that did not answer
            while not server.is_done:
                models.append(self.next_model(server, clients))
        moves = np.diff(models, axis=0).reshape(runs, self.plan.steps, -1)
        return np.array([np.ravel(self.seen(run)) for run in moves])

    def next_model(self, server: Server, clients: Clients) -> NDArray[Any]:
        """Run one round, and return the global model."""
        drawn = [int(client) for client in server.sample()]
        server.aggregate(self.answers(server.rounds_done % self.plan.steps, clients, drawn))
        return vector(server)


def averaged(clients: Clients, source: NoiseSource, *, plan: GradientPlan) -> NDArray[Any]:
    """Return the average of all global models of one run, as the only output."""
    rounds = Rounds(plan, (clients, clients), options={"average": tail(plan.steps, 1.0)})
    server = rounds.server(clients, source.below(10**15))
    while not server.is_done:
        rounds.next_model(server, clients)
    return server.output["layer"]


def one_by_one(outputs: Outputs, at_once: int) -> Callable[[Any, NoiseSource], NDArray[Any]]:
    """Return a mechanism that returns single runs, but computes many at a time."""
    kept: WeakKeyDictionary[NoiseSource, dict[int, list[NDArray[Any]]]] = WeakKeyDictionary()

    def mechanism(clients: Any, source: NoiseSource) -> NDArray[Any]:
        waiting = kept.setdefault(source, {}).setdefault(id(clients), [])
        if not waiting:
            waiting.extend(outputs(clients, source, at_once))
        return waiting.pop()

    mechanism.single_run = lambda clients, source: outputs(clients, source, 1)  # type: ignore[attr-defined]
    return mechanism


def vector(server: Server) -> NDArray[Any]:
    """Return the global model of a server as one vector."""
    return np.concatenate([layer.ravel() for layer in server.weights.values()])


def _model(pair: tuple[Clients, Clients]) -> dict[str, NDArray[Any]]:
    """Return an update with the right shapes. Clients may send other shapes."""
    return next(update for clients in pair for update in clients if update is not None)


def as_gaussian(guarantee: Guarantee) -> Guarantee:
    """Return the claim of a committee in a form that few runs can test, that of a Gaussian; all others as they are."""
    event = guarantee.event
    if not isinstance(event, NearlyGaussian):
        return guarantee
    assert event.distance < 1e-6  # too small to be seen in thousands of runs
    return replace(guarantee, event=GaussianRelease(event.mu))


def longer(plan: GradientPlan | CommitteePlan, runs: int) -> GradientPlan | CommitteePlan:
    """Return the plan of consecutive runs."""
    if isinstance(plan, CommitteePlan):
        return replace(plan, sums=replace(plan.sums, steps=runs * plan.steps))
    return replace(plan, steps=runs * plan.steps)


def with_committee(trust: str, servers: int, rounds: int = 1) -> CommitteePlan:
    """Return a plan of rounds in which two clients take part, and a committee adds the noise."""
    sizes = {"n_clients": 2, "clients_per_round": 2, "rounds": rounds, "clip_norm": CLIP, "dimension": 1}
    return committee_plan(BUDGET, **sizes, committee=Committee(trust, servers), sampling="uniform")


ADDED: dict[str, Any] = {"adjacency": Adjacency.ADD_OR_REMOVE, "public_n": 2}


def everybody(budget: Budget = BUDGET, rounds: int = 1, **options: Any) -> GradientPlan:
    """Return a plan of rounds in which all clients take part, under replace-one adjacency by default."""
    return GradientPlan.for_budget(budget, sampler=FullBatch(), steps=rounds, clip_norm=CLIP, **options)


def _server(variant: str, rounds: Rounds, share: float, why: str = "", runs: int = 400) -> Scenario:
    name = Server.__name__
    mechanism = one_by_one(rounds.outputs, runs)
    return Scenario((name,), f"{name}, {variant}", mechanism, rounds.pair, rounds.guarantee, share, why, runs)


UNSEEN = "so few runs reveal almost nothing about so small an epsilon"
BOTH = "the attacker knows the noise of neither server, so the noise is sqrt(2) times what the guarantee counts"
HALF = "a client without a valid update counts as zero, which is half the largest possible distance"


def _everybody_takes_part() -> list[Scenario]:
    silent = pull(0.0)
    opposite = (pull(FAR), silent), (pull(-FAR), silent)
    nobody, alone = (None,), (pull(FAR),)
    spread_out = {f"layer {place}": np.full((2, 2), 1e300) for place in range(4)}
    two_far = one_more([{name: 0 * layer for name, layer in spread_out.items()}] * 2, spread_out)
    smooth = {"denoiser": LaplacianSmoothing(2.0)}
    four, large = everybody(rounds=4), everybody(Budget(12.0, DELTA))
    wide = one_more([pull(0.0, 4)], pull(FAR, 4, None))
    return [
        _server("one more client", Rounds(everybody(rounds=3, **ADDED), one_more([silent] * 2, pull(FAR))), 0.7),
        _server("one client replaced", Rounds(everybody(rounds=3), opposite), 0.7),
        _server("a committee with an honest majority", Rounds(with_committee("majority", 3, 3), opposite), 0.7),
        _server("a committee with one honest server", Rounds(with_committee("one", 2), opposite), 0.4, BOTH),
        _server("one client, present or absent", Rounds(everybody(**ADDED | {"public_n": 1}), (nobody, alone)), 0.7),
        _server("huge layers", Rounds(everybody(**ADDED), two_far, seen=_all_alike), 0.7),
        _server("NaN", Rounds(large, (opposite[0], (pull(np.nan), silent))), 0.3, HALF),
        _server("no answer", Rounds(large, (opposite[0], (None, silent))), 0.3, HALF),
        _server("epsilon 12", Rounds(large, opposite), 0.6),
        _server("epsilon 0.1", Rounds(everybody(Budget(0.1, DELTA)), opposite), 0.0, UNSEEN),
        _server("smoothed (DP-Fed-LS)", Rounds(everybody(**ADDED), wide, options=smooth, seen=_all_alike), 0.7),
        _server(
            "smoothed, a client whose update is flattened",
            Rounds(everybody(**ADDED), one_more([pull(0.0, 4)], pull(FAR, 4)), options=smooth),
            0.6,
        ),
        Scenario(
            (Server.__name__,),
            f"{Server.__name__}, average of all models",
            partial(averaged, plan=four),
            opposite,
            Rounds(four, opposite).guarantee,
            share=0.6,
            runs=300,
        ),
    ]


def _all_alike(moves: NDArray[Any]) -> NDArray[Any]:
    """Return the sum over coordinates, for a client that changes all of them equally."""
    return np.asarray(moves.sum(axis=1))


def _sampled() -> list[Scenario]:
    tiny = {"n_clients": 2, "clients_per_round": 1, "rounds": 2, "clip_norm": CLIP}
    exchanged = (pull(FAR), pull(FAR)), (pull(-FAR), pull(FAR))
    rounds = partial(Rounds, delta=LAX)
    return [
        _server(
            "Poisson, all against one",
            rounds(GradientPlan(Poisson(0.5), 1, CLIP, 0.6, public_n=2), against(1)),
            0.3,
            f"{SAMPLED}; the number of other sampled clients acts as additional noise",
            3000,  # with 1000 runs the measured share varies from seed to seed by a factor of two
        ),
        _server(
            "Poisson, one more client",
            rounds(GradientPlan(Poisson(0.5), 1, CLIP, 0.6, public_n=2), one_more([pull(0.0)], pull(FAR))),
            0.6,
            SAMPLED,
            3000,
        ),
        _server(
            "uniform, one client replaced",
            rounds(GradientPlan(FixedSize(1, 2), 1, CLIP, 1.2), exchanged),
            0.6,
            SAMPLED,
            1000,
        ),
        _server(
            "Poisson, two rounds for a budget",
            rounds(client_plan(Budget(2.0, LAX), **tiny), one_more([pull(0.0)], pull(FAR))),
            0.4,
            SAMPLED,
            1000,
        ),
        _server(
            "uniform, two rounds for a budget",
            rounds(client_plan(Budget(4.0, LAX), **tiny, sampling="uniform"), exchanged),
            0.4,
            SAMPLED,
            1000,
        ),
    ]


# ---------------------------------------------------------------------------------------------------------- simulations

Data = tuple[torch.Tensor, torch.Tensor]

ONE_STEP = LocalTraining(1.0, batch_size=2, steps=1)


def data(target: float, examples: int = 1) -> Data:
    """Return a client whose examples have the target as gradient of the weight."""
    ones = torch.ones(examples, 1, dtype=torch.float64)
    return ones, target * ones[:, 0]


def weighted(outputs: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Return a loss whose gradient is that of the output times the target."""
    return outputs[:, 0] * targets


@dataclass(frozen=True)
class Simulation:
    """Simulations of one weight, which starts far from zero, and whose changes are all seen."""

    plan: GradientPlan | CommitteePlan
    pair: tuple[Sequence[Data], Sequence[Data]]
    delta: float = DELTA
    local: LocalTraining = ONE_STEP
    engine: str = "sequential"

    def result(self, clients: Sequence[Data], seed: int, runs: int) -> tuple[FederatedResult, list[float]]:
        """Simulate consecutive runs, and return the result and all global models."""
        model = nn.Linear(1, 1, bias=False, dtype=torch.float64)
        nn.init.constant_(model.weight, START)
        models = [START]

        def look(trained: Any) -> float:
            models.append(float(trained.weight))
            return 0.0

        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about clients that fail
            result = simulate(
                model,
                clients,
                loss=weighted,
                local=self.local,
                plan=longer(self.plan, runs),
                delta=self.delta,
                engine=self.engine,
                random_state=seed,
                evaluate=look,
                verbose=False,
            )
        return result, models

    @property
    def guarantee(self) -> Guarantee:
        """The guarantee of one run."""
        return as_gaussian(self.result(self.pair[0], 0, 1)[0].guarantee)

    def outputs(self, clients: Sequence[Data], source: NoiseSource, runs: int) -> NDArray[Any]:
        """Return the changes of the weight, one row per run."""
        _, models = self.result(clients, source.below(10**15), runs)
        return np.diff(models).reshape(runs, self.plan.steps)


def _simulation(variant: str, simulation: Simulation, share: float, why: str = "", runs: int = 500) -> Scenario:
    name = simulate.__name__
    mechanism = one_by_one(simulation.outputs, runs)
    return Scenario((name,), f"{name}, {variant}", mechanism, simulation.pair, simulation.guarantee, share, why, runs)


def _simulations() -> list[Scenario]:
    still = data(0.0)
    added = (still,), (still, data(-FAR))
    exchanged = (data(FAR), still), (data(-FAR), still)
    either = (data(FAR), data(FAR)), (data(-FAR), data(FAR))
    decayed = LocalTraining(1.0, batch_size=2, epochs=2, weight_decay=FAR)
    bad = (torch.full((1, 1), torch.nan, dtype=torch.float64), torch.ones(1, dtype=torch.float64))
    poisson = GradientPlan(Poisson(0.5), 1, CLIP, 0.6, public_n=2)
    uniform = GradientPlan(FixedSize(1, 2), 1, CLIP, 1.2)
    one = everybody(**ADDED)
    return [
        _simulation("one more client", Simulation(everybody(rounds=2, **ADDED), added), 0.7),
        _simulation("one client replaced, batched", Simulation(everybody(), exchanged, engine="batched"), 0.7),
        _simulation(
            "weight decay beyond the clipping norm", Simulation(one, ((still,), (still, still)), local=decayed), 0.7
        ),
        _simulation("a committee", Simulation(with_committee("majority", 3), exchanged), 0.6),
        _simulation("NaN", Simulation(everybody(Budget(12.0, DELTA)), (exchanged[0], (bad, still))), 0.3, HALF),
        _simulation("Poisson", Simulation(poisson, added, LAX), 0.3, SAMPLED, 1000),
        _simulation("uniform", Simulation(uniform, either, LAX), 0.3, SAMPLED, 400),
    ]


def scenarios() -> list[Scenario]:
    """Return all audit scenarios of federated rounds."""
    return [*_everybody_takes_part(), *_sampled(), *_simulations()]
