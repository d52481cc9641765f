"""Privacy bugs of a committee of servers, planted one at a time, seen by all but one server and one owner."""

import sys
from functools import cache
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

from privet.privacy import Budget, NoiseSource

sys.path.insert(0, str(Path(__file__).parent))

if any(find_spec(name) is None for name in ("mpyc", "gmpy2", "grpc", "cryptography")):
    pytest.skip("several parties need MPyC: install the extra multiparty", allow_module_level=True)

from committee_scenarios import HONEST, claimed, outputs, plan_of, released
from games import Bugs, Game

from privet.multiparty.protocol.server import ServerAggregator
from privet.multiparty.protocol.server_state import ServerState
from privet.multiparty.protocol.sharing import Additive

BUDGET = Budget(6.0, 1e-3)
RUNS = 4000
KEY = 5  # of noise that everybody knows

BUGS = Bugs()
planted = BUGS.planted


def game(releases=1, known_noise=False, **options):
    plan = plan_of(BUDGET, releases)

    def seen(differs, source, runs):
        found = outputs(plan, source, runs, differs=differs, **options)
        if known_noise:
            found[:, 0] -= NoiseSource(KEY).lattice(runs, plan.law)
        return found

    return Game(claimed(plan), False, True, outputs=seen, runs=RUNS)


def one_release(**options):
    """The honest owner's vector with the honest server's noise."""
    return game(**options)


def two_releases():
    """The same owner in two releases. The coalition also compares its shares, and the server's messages."""
    return game(releases=2)


def after_a_restart():
    """Both servers run the release again with the folders that they have. The coalition averages what it was sent."""
    return game(restarts=True)


@planted(one_release)
def noise_of_the_honest_server_dropped(monkeypatch):
    noisy = ServerAggregator._noisy

    async def dropped(self, total):
        return total if self._session.index == HONEST else await noisy(self, total)

    monkeypatch.setattr(ServerAggregator, "_noisy", dropped)


@planted(one_release)
def noise_scaled_by_0_7(monkeypatch):
    draw = NoiseSource.lattice
    monkeypatch.setattr(
        NoiseSource, "lattice", lambda self, size, law: np.rint(0.7 * draw(self, size, law)).astype(np.int64)
    )


@planted(one_release)
def noise_divided_among_the_servers(monkeypatch):
    """Each server adds a share of the noise, so that only all of them together have that of the plan."""
    draw = NoiseSource.lattice
    monkeypatch.setattr(
        NoiseSource, "lattice", lambda self, size, law: np.rint(draw(self, size, law) / np.sqrt(2)).astype(np.int64)
    )


@planted(one_release)
def noise_from_a_key_that_others_know(monkeypatch):
    def known(server, seen):
        server._source = NoiseSource(KEY)

    return {"prepared": known, "known_noise": True}


@planted(one_release)
def a_sum_sent_twice_over_different_owners(monkeypatch):
    """With the same noise, the difference of the two messages is the vector of one owner."""

    def prepared(server, seen):
        combined = server._combined

        async def twice(shares):
            if server._session.index == HONEST:
                sent = server._sharing.read(shares[HONEST])
                without = sent - server._sharing.read(seen.hidden[-1])  # The other server claims to lack one owner.
                seen.others.append(sent - without + seen.shares[-1])
            return await combined(shares)

        server._combined = twice

    return {"prepared": prepared}


@planted(two_releases)
def share_keys_reused_in_the_next_release(monkeypatch):
    split = Additive.split

    monkeypatch.setattr(
        Additive, "split", lambda self, values, source, first=0: split(self, values, NoiseSource(KEY), first)
    )


@planted(after_a_restart)
def new_noise_for_the_same_sum_after_a_restart(monkeypatch):
    monkeypatch.setattr(ServerState, "masked", lambda self, number: None)


@planted(two_releases)
def noise_repeated_in_the_next_release(monkeypatch):
    drawn = {}

    def repeated(self, size, law):
        return drawn.setdefault((id(self), size), lattice(self, size, law))

    lattice = NoiseSource.lattice
    monkeypatch.setattr(NoiseSource, "lattice", repeated)


@cache
def without_bug(scenario):
    return BUGS.play_without(scenario)


@pytest.mark.parametrize("name", BUGS)
def test_the_bug_is_flagged(name, monkeypatch):
    found = BUGS.play(name, monkeypatch)
    assert found.is_violation, str(found)


@pytest.mark.parametrize("scenario", [one_release, two_releases, after_a_restart])
def test_the_same_view_without_a_bug_is_not_flagged(scenario):
    found = without_bug(scenario)
    assert not found.is_violation, str(found)


def test_the_view_of_all_but_one_server_reveals_most_of_the_claim():
    """The servers' own noises do not count: the claim is that of one honest server."""
    found = without_bug(one_release)
    assert found.lower_bound > 0.6 * found.claimed, str(found)


def test_the_statistic_is_the_vector_with_the_noise_of_one_server():
    plan = plan_of(BUDGET)
    noisy = released(plan, 1000, NoiseSource(0), RUNS).statistics()[:, 0] - 1000
    assert np.std(noisy) == pytest.approx(plan.law.std, rel=0.05)
    assert abs(noisy.mean()) < 5 * plan.law.std / np.sqrt(RUNS)
