"""Noise for pure epsilon that parties draw together: its circuit, its law in three real processes, and its cost."""

import itertools
import json
import math
import sys
from fractions import Fraction
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import chi2, kstest

pytest.importorskip("mpyc", reason="several parties need MPyC: install the extra multiparty")

from privet.multiparty.protocol.aggregation import prime_above
from privet.multiparty.protocol.joint_noise import biased, joint_draw

sys.path.insert(0, str(Path(__file__).parents[1]))

import joint_party as joint
from alone import alone
from parties import Machine

RARE = 1e-6  # probability that a correct distribution fails a test


@pytest.fixture(scope="module")
def found(tmp_path_factory):
    """Draw noise in three processes, and return what each of them found."""
    folder = tmp_path_factory.mktemp("pure")
    orders = {"do": ["pure_draws", "pure_release"]}
    with Machine() as machine:
        orders["ports"] = machine.ports
        made = [machine.start(folder / str(index), joint.main, {"index": index, **orders}) for index in range(3)]
        assert [party.wait() for party in made] == [0, 0, 0], [party.err for party in made]
    return [json.loads((party.folder / "found.json").read_text()) for party in made]


@pytest.mark.parametrize("digits", range(1, 9))
def test_the_circuit_of_a_bit_has_exactly_its_probability(digits):
    """Of all 2^k values of the fair bits, the circuit is 1 for exactly ``ones`` of them."""
    table = np.array(list(itertools.product((0, 1), repeat=digits))).T
    for ones in range(1, 1 << digits, 2):
        drawn = biased(list(table), ones)
        assert set(drawn.tolist()) <= {0, 1}
        assert drawn.sum() == ones


def law_of(recipe):
    """Return the exact probability of each value of a recipe, without the rare uniformly random numbers."""
    masses = {0: Fraction(1)}
    for group in recipe.bits:
        chance = Fraction(group.ones, 1 << group.digits)
        for weight in group.weights:
            moved = {}
            for value, mass in masses.items():
                moved[value] = moved.get(value, 0) + mass * (1 - chance)
                moved[value + weight] = moved.get(value + weight, 0) + mass * chance
            masses = moved
    return masses


def passes(drawn, masses):
    usual = [value for value, mass in masses.items() if mass * drawn.size >= 20]
    expected = np.array([float(masses[value]) for value in usual]) * drawn.size
    counts = np.array([np.count_nonzero(drawn == value) for value in usual], dtype=float)
    expected, counts = (np.append(each, max(drawn.size - each.sum(), 1.0)) for each in (expected, counts))
    return chi2.sf(((counts - expected) ** 2 / expected).sum(), len(usual)) > RARE


def test_three_processes_draw_the_law_of_the_recipe(found):
    drawn = np.array(found[0]["pure_draws"]["usual"])
    masses = law_of(joint.BIASED)
    assert all(party["pure_draws"] == found[0]["pure_draws"] for party in found)
    assert set(drawn.tolist()) <= set(masses)
    assert passes(drawn, masses)
    assert not passes(drawn // 2 * 2, masses)
    assert not passes(np.where(np.arange(drawn.size) % 8, drawn, 0), masses)


def test_a_rare_draw_is_uniform_in_the_whole_field(found):
    drawn, prime = np.array(found[0]["pure_draws"]["reset"]), joint.PRIME
    far = drawn[~np.isin(drawn, list(law_of(joint.BIASED)))]
    assert far.size == pytest.approx(drawn.size / 4, abs=5 * math.sqrt(drawn.size * 3 / 16))
    assert kstest(far / prime + 0.5, "uniform").pvalue > RARE


def test_a_release_has_the_noise_of_the_plan_and_is_not_much_slower_than_others(found):
    release = found[0]["pure_release"]
    errors = np.array(release["opened"]) - 3 * np.linspace(-1, 1, 104)
    assert all(party["pure_release"]["opened"] == release["opened"] for party in found)
    assert 0.5 * release["std"] < math.sqrt(np.mean(errors**2)) < 2 * release["std"]
    assert release["sent"] < 2_500_000


def test_a_field_that_is_too_large_for_the_guarantee_is_refused():
    async def work(session):
        secret = session.runtime.SecFld(modulus=prime_above(1 << 64), signed=True)
        return joint_draw(session.runtime, secret, joint.PURE.law.recipe(), 3)

    with pytest.raises(ValueError, match="holds in fields of up to 2\\^64 elements"):
        alone(work)
