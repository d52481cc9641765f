"""Noise that is drawn in advance, in a thread."""

import threading

import pytest

from privet.plans.prepared import Drawn
from privet.privacy import NoiseSource


def test_noise_that_was_drawn_in_advance_is_that_of_the_source():
    drawn = Drawn(lambda: NoiseSource(3).normals(5, 2.0)).result()
    assert type(drawn) is type(NoiseSource(3).normals(5, 2.0))


def test_noise_is_drawn_in_another_thread_that_does_not_keep_the_program_running():
    threads, has_begun, may_end = [], threading.Event(), threading.Event()

    def draw():
        threads.append(threading.current_thread())
        has_begun.set()
        may_end.wait(60)
        return NoiseSource(3).normals(5, 2.0)

    drawn = Drawn(draw)
    assert has_begun.wait(60)
    assert threads[0] is not threading.current_thread()
    assert threads[0].daemon
    may_end.set()
    drawn.wait()
    assert not threads[0].is_alive()


def test_what_is_raised_in_the_thread_is_raised_where_the_result_is_used():
    def draw():
        raise ArithmeticError("no noise")

    with pytest.raises(ArithmeticError, match="no noise"):
        Drawn(draw).result()


def test_noise_is_given_out_once():
    drawn = Drawn(lambda: NoiseSource(3).normals(5, 2.0))
    drawn.result()
    with pytest.raises(AssertionError):
        drawn.result()
