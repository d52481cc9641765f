"""Replays of a committee: what all but one server and one owner see must not depend on a record of that owner."""

import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")
pytest.importorskip("grpc", reason="owners hand in shares over gRPC: install the extra multiparty")

from privet.multiparty.protocol import gradient, server
from privet.multiparty.protocol.sharing import Additive
from privet.privacy import NoiseSource

sys.path.insert(0, str(Path(__file__).parents[1]))

import coalition


def replayed(method="gradient", **sources):
    study = coalition.study_of(method)
    return tuple(coalition.run(method, world, study=study, **sources) for world in (0, 1))


@pytest.mark.parametrize("method", ["gradient", "output"])
def test_all_but_one_server_and_one_owner_see_the_same_whatever_the_differing_record(method):
    first, second = replayed(method)
    assert coalition.problems(first, second) == []
    assert min(first.distances) > 0.1  # The record matters.
    assert len(first.distances) == first.noises == first.steps
    assert len(first.received) == 6 * first.steps


class KnownNoise(NoiseSource):
    """Noise that a coalition can compute as well, so it hides nothing."""


class ReusedKeys(coalition.OwnersSource):
    """An owner that shares every vector with the same keys."""

    def key(self):
        self.keys = [*getattr(self, "keys", []), super().key()]
        return self.keys[(len(self.keys) - 1) % 4]  # three keys and an attempt per release

    def __init__(self, *arguments, **named):
        super().__init__(*arguments, **named)
        self.keys = []


def noise_dropped(patch):
    async def silent(self, total):
        return total

    patch.setattr(server.ServerAggregator, "_noisy", silent)


def share_in_the_clear(patch):
    """One server receives the vector itself, and the others receive zeros."""

    def split(self, values, source, first=0):
        own = first % self.servers
        return [self.to_bytes(values.astype(np.uint64) * np.uint64(server == own)) for server in range(self.servers)]

    patch.setattr(Additive, "split", split)


def share_sent_before_the_noise(patch):
    async def told(self, total):
        await self._session.exchange(total.tobytes())
        return await noisy(self, total)

    noisy = server.ServerAggregator._noisy
    patch.setattr(server.ServerAggregator, "_noisy", told)


def unclipped(patch):
    def summand_of(weights, clip):
        summand = original(weights, clip)
        return lambda party: summand(party) + 3 * clip * np.eye(weights.size)[0] * (party.rows._X[-1, 0] > 0)

    original = gradient._gradient_sum
    patch.setattr(gradient, "_gradient_sum", summand_of)


BUGS = (noise_dropped, share_in_the_clear, share_sent_before_the_noise, unclipped)


@pytest.mark.parametrize("plant", BUGS, ids=lambda plant: plant.__name__)
def test_a_planted_bug_is_flagged(plant, monkeypatch):
    plant(monkeypatch)
    assert coalition.problems(*replayed())


def test_noise_that_others_know_is_flagged():
    assert coalition.problems(*replayed(servers_source=KnownNoise))


def test_keys_that_are_used_in_two_releases_are_flagged():
    assert coalition.problems(*replayed(owners_source=ReusedKeys))
