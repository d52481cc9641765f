"""Privacy bugs of deep networks, planted one at a time: each is flagged, and the same training without it is not.

The tests work like ``test_planted_bugs.py``. The trainings are those of ``deep_scenarios.py``, and the attacker sees
the change of the weights in every step.
"""

import math
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="deep networks need torch: install the extra deep")
from torch import nn  # noqa: E402

from privet.audit import Distinguished  # noqa: E402
from privet.deep import PrivateTraining  # noqa: E402
from privet.deep.clipping import batch as clipping  # noqa: E402
from privet.deep.clipping.gradients import Direct, PerExample  # noqa: E402
from privet.plans import GradientPlan, Poisson  # noqa: E402
from privet.plans.gradient import Step  # noqa: E402
from privet.plans.recursive import RecursivePlan  # noqa: E402

sys.path.insert(0, str(Path(__file__).parent))

from deep_scenarios import (  # noqa: E402
    REFRESH,
    Pair,
    Training,
    chain,
    in_two_processes,
    linear,
    one_more,
    recursive_training,
    without_memory,
)
from games import Bugs, Game, fixed_seed, scaled_noise  # noqa: E402
from scenarios import CLIP  # noqa: E402

BUGS = Bugs()
planted = BUGS.planted
BatchGradients = clipping.BatchGradients


# ---------------------------------------------------------------------------------------------------------- scenarios


def game(training: Training, pair: Pair, *, see: Callable[[Any], Any] = np.ravel, run: Any = None, runs=150) -> Game:
    _, guarantee = training.about(pair)
    run = run or training.mechanism(pair)
    return Game(guarantee, *pair, lambda data, source: see(run(data, source)), runs=runs)


def one_layer() -> Game:
    """One weight and one step, with each example processed separately."""
    return game(Training(linear, options={"max_batch": 1}), one_more(1))


def bias_alone() -> Game:
    """Inputs are zero, so the example has a gradient in the bias alone."""
    return game(Training(lambda: linear(bias=True)), one_more(1, value=0.0))


def four_layers() -> Game:
    """Four weights, in each of which the example has the same gradient."""
    return game(Training(lambda: chain(4)), one_more(1))


def four_times() -> Game:
    """One weight that is used four times."""

    def model() -> nn.Module:
        return nn.Sequential(*[linear()] * 4)

    return game(Training(model), one_more(1), runs=250)


def against() -> Game:
    """The added example has the opposite gradient of the other one. Eight weights show the size of the noise."""
    return game(Training(lambda: linear(8)), one_more(1, width=8, pull=-1.0), runs=200)


def poisson() -> Game:
    """One example in two batches of half of the data. The attacker also sees how far the noisy sums differ."""
    plan = GradientPlan(Poisson(0.5), 2, CLIP, 2.0, public_n=2)
    return game(
        Training(linear, plan=plan), one_more(), see=lambda moves: np.append(moves, abs(moves[0] - moves[1])), runs=200
    )


def rare() -> Game:
    """Two batches, each with a tenth of the data."""
    return game(Training(linear, plan=GradientPlan(Poisson(0.1), 2, CLIP, 0.5, public_n=1)), one_more(1), runs=250)


def recursive() -> Game:
    """Two steps, the second with a difference beyond its small clipping norm. The remembered estimate is subtracted."""
    return game(recursive_training(CLIP / 20), one_more(1), see=lambda moves: without_memory(moves, REFRESH))


def two_processes() -> Game:
    """The example belongs to the second process, and the final weights of both processes are released."""
    pair, training = one_more(1), Training(linear)
    return game(training, pair, run=in_two_processes(training, pair))


# ---------------------------------------------------------------------------------------------------- bugs: the noise


def clipped_by(monkeypatch, clipped_sum):
    """Replace how gradients are clipped and summed."""

    def add(self, clip_norm, slots):
        for parameter, total in clipped_sum(self, clip_norm).items():
            slots[parameter] += total.flatten()
        return torch.zeros(len(self.losses), dtype=torch.bool)

    monkeypatch.setattr(BatchGradients, "clipped_sum", clipped_sum)
    monkeypatch.setattr(BatchGradients, "add_clipped_sum", add)


@planted(one_layer)
def noise_dropped(monkeypatch):
    scaled_noise(monkeypatch, 0.0)


@planted(one_layer)
def noise_halved(monkeypatch):
    scaled_noise(monkeypatch, 0.5)


@planted(against)
def noise_added_before_the_clip(monkeypatch):
    """The gradient of each example gets noise and is then clipped, which removes the noise from a long gradient."""
    clipped_sum = BatchGradients.clipped_sum
    source = torch.Generator().manual_seed(0)

    def of_noised(self, clip_norm):
        def noised(part: PerExample) -> PerExample:
            values = part.written_out()
            return Direct(values + CLIP * torch.randn(values.shape, generator=source, dtype=values.dtype))

        parts = {parameter: noised(part) for parameter, part in self.parts.items()}
        return clipped_sum(replace(self, parts=parts), clip_norm)

    clipped_by(monkeypatch, of_noised)
    monkeypatch.setattr(Step, "prepare", lambda step, *_: None)
    monkeypatch.setattr(Step, "noisy", lambda step, summed: summed)


@planted(poisson)
def noise_reused_across_steps(monkeypatch):
    noisy = PrivateTraining._noisy

    def one_noise(self, step, total):
        fresh = noisy(self, step, 0 * total)
        self._kept = getattr(self, "_kept", fresh)
        return total + self._kept

    monkeypatch.setattr(PrivateTraining, "_noisy", one_noise)


@planted(one_layer)
def seed_fixed(monkeypatch):
    fixed_seed(monkeypatch)


@planted(two_processes)
def sum_sent_to_the_others_before_its_noise(monkeypatch):
    def noisy(self, step, total):
        total = self._processes.from_first(self._processes.gathered(total))
        return torch.from_numpy(step.noisy(total.numpy())) if self._processes.is_first else total

    monkeypatch.setattr(PrivateTraining, "_noisy", noisy)


# ---------------------------------------------------------------------------------------------------- bugs: the bound


@planted(bias_alone)
def bias_left_out_of_the_norm(monkeypatch):
    norms = BatchGradients.norms

    def of_weights(self):
        return norms(replace(self, parts={each: part for each, part in self.parts.items() if each.ndim > 1}))

    monkeypatch.setattr(BatchGradients, "norms", of_weights)


@planted(four_layers)
def one_layer_not_clipped(monkeypatch):
    clipped_sum = BatchGradients.clipped_sum

    def all_but_the_last(self, clip_norm):
        last, part = list(self.parts.items())[-1]
        return clipped_sum(self, clip_norm) | {last: part.weighted_sum(torch.ones_like(self.losses))}

    clipped_by(monkeypatch, all_but_the_last)


@planted(four_layers)
def each_layer_clipped_by_itself(monkeypatch):
    clipped_sum = BatchGradients.clipped_sum

    def apart(self, clip_norm):
        alone = [clipped_sum(replace(self, parts={each: part}), clip_norm) for each, part in self.parts.items()]
        return {each: total for sums in alone for each, total in sums.items()}

    clipped_by(monkeypatch, apart)


@dataclass(frozen=True)
class Apart(Direct):
    """Several uses of one layer, whose norms are computed separately."""

    squares: Any = None

    def squared_norms(self):
        return self.squares


@planted(four_times)
def norms_of_the_uses_of_a_layer_added_up(monkeypatch):
    together = clipping.together

    def apart(parts):
        return Apart(together(parts).written_out(), sum(part.squared_norms() for part in parts))

    monkeypatch.setattr(clipping, "together", apart)


@planted(against)
def clip_after_the_sum(monkeypatch):
    def clipped_sum(self, clip_norm):
        sums = {each: part.weighted_sum(torch.ones_like(self.losses)) for each, part in self.parts.items()}
        norm = math.sqrt(sum(float(total.square().sum()) for total in sums.values()))
        return {each: total * min(1.0, clip_norm / norm) for each, total in sums.items()}

    clipped_by(monkeypatch, clipped_sum)


@planted(recursive)
def difference_not_clipped(monkeypatch):
    clipped, minus = BatchGradients.clipped, BatchGradients.minus

    class Difference(BatchGradients):
        def clipped(self, clip_norm):
            return clipped(self, math.inf)

    def unclipped(self, other):
        found = minus(self, other)
        return Difference(found.losses, found.parts)

    monkeypatch.setattr(BatchGradients, "minus", unclipped)


@planted(recursive)
def noise_for_the_difference_alone(monkeypatch):
    monkeypatch.setattr(RecursivePlan, "contribution_norm", property(lambda plan: plan.difference_norm))


# ------------------------------------------------------------------------------------------------- bugs: the sampling


@planted(against)
def divided_by_the_realised_batch(monkeypatch):
    step = PrivateTraining.step
    noisy = PrivateTraining._noisy

    def sized(self, *batch):
        self._realised = max(1, len(batch[-1]))
        return step(self, *batch)

    monkeypatch.setattr(PrivateTraining, "step", sized)
    monkeypatch.setattr(PrivateTraining, "_noisy", lambda self, *args: noisy(self, *args) / self._realised)


@planted(against)
def divided_by_the_number_of_examples(monkeypatch):
    monkeypatch.setattr(GradientPlan, "divisor", lambda plan, n: plan.sampler.nominal_size(n))


@planted(rare)
def batches_in_the_order_of_the_data(monkeypatch):
    def batches(self, n, steps, source):
        return (np.array([step % n]) for step in range(steps))

    monkeypatch.setattr(Poisson, "batches", batches)


# ---------------------------------------------------------------------------------------------------------- the tests


@cache
def without_bug(scenario: Callable[..., Game]) -> Distinguished:
    return BUGS.play_without(scenario)


@pytest.mark.parametrize("name", BUGS)
def test_bug_is_flagged(name, monkeypatch):
    found = BUGS.play(name, monkeypatch)
    assert found.is_violation, str(found)


@pytest.mark.parametrize("name", BUGS)
def test_the_same_training_without_the_bug_is_not_flagged(name):
    found = without_bug(BUGS[name].scenario)
    assert not found.is_violation, str(found)
