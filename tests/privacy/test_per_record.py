import json
import math
from dataclasses import replace

import numpy as np
import pytest

from privet.plans import Descent, FixedOrder, FullBatch, GradientPlan, RandomStop
from privet.privacy import Adjacency, Guarantee, compose, gdp_epsilon
from privet.privacy.events import (
    Composition,
    GaussianRelease,
    LastIterate,
    NearlyGaussian,
    PoissonGaussian,
    PureRelease,
    Secret,
)
from privet.privacy.guarantees.per_record import PerRecord

REPLACE, DELTA = Adjacency.REPLACE_ONE, 1e-5

EVENTS = [
    LastIterate(4.0, n=30),
    LastIterate(4.0, n=31, passes=7, size=4),
    LastIterate(4.0, n=30, passes=3, public=9, contraction=0.95),
    LastIterate(4.0, n=30, passes=40, diameter=3.0),
    LastIterate(4.0, n=30, secret=Secret.STOP),
    LastIterate(4.0, n=31, size=3, secret=Secret.STOP, contraction=0.9),
    LastIterate(4.0, n=30, secret=Secret.SKIP),
    LastIterate(4.0, n=31, size=4, passes=2, public=3, secret=Secret.ORDER),
    LastIterate(4.0, n=6, step_size=(1.0, 0.5, 0.3, 0.2, 0.1, 0.05)),
    LastIterate(4.0, n=30, runs=5),
]


def guarantee_of(event, delta=DELTA):
    return Guarantee.of(event, REPLACE, delta, released="the last iterate")


@pytest.mark.parametrize("event", EVENTS, ids=repr)
def test_the_guarantee_is_that_of_the_worst_record(event):
    guarantee = guarantee_of(event)
    records = guarantee.per_record
    assert len(records) == event.n
    assert max(records.epsilons) == pytest.approx(guarantee.epsilon, rel=1e-6)
    assert np.all(records.epsilons >= 0)
    assert records.delta == DELTA


@pytest.mark.parametrize("secret", [Secret.NOTHING, Secret.SKIP])
def test_records_visited_later_have_less_privacy(secret):
    records = guarantee_of(LastIterate(4.0, n=50, size=1, secret=secret)).per_record
    assert np.all(np.diff(records.epsilons) > 0)
    assert records[0] < records[-1] / 3
    stopped = guarantee_of(LastIterate(4.0, n=50, secret=Secret.STOP)).per_record
    assert np.all(np.diff(stopped.epsilons) < 1e-11)  # with a secret stop the first is reached most often
    assert stopped[0] > stopped[49]


def test_two_records_have_an_epsilon_each_and_a_single_one_has_only_that_of_the_run():
    records = guarantee_of(LastIterate(4.0, n=2)).per_record
    assert len(records) == 2
    assert records[0] < records[1]
    assert guarantee_of(LastIterate(4.0, n=1)).per_record is None


def test_records_of_one_batch_have_the_same_epsilon():
    records = guarantee_of(LastIterate(4.0, n=8, size=3)).per_record
    assert records[0] == records[2] < records[3] == records[5] < records[6] == records[7]


def test_each_record_has_the_epsilon_of_its_mu():
    event = LastIterate(3.0, n=400, passes=5, contraction=0.99, runs=2)
    records = guarantee_of(event).per_record
    for place in (0, 100, 399):
        assert records[place] == pytest.approx(gdp_epsilon(event.place_mus()[place] * math.sqrt(2), DELTA), rel=1e-8)


def test_other_gaussian_releases_increase_the_epsilon_of_every_record():
    run, statistics = LastIterate(4.0, n=20), GaussianRelease(0.3)
    whole = compose([guarantee_of(run), guarantee_of(statistics)], DELTA)
    records = whole.per_record
    assert max(records.epsilons) == pytest.approx(whole.epsilon, rel=1e-6)
    assert np.all(records.epsilons > guarantee_of(run).per_record.epsilons)
    assert records[0] == pytest.approx(gdp_epsilon(math.hypot(0.3, 0.5 / math.sqrt(20)), DELTA), rel=1e-8)
    full = LastIterate(9.0, n=1, passes=30, contraction=0.5)
    beside = guarantee_of(Composition((full, run)))
    assert max(beside.per_record.epsilons) == pytest.approx(beside.epsilon, rel=1e-6)


@pytest.mark.parametrize(
    "event",
    [
        GaussianRelease(1.0),
        LastIterate(4.0, n=1, passes=30),
        Composition((LastIterate(4.0, n=20), PureRelease(0.1))),
        Composition((LastIterate(4.0, n=20), LastIterate(4.0, n=20))),
        Composition((LastIterate(4.0, n=20), LastIterate(4.0, n=20, secret=Secret.STOP))),
        Composition((LastIterate(4.0, n=20, secret=Secret.STOP), GaussianRelease(1.0))),
        LastIterate(4.0, n=20, secret=Secret.STOP, runs=2),
        Composition((LastIterate(4.0, n=20), NearlyGaussian(0.1, 1e-9))),
        Composition((LastIterate(4.0, n=20, shuffled=True, runs=2), GaussianRelease(0.1))),
    ],
    ids=repr,
)
def test_per_record_is_none_if_records_are_equal_or_not_analysed(event):
    assert guarantee_of(event).per_record is None


def test_per_record_is_none_for_full_batches_sampled_batches_and_pure_deltas():
    descent = Descent(0.5, 1.0, 0.1)
    plan = GradientPlan(FullBatch(), 20, 1.0, 4.0, release="last", descent=descent)
    assert plan.guarantee(DELTA).per_record is None
    assert guarantee_of(LastIterate(4.0, n=20), 0.0).per_record is None
    poisson = Guarantee.of(PoissonGaussian(2.0, 0.1, 9), Adjacency.ADD_OR_REMOVE, DELTA, released="all")
    assert poisson.per_record is None


@pytest.mark.parametrize("sampler", [FixedOrder(12, passes=3, public=4), RandomStop(12)], ids=repr)
def test_the_guarantee_of_a_plan_has_per_record_epsilons_and_json_keeps_them(sampler):
    plan = GradientPlan(sampler, None, 1.0, 4.0, release="last", descent=Descent(0.5, 1.0, 0.1, diameter=3.0))
    guarantee = plan.guarantee(DELTA)
    again = Guarantee.from_json(guarantee.to_json())
    assert again == guarantee
    assert again.event == plan.event
    assert again.epsilon == guarantee.epsilon == again.epsilon_at(DELTA)
    assert np.array_equal(again.per_record.epsilons, guarantee.per_record.epsilons)
    assert len(again.per_record) == 12
    assert json.loads(guarantee.to_json())["event"]["kind"] == "LastIterate"


def test_json_keeps_schedules():
    sizes = tuple(1 / k for k in range(2, 8))
    descent = Descent(sizes, 1.0, 0.1)
    guarantee = GradientPlan(FixedOrder(6), None, 1.0, 4.0, release="last", descent=descent).guarantee(DELTA)
    assert guarantee.event.step_size == sizes
    assert Guarantee.from_json(guarantee.to_json()) == guarantee


def test_per_record_prints_as_a_sentence():
    text = str(guarantee_of(LastIterate(4.0, n=1000)).per_record)
    assert "1,000 records at delta = 1e-05" in text
    assert "the worst is record 999 with 1.993" in text
    assert "\n" not in text


def test_records_of_a_drawn_order_have_places_and_no_rows():
    records = guarantee_of(LastIterate(4.0, n=1000, shuffled=True)).per_record
    assert not records.is_by_row
    assert "the worst is at place 999 of a secret random order, with 1.993" in str(records)
    assert guarantee_of(LastIterate(4.0, n=10)).per_record.is_by_row
    assert PerRecord(np.ones(2), 1e-5).is_by_row


def test_quantiles_are_those_of_records_and_round_up():
    records = PerRecord(np.array([3.0, 1.0, 2.0, 4.0]), 1e-5)
    assert records.quantile(0.5) == 3.0
    assert records.quantile(0.0) == 1.0
    assert records.quantile(1.0) == 4.0
    assert records[3] == 4.0
    assert isinstance(records[3], float)


def test_plots_draw_every_record():
    pytest.importorskip("matplotlib")
    from matplotlib.figure import Figure

    records = guarantee_of(LastIterate(4.0, n=25, passes=2)).per_record
    axes = records.plot()
    line = axes.get_lines()[0]
    assert np.array_equal(line.get_ydata(), records.epsilons)
    assert list(line.get_xdata()) == list(range(1, 26))
    assert "position" in axes.get_xlabel()
    assert "1e-05" in axes.get_ylabel()
    given = Figure().subplots()
    assert records.plot(given) is given
    assert given.get_lines()


def test_a_plot_without_matplotlib_says_what_to_install(monkeypatch):
    import builtins

    real = builtins.__import__

    def refuse(name, *arguments, **options):
        if name.startswith("matplotlib"):
            raise ModuleNotFoundError(name)
        return real(name, *arguments, **options)

    monkeypatch.setattr(builtins, "__import__", refuse)
    with pytest.raises(ModuleNotFoundError, match=r"privet\[report\]"):
        guarantee_of(LastIterate(4.0, n=5)).per_record.plot()


def test_more_noise_lowers_the_epsilon_of_every_record():
    event = LastIterate(4.0, n=40, passes=3)
    less, more = (guarantee_of(replace(event, noise_multiplier=z)).per_record.epsilons for z in (4.0, 5.0))
    assert np.all(more < less)
