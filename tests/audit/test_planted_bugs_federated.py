"""Privacy bugs are planted in federated rounds, one at a time. The audit must flag each, and not the rounds without it.

This file works like ``test_planted_bugs.py``, with the rounds of ``federated_scenarios.py``. Neighbours differ by a
client.
"""

import math
import os
import shutil
import sys
import tempfile
import warnings
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="Federated rounds need torch: install the extra deep")

from privet.audit import Distinguished  # noqa: E402
from privet.denoise import LaplacianSmoothing, laplacian_smoothing  # noqa: E402
from privet.federated import ClientTrainer, LocalTraining, Server  # noqa: E402
from privet.federated import updates as updating  # noqa: E402
from privet.networks import LayerDenoiser  # noqa: E402
from privet.plans import FullBatch, GradientPlan, Poisson  # noqa: E402
from privet.plans.gradient import Step  # noqa: E402
from privet.privacy import Budget, NoiseSource  # noqa: E402
from privet.privacy.events import GaussianRelease  # noqa: E402
from privet.run_files import RunFiles  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from federated_scenarios import (  # noqa: E402
    ADDED,
    FAR,
    START,
    Rounds,
    Simulation,
    against,
    data,
    everybody,
    one_more,
    pull,
    vector,
)
from games import Bugs, Game, fixed_seed, scaled_noise  # noqa: E402
from scenarios import CLIP, DELTA, LAX  # noqa: E402

BUDGET = Budget(6.0, DELTA)  # mu = 1.3
SMOOTHING = 3.0

BUGS = Bugs()
planted = BUGS.planted


# ---------------------------------------------------------------------------------------------------------- scenarios


def game(rounds: Rounds | Simulation, runs: int = 300) -> Game:
    return Game(rounds.guarantee, *rounds.pair, outputs=rounds.outputs, runs=runs)


def one_sum() -> Game:
    """An additional client, whose update is far beyond the clipping norm."""
    return game(Rounds(everybody(BUDGET, **ADDED), one_more([pull(0.0)] * 2, pull(FAR))))


def exchanged() -> Game:
    """A client whose update is replaced by its opposite."""
    silent = pull(0.0)
    return game(Rounds(everybody(BUDGET), ((pull(FAR), silent), (pull(-FAR), silent))))


def four_layers() -> Game:
    """An additional client, which changes four layers equally."""
    layers = {f"layer {place}": np.array([FAR]) for place in range(4)}
    pair = one_more([{name: 0 * layer for name, layer in layers.items()}], layers)
    return game(Rounds(everybody(BUDGET, **ADDED), pair))


def all_against_one() -> Game:
    """The pair of docs/errata.md (k), with all clients sampled. Eight coordinates reveal the size of the noise."""
    return game(Rounds(everybody(BUDGET, **ADDED), against(1, d=8)))


def one_silent() -> Game:
    """Two clients, of which the second does not answer, or sends the opposite of the first."""
    first, second = pull(FAR, 8), pull(-FAR, 8)
    return game(Rounds(everybody(BUDGET, **ADDED), ((first, None), (first, second))))


def sent_repeatedly() -> Game:
    """An additional client, which answers four times."""

    def answers(rounds_done: int, clients: Any, drawn: list[int]) -> Any:
        return [(client, clients[client]) for client in drawn for _ in range(4)]

    return game(Rounds(everybody(BUDGET, **ADDED), one_more([pull(0.0)], pull(FAR)), answers=answers))


def changing() -> Game:
    """An additional client, which answers only in the first of two rounds. Attackers also look at the difference."""

    def answers(rounds_done: int, clients: Any, drawn: list[int]) -> Any:
        return {client: clients[client] for client in drawn if rounds_done == 0}

    def seen(moves: Any) -> Any:
        return np.append(moves, moves[0] - moves[1])

    pair = one_more([pull(0.0)], pull(FAR))
    return game(Rounds(everybody(BUDGET, rounds=2, **ADDED), pair, answers=answers, seen=seen))


def rarely() -> Game:
    """Four rounds with a quarter of the clients and almost no noise, so that only sampling hides a client.

    A client is sampled at least once with probability 0.68, so epsilon is 0 at delta 0.7. All clients answer in every
    round.
    """

    def answers(rounds_done: int, clients: Any, drawn: list[int]) -> Any:
        return dict(enumerate(clients))

    plan = GradientPlan(Poisson(0.25), 4, CLIP, 0.1, public_n=4)
    return game(Rounds(plan, one_more([pull(0.0)], pull(FAR)), delta=0.7, answers=answers, seen=np.sum), runs=200)


def now_and_then() -> Game:
    """One round with half of the clients, with or without an additional client whose update is the opposite."""
    plan = GradientPlan(Poisson(0.5), 1, CLIP, 1.0, public_n=2)
    return game(Rounds(plan, against(1), delta=LAX), runs=1500)


def smoothed() -> Game:
    """An additional client, which changes sixteen coordinates equally, so that smoothing does not alter its update."""
    pair = one_more([pull(0.0, 16)], pull(FAR, 16, None))
    options = {"denoiser": LaplacianSmoothing(SMOOTHING)}
    return game(Rounds(everybody(BUDGET, **ADDED), pair, options=options, seen=np.sum))


def own_sources() -> Game:
    """One round per run, each run with a new server."""
    rounds = Rounds(everybody(BUDGET, **ADDED), one_more([pull(0.0)], pull(FAR)))
    return Game(rounds.guarantee, *rounds.pair, lambda clients, source: rounds.outputs(clients, source, 1), runs=200)


def local_training() -> Game:
    """Simulated clients whose weight decay alone exceeds the clipping norm."""
    still, local = data(0.0), LocalTraining(1.0, batch_size=2, steps=1, weight_decay=1e-4)
    return game(Simulation(everybody(BUDGET, **ADDED), ((still,), (still, still)), local=local), runs=150)


def killed_repeatedly() -> Game:
    """Two planned rounds by servers that are killed after each round, before it is saved. All models are seen."""
    rounds = Rounds(everybody(BUDGET, rounds=2, **ADDED), one_more([pull(0.0)], pull(FAR)))
    return Game(rounds.guarantee, *rounds.pair, lambda clients, source: sum(_lives(rounds, clients, source)), runs=100)


def killed_once() -> Game:
    """Two planned rounds with a kill after the first. The client answers only in the first round."""
    rounds = Rounds(everybody(BUDGET, rounds=2, **ADDED), one_more([pull(0.0)], pull(FAR)))

    def run(clients: Any, source: NoiseSource) -> Any:
        first, second = _lives(rounds, clients, source, 2, is_seeded=True, is_last_silent=True)
        return np.concatenate([first, second, first - second])

    return Game(rounds.guarantee, *rounds.pair, run, runs=100)


def _lives(
    rounds: Rounds,
    clients: Any,
    source: NoiseSource,
    lives: int = 16,
    *,
    is_seeded: bool = False,
    is_last_silent: bool = False,
) -> list[Any]:
    """Return the changes of the model by servers that all resume from the same file, written before the first round.

    Unless ``is_seeded``, each server has its own seed.
    """
    seeds = [source.below(10**15) for _ in range(lives)]
    found = []
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patched, warnings.catch_warnings():
        patched.setattr(os, "fsync", lambda handle: None)  # the machine itself is not killed
        warnings.simplefilter("ignore")  # about clients that did not answer
        path, first = Path(folder) / "run", Path(folder) / "first"
        for life, seed in enumerate(seeds):
            server = rounds.server(clients, seeds[0] if is_seeded else seed)
            if life == 0:
                server.save(path)
                shutil.copy(path, first)
            else:
                server.resume(first)
            if not server.is_done:
                is_silent = is_last_silent and life == lives - 1
                before = vector(server)
                found.append(rounds.next_model(server, [None] * len(clients) if is_silent else clients) - before)
            server.close()
    return found


# ---------------------------------------------------------------------------------------------------- bugs: the noise


@planted(one_sum)
def noise_dropped(monkeypatch):
    scaled_noise(monkeypatch, 0.0)


@planted(one_sum)
def noise_halved(monkeypatch):
    scaled_noise(monkeypatch, 0.5)


@planted(one_sum)
def noise_of_the_mean_on_the_sum(monkeypatch):
    """The noise is divided by the number of clients twice: before it is added to the sum, and with the sum."""
    scaled_noise(monkeypatch, 1 / ADDED["public_n"])


@planted(own_sources)
def seed_fixed(monkeypatch):
    fixed_seed(monkeypatch)


@planted(changing)
def noise_reused_across_rounds(monkeypatch):
    noisy = Step.noisy
    kept: dict[Any, Any] = {}

    def with_old_noise(self, total):
        fresh = noisy(self, 0 * total)
        kept["noise"] = kept["noise"] if kept.get("is_second") else fresh
        kept["is_second"] = not kept.get("is_second")
        return total + kept["noise"]

    monkeypatch.setattr(Step, "noisy", with_old_noise)


@planted(smoothed)
def smoothed_before_less_noise(monkeypatch):
    """Smoothing is assumed to reduce the sensitivity (docs/errata.md (l)), and the noise is reduced with it."""
    noisy = Step.noisy
    reduction = float(np.linalg.norm(laplacian_smoothing(np.eye(16)[0], SMOOTHING)))
    monkeypatch.setattr(
        Step,
        "noisy",
        lambda self, total: laplacian_smoothing(total, SMOOTHING) + reduction * noisy(self, 0 * total),
    )
    monkeypatch.setattr(LayerDenoiser, "__call__", lambda self, layer, *_: layer)


# ---------------------------------------------------------------------------------------------------- bugs: the bound


@planted(one_sum)
def clients_trusted_to_clip(monkeypatch):
    monkeypatch.setattr(updating, "clipped", lambda vector, clip_norm: vector)


@planted(four_layers)
def each_layer_clipped_by_itself(monkeypatch):
    clipped = updating.clipped

    def checked(self, update):
        return np.concatenate([clipped(layer, self.plan.clip_norm) for layer in update.values()])

    monkeypatch.setattr(Server, "_checked", checked)
    monkeypatch.setattr(updating, "clipped", lambda vector, clip_norm: vector)


@planted(local_training)
def weight_decay_after_the_only_clip(monkeypatch):
    """Clients apply weight decay after clipping, and the server does not clip."""
    update = ClientTrainer.update

    def decayed(self, weights, *rest):
        found = update(self, weights, *rest)
        factor = self.local.learning_rate * self.local.weight_decay
        return {name: layer - factor * weights[name] for name, layer in found.items()}

    assert START * 1e-4 > CLIP
    monkeypatch.setattr(ClientTrainer, "update", decayed)
    monkeypatch.setattr(updating, "clipped", lambda vector, clip_norm: vector)


@planted(exchanged)
def sensitivity_of_one_client_for_an_exchange(monkeypatch):
    """The sensitivity is taken as C, although replacing a client changes the sum by 2C."""
    monkeypatch.setattr(
        FullBatch, "event", lambda self, multiplier, steps, adjacency: GaussianRelease(math.sqrt(steps) / multiplier)
    )


def summed_by(monkeypatch, weight: Callable[[int], float] = lambda client: 1.0) -> None:
    """Make the server sum all answers, with weights."""

    def total(self, chosen, updates):
        pairs = updates.items() if isinstance(updates, dict) else updates
        bound = self.plan.clip_norm
        clipped = ((client, updating.clipped(self._checked(update), bound)) for client, update in pairs if update)
        return sum((weight(client) * update for client, update in clipped), start=np.zeros(self._layers.size))

    monkeypatch.setattr(Server, "_sum", total)


@planted(one_sum)
def clients_weighed_by_their_examples(monkeypatch):
    """The additional client has four times as many examples as the others."""
    summed_by(monkeypatch, lambda client: 4.0 if client == 2 else 1.0)


@planted(sent_repeatedly)
def every_answer_of_a_client_counted(monkeypatch):
    summed_by(monkeypatch)


# -------------------------------------------------------------------------------------------------- bugs: the divisor


def divided_by(monkeypatch, number: Callable[[Any, Any], int]) -> None:
    """Make the server divide by a number that depends on the round."""
    add_up = Server._sum
    realised = {"number": 1}

    def counted(self, chosen, updates):
        realised["number"] = max(1, number(chosen, updates))
        return add_up(self, chosen, updates)

    monkeypatch.setattr(Server, "_sum", counted)
    monkeypatch.setattr(GradientPlan, "divisor", lambda plan, n: realised["number"])


@planted(all_against_one)
def divided_by_the_realised_number_of_clients(monkeypatch):
    """Algorithm 1 as published: docs/errata.md (k)."""
    divided_by(monkeypatch, lambda chosen, updates: len(chosen))


@planted(one_silent)
def divided_by_the_number_of_answers(monkeypatch):
    divided_by(monkeypatch, lambda chosen, updates: sum(update is not None for update in updates.values()))


@planted(all_against_one)
def divided_by_the_number_of_all_clients(monkeypatch):
    """The divisor is the true number of clients, which is private."""
    monkeypatch.setattr(GradientPlan, "divisor", lambda plan, n: n)


# ------------------------------------------------------------------------------------------------- bugs: the sampling


@planted(rarely)
def shuffled_order(monkeypatch):
    """Every client takes part once in four rounds, in random order."""

    def batches(self, n, steps, source):
        for _ in range(steps // 4):
            places = np.array([source.below(4) for _ in range(n)])
            yield from (np.flatnonzero(places == turn) for turn in range(4))

    monkeypatch.setattr(Poisson, "batches", batches)


@planted(rarely)
def answers_of_clients_that_were_not_sampled_counted(monkeypatch):
    summed_by(monkeypatch)


@planted(now_and_then)
def uniform_sampling_accounted_for_as_poisson(monkeypatch):
    def batches(self, n, steps, source):
        return (source.fixed_batch(n, 1) for _ in range(steps))

    monkeypatch.setattr(Poisson, "batches", batches)


# ---------------------------------------------------------------------------------------------------- bugs: the files


@planted(killed_repeatedly)
def journal_not_written(monkeypatch):
    monkeypatch.setattr(RunFiles, "count", lambda self, rounds: None)


@planted(killed_once)
def resumed_run_repeats_its_noise(monkeypatch):
    begin = Server._begin
    monkeypatch.setattr(Server, "_begin", lambda self, purpose: begin(self, "federated rounds"))


# ---------------------------------------------------------------------------------------------------------- the tests


@cache
def without_bug(scenario: Callable[..., Game]) -> Distinguished:
    return BUGS.play_without(scenario)


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_flagged(name, monkeypatch):
    found = BUGS.play(name, monkeypatch)
    assert found.is_violation, str(found)


@pytest.mark.parametrize("name", BUGS)
def test_the_same_rounds_without_the_bug_are_not_flagged(name):
    found = without_bug(BUGS[name].scenario)
    assert not found.is_violation, str(found)


def test_repeatedly_killed_servers_release_only_the_planned_rounds():
    """The journal counts the rounds of all servers together, so only two of eight servers make a round."""
    rounds = Rounds(everybody(BUDGET, rounds=2, **ADDED), one_more([pull(0.0)], pull(FAR)))
    assert len(_lives(rounds, rounds.pair[1], NoiseSource(0))) == 2


def test_clipping_at_the_server_corrects_weight_decay_after_local_clipping(monkeypatch):
    """The planted bug needs a server that does not clip. With clipping the guarantee holds."""
    clipped = updating.clipped
    weight_decay_after_the_only_clip(monkeypatch)
    monkeypatch.setattr(updating, "clipped", clipped)
    found = replace(local_training(), runs=100).play("server's clip", 0.999)
    assert not found.is_violation, str(found)
