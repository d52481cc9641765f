"""Sums over parties: what three real processes open, and the noise that they draw jointly.

The processes run joint_party.py. Where sums are compared with those of the same plan in one process, that program
turns the noise off.
"""

import asyncio
import json
import math
import sys
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2, chi2_contingency

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")

from privet.multiparty import JointAggregator, SimulatedAggregator
from privet.multiparty.protocol import aggregation
from privet.objectives import L2, BoundedRows, Logistic
from privet.plans.aggregation import AggregationPlan
from privet.plans.gradient import PlanError
from privet.privacy import NoiseSource
from privet.privacy.noise.lattice import LatticeLaw
from privet.privacy.noise.watch import watching
from privet.solvers.base.interface import Problem

sys.path.insert(0, str(Path(__file__).parents[1]))

import joint_party as joint
from alone import alone
from parties import Machine

RARE = 1e-6  # probability that a correct distribution fails a test


@pytest.fixture(scope="module")
def folders(tmp_path_factory):
    """Run all computations once in three processes, and return each party's folder."""
    folder = tmp_path_factory.mktemp("joint")
    orders = {"do": ["sums", "descents", "draws", "release"]}
    with Machine() as machine:
        orders["ports"] = machine.ports
        made = [machine.start(folder / str(index), joint.main, {"index": index, **orders}) for index in range(3)]
        assert [party.wait() for party in made] == [0, 0, 0], [party.err for party in made]
    return [party.folder for party in made]


@pytest.fixture(scope="module")
def found(folders):
    return [json.loads((folder / "found.json").read_text()) for folder in folders]


def draws_of(folders, name):
    return [np.load(folder / f"{name}.npy") for folder in folders]


# ----------------------------------------------------------------------------------------------------------------- sums


def test_sums_of_all_sizes_and_signs_are_exact(found):
    for party in found:
        assert party["sums"]["silent"] == (3 * joint.EXTREMES).tolist()


def test_noise_is_added_once_per_sum(found):
    reach = joint.LARGE.law.reach
    for party in found:
        errors = np.array(party["sums"]["noisy"]) - 3 * joint.EXTREMES
        assert np.abs(errors).max() <= reach
        assert errors.any()
        assert party["sums"]["noisy"] == found[0]["sums"]["noisy"]


@pytest.mark.parametrize("kind", joint.KINDS)
def test_the_protocol_opens_the_same_sums_as_the_simulation(found, kind):
    _, plan = joint.public(kind)

    class Central(SimulatedAggregator):
        async def _opened(self, summand):
            opened.append(await super()._opened(summand))
            return opened[-1]

    opened = []
    parties = [party for party in joint.problems(kind) if party is not None]
    release = asyncio.run(joint.descend(kind, Central(plan, parties, None)))
    for party in found:
        assert party["descents"][f"{kind} silent"]["opened"] == [each.tolist() for each in opened]
        assert party["descents"][f"{kind} silent"]["weights"] == release.weights.tolist()
    assert np.abs(opened[0]).max() > 3


@pytest.mark.parametrize("kind", joint.KINDS)
def test_with_noise_all_parties_get_exactly_the_same_numbers(found, kind):
    noisy = [party["descents"][f"{kind} noisy"] for party in found]
    assert noisy[0] == noisy[1] == noisy[2]
    silent = found[0]["descents"][f"{kind} silent"]
    errors = np.array(noisy[0]["opened"][0]) - silent["opened"][0]  # The first sum has the same summands.
    law = joint.public(kind)[1].law
    assert 0 < math.sqrt(np.mean(errors**2)) < 5 * law.std
    assert "no 2 of them combine what they saw" in noisy[0]["statement"]
    assert "single party, even together with outsiders, learns nothing about the rows" in noisy[0]["statement"]


# ---------------------------------------------------------------------------------------------------------------- noise


def statistic(drawn, law):
    """Return the chi-square statistic of draws and its degrees of freedom. Rare values share a cell."""
    expected = law.masses() * drawn.size
    counts = np.bincount(drawn + law.reach, minlength=expected.size).astype(float)
    assert counts.size == expected.size
    cells = np.cumsum(expected) // 20  # Each cell has at least 20 expected draws.
    expected, counts = (np.bincount(cells.astype(int), weights=each) for each in (expected, counts))
    filled = expected > 0
    return float((((counts - expected) ** 2)[filled] / expected[filled]).sum()), int(filled.sum()) - 1


def passes(drawn, law):
    value, freedom = statistic(drawn, law)
    return chi2.sf(value, freedom) > RARE


def test_jointly_drawn_noise_has_the_planned_distribution(folders, found):
    drawn = draws_of(folders, "small")
    assert drawn[0].size == 100_000
    for each in drawn:
        np.testing.assert_array_equal(each, drawn[0])
    assert passes(drawn[0], joint.SMALL)
    # The test would detect other distributions.
    assert not passes(drawn[0] // 2, joint.SMALL)
    assert not passes(np.where(np.arange(100_000) % 50, drawn[0], 0), joint.SMALL)
    assert not passes(np.clip(drawn[0] + (np.arange(100_000) % 4 == 0), -11, 11), joint.SMALL)


def test_the_default_distribution_is_drawn_correctly(folders):
    law = LatticeLaw()
    drawn = draws_of(folders, "default")[0]
    assert abs(drawn.mean()) < 5 * law.std / math.sqrt(drawn.size)
    assert drawn.var() == pytest.approx(law.std**2, rel=5 * math.sqrt(2 / drawn.size))
    assert passes(drawn, law)
    assert len(np.unique(drawn % 16)) == 16  # The fine bits are included.


def test_draws_are_independent_of_one_another(folders):
    drawn = draws_of(folders, "small")[0].astype(float)
    for apart in (1, 2, 17):
        correlation = np.corrcoef(drawn[:-apart], drawn[apart:])[0, 1]
        assert abs(correlation) < 5 / math.sqrt(drawn.size)


def test_simulated_noise_has_the_same_distribution():
    for law, number in ((joint.SMALL, 100_000), (LatticeLaw(20, 6, 3), 100_000), (LatticeLaw(), 20_000)):
        drawn = NoiseSource(7).lattice(number, law)
        assert passes(drawn, law)
        assert not passes(np.clip(np.rint(1.15 * drawn), -law.reach, law.reach).astype(int), law)


@pytest.mark.parametrize("index", range(3))
def test_a_single_share_is_independent_of_the_noise(folders, index):
    noise = draws_of(folders, "small")[0]
    share = np.load(folders[index] / "small_share.npy")
    cells = share * 8 // (share.max() + 1)
    table = np.zeros((8, 2 * joint.SMALL.reach + 1))
    np.add.at(table, (cells, noise + joint.SMALL.reach), 1)
    table = table[:, table.sum(axis=0) > 200]
    assert (table.sum(axis=1) > 0.1 * noise.size).all()  # A share takes values in the whole field.
    assert chi2_contingency(table).pvalue > RARE


def test_two_parties_together_can_reconstruct_the_noise(folders):
    """The threshold is one, so two shares determine the value: it is where the line through both meets 0."""
    noise = draws_of(folders, "small")[0]
    first, second = (np.load(folders[index] / "small_share.npy") for index in range(2))
    value = 2 * first - second  # Shares are the values of a line at 1, 2 and 3, modulo a prime.
    modulus = prime_of(joint.SMALL)
    np.testing.assert_array_equal(value % modulus, (noise + joint.SMALL.reach) % modulus)


def prime_of(law):
    """Return the first prime, 3 modulo 4, with room for three summands of up to two steps plus the noise."""
    number = 2 * (3 * 2 + law.reach) + 2
    while number % 4 != 3 or any(number % each == 0 for each in range(2, math.isqrt(number) + 1)):
        number += 1
    return number


# -------------------------------------------------------------------------------------------------------- what it takes


def test_a_release_of_104_coordinates_takes_less_than_two_seconds(found):
    """Measured as the processor time of all three parties together, because other processes may be running."""
    assert sum(party["release"]["processor"] for party in found) < 2.0
    assert max(party["release"]["sent"] for party in found) < 1e6  # bytes; the circuits of the paper took 777 MB


def test_nine_parties_open_the_exact_sum_with_noise_at_hardly_more_cost(tmp_path):
    """The number of groups that might combine their shares grows to 126, and must not appear in the cost."""
    with Machine(ports=9) as machine:
        orders = {"do": ["sums", "release"], "ports": machine.ports}
        made = [machine.start(tmp_path / str(index), joint.main, {"index": index, **orders}) for index in range(9)]
        assert [party.wait() for party in made] == [0] * 9, [party.err for party in made]
    found = [json.loads((party.folder / "found.json").read_text()) for party in made]
    assert all(party["sums"] == found[0]["sums"] for party in found)
    silent, noisy = (np.array(found[0]["sums"][name]) for name in ("silent", "noisy"))
    np.testing.assert_array_equal(silent, 9 * joint.EXTREMES)
    assert 0 < np.abs(noisy - silent).max() <= joint.LARGE.law.reach
    assert sum(party["release"]["processor"] for party in found) < 6.0
    assert max(party["release"]["sent"] for party in found) < 1e6


# ------------------------------------------------------------------------------------------------------- in one process


def simulated(plan, source=None):
    rows = BoundedRows(np.eye(3), 1.0)
    parties = [Problem(Logistic(), L2(0.1), rows, np.zeros(3)) for _ in range(3)]
    return SimulatedAggregator(plan, parties, source)


PLAN = AggregationPlan(3, 2, 1.0, 10.0, 100.0, LatticeLaw(20, 6, 3), 1e-3)


def test_more_sums_than_planned_are_refused():
    aggregator = simulated(PLAN)

    async def ask(times):
        for _ in range(times):
            await aggregator.noisy_sum(lambda party: np.ones(3))

    asyncio.run(ask(2))
    with pytest.raises(PlanError, match="accounts for 2 noisy sums, and"):
        asyncio.run(ask(1))


def test_a_failed_sum_still_counts_towards_the_plan():
    """Trying again after an error does not give more sums than planned."""
    aggregator = simulated(PLAN)
    for _ in range(2):
        with pytest.raises(ValueError, match="larger than the 10"):
            asyncio.run(aggregator.noisy_sum(lambda party: np.full(3, 11.0)))
    with pytest.raises(PlanError):
        asyncio.run(aggregator.noisy_sum(lambda party: np.ones(3)))


def test_each_party_rounds_its_own_contribution():
    opened = asyncio.run(simulated(PLAN).noisy_sum(lambda party: np.array([0.0149, -0.0149, 0.004])))
    assert opened.tolist() == pytest.approx([0.03, -0.03, 0.0], abs=1e-15)


def test_guarantees_of_simulations_state_their_assumptions():
    assert [each.is_enforced for each in simulated(PLAN).conditions()] == [False]
    assert "the noise was left out" in simulated(PLAN).conditions()[0].text
    secure = simulated(PLAN, NoiseSource()).conditions()
    assert "holds the rows of all parties" in secure[0].text
    assert [each.is_enforced for each in secure] == [False, True]
    assert not simulated(PLAN, NoiseSource(1)).conditions()[1].is_enforced


def test_an_audit_sees_the_sum_before_its_noise_and_what_the_plan_claims():
    class Witness:
        def release(self, request, draw):
            seen.append(request)
            return draw()

    seen = []
    with watching(Witness()):
        noisy = asyncio.run(simulated(PLAN, NoiseSource(1)).noisy_sum(lambda party: np.array([1.0, -2.0, 0.5])))
    (request,) = seen
    assert (request.kind, request.claim) == ("lattice noise", PLAN.claim())
    assert request.values.tolist() == [300, -600, 150]
    assert np.abs(noisy - [3.0, -6.0, 1.5]).max() <= PLAN.law.reach / 100


# ------------------------------------------------------------------------------------------- a session without others


PROBLEM = Problem(Logistic(), L2(0.1), BoundedRows(np.eye(3), 1.0), np.zeros(3))


def test_a_party_opens_the_sum_with_noise_of_the_law():
    values = np.array([10.0, -10.0, 0.25])

    async def work(session):
        aggregator = JointAggregator(PLAN, session, PROBLEM)
        return [await aggregator.noisy_sum(lambda party: values) for _ in range(2)]

    first, second = alone(work)
    for each in (first, second):
        assert each.dtype == np.float64
        assert np.abs(each - values).max() <= PLAN.law.reach / PLAN.scale
    assert not np.array_equal(first, second)


def test_a_party_without_rows_contributes_nothing():
    async def work(session):
        opened = await JointAggregator(PLAN, session, None)._opened(None)
        assert opened.dtype == np.int64
        return opened

    assert np.abs(alone(work)).max() <= PLAN.law.reach


@pytest.mark.parametrize(("largest", "scale"), [(10.0, 100.0), (10.001, 100.0), (0.3, 7.0)])
@pytest.mark.parametrize("parties", [1, 3])
def test_the_field_has_room_for_all_contributions_and_the_noise(largest, scale, parties):
    """A contribution may be rounded up to the next lattice point, and half of the field is for negative numbers."""
    plan = AggregationPlan(3, 2, 1.0, largest, scale, LatticeLaw(20, 6, 3), 1e-3)

    async def work(session):
        session.parties = parties
        return int(JointAggregator(plan, session, None)._secret.field.modulus)

    farthest = parties * (math.floor(largest * scale + 0.5) + 1) + plan.law.reach
    modulus = alone(work)
    assert modulus > 2 * farthest
    assert modulus % 4 == 3
    assert modulus < 2 * (farthest + parties) + 100  # no larger than necessary, up to the gaps between primes


def test_primes_are_the_next_ones_that_are_three_modulo_four():
    assert [aggregation.prime_above(bound) for bound in (2, 3, 7, 10, 11, 100, 2207)] == [3, 7, 11, 11, 19, 103, 2239]


def test_nothing_is_opened_before_the_release_is_recorded(monkeypatch):
    """The first sum is announced, then recorded, then confirmed, then opened. Later sums are opened at once."""
    events, output = [], aggregation._output
    monkeypatch.setattr(aggregation, "_output", lambda *given: events.append("opened") or output(*given))

    async def work(session):
        exchange = session.exchange

        async def told(payload):
            events.append(payload.decode())
            return await exchange(payload)

        session.exchange = told
        aggregator = JointAggregator(PLAN, session, PROBLEM, lambda: events.append("recorded"))
        for _ in range(2):
            await aggregator.noisy_sum(lambda party: np.zeros(3))

    alone(work)
    assert events == [
        "the first noisy sum is ready to be opened",
        "recorded",
        "its budget is booked here",
        "opened",
        "opened",
    ]


def test_nothing_is_opened_if_the_release_cannot_be_recorded(monkeypatch):
    opened = []
    monkeypatch.setattr(aggregation, "_output", lambda *given: opened.append(given))

    def full():
        raise OSError("the ledger is full")

    async def work(session):
        await JointAggregator(PLAN, session, PROBLEM, full).noisy_sum(lambda party: np.zeros(3))

    with pytest.raises(OSError, match="the ledger is full"):
        alone(work)
    assert not opened


@pytest.mark.parametrize(
    ("parties", "threshold", "group"), [(3, 1, "A single party"), (5, 2, "A group of up to 2 parties")]
)
def test_the_condition_names_the_size_of_a_harmless_group(parties, threshold, group):
    async def work(session):
        session.parties, session.threshold = parties, threshold
        return JointAggregator(PLAN, session, None).conditions()

    (condition,) = alone(work)
    assert not condition.is_enforced
    assert f"all {parties} parties follow the protocol, and no {threshold + 1} of them combine" in condition.text
    assert f"{group}, even together with outsiders" in condition.text


def test_two_parties_cannot_share_secrets():
    """With a threshold of zero, every share would be the secret. A relay is what two parties can run."""

    async def work(session):
        session.parties = 2
        JointAggregator(PLAN, session, None)

    with pytest.raises(ValueError, match="Two parties cannot share secrets"):
        alone(work)
