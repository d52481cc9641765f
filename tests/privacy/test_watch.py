"""Who sees the draws of this process."""

import dataclasses

import numpy as np
import pytest

from privet.privacy import NoiseSource
from privet.privacy.noise import watch
from privet.privacy.noise.orders import OrderSource
from privet.privacy.noise.watch import Claim, Request, watching


class Replacement:
    """A watcher that returns numbers of its own in place of every draw."""

    def sample(self, source, kind, n, draw):
        return "sample"

    def release(self, request, draw):
        return "release"

    def tilt(self, request, draw):
        return "linear term"

    def secret(self, draw):
        return b"key"

    def unit(self, place):
        return 100 + place


def test_a_watcher_may_replace_every_draw_until_it_leaves():
    source = NoiseSource(1)
    assert not watch.is_watching()
    with watching(Replacement()):
        assert watch.is_watching()
        assert source.below(5) == "sample"
        assert source.add_gaussian(np.zeros(2), 1.0) == "release"
        assert source.real_gaussian((2,), 1.0) == "linear term"
        assert watch.unit(7) == 107
        assert OrderSource(purpose="x").seed() == OrderSource(purpose="x").seed()
        watched = OrderSource(1, "client {}", 3).seed()
    assert not watch.is_watching()
    assert source.below(5) in range(5)
    assert watch.unit(7) == 7
    assert watch.secret(lambda: b"own") == b"own"
    assert watched == OrderSource(1, "client 103").seed()


def test_one_watcher_at_a_time_sees_the_draws():
    with watching(Replacement()):
        with pytest.raises(RuntimeError, match="Another replay is running"), watching(Replacement()):
            pass
        assert watch.is_watching()  # the first one goes on
        assert watch.unit(1) == 101
    with pytest.raises(ZeroDivisionError), watching(Replacement()):
        raise ZeroDivisionError
    assert not watch.is_watching()


def test_claims_and_requests_leave_out_what_is_not_said_and_cannot_be_changed():
    claim = Claim(1.5)
    assert dataclasses.astuple(claim) == (1.5, None, None, None, None)
    request = Request(NoiseSource(1), "noise", None, 1.0, claim)
    assert request.objective is None
    for each, name in ((claim, "bound"), (request, "scale")):
        with pytest.raises(dataclasses.FrozenInstanceError):
            setattr(each, name, 0.0)
