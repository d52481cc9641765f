"""The page on what is wrong in the papers names tests that exist, and its calculations are right."""

import math
import re
from pathlib import Path

import dp_accounting as dpa
import numpy as np
import pytest
from dp_accounting.rdp import RdpAccountant

from privet.plans import FixedSize, GradientPlan
from privet.privacy import gdp_epsilon

ROOT = Path(__file__).resolve().parents[2]
PAGE = (ROOT / "docs" / "errata.md").read_text(encoding="utf-8")
DELTA = 1e-5


def test_every_entry_has_a_line_in_the_table_and_a_test_that_exists():
    lines = re.findall(r"^\| \[\((\w)\)\].*`(\S+)::(\w+)` \|$", PAGE, re.M)
    assert [letter for letter, *_ in lines] == re.findall(r"^## \((\w)\)", PAGE, re.M)
    for _, file, name in lines:
        assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{file} has no {name}"


@pytest.mark.parametrize(
    ("claimed", "delta", "mu_of", "real"),
    [
        (1.0, 1e-5, "dp_ight", 1.0845),
        (2.0, 1e-2, "dp_ight", 1.859),
        (8.0, 1e-2, "dp_ight", 9.76),
        (10.0, 1e-2, "dp_ight", 12.66),
        (16.0, 1e-5, "theorem_6_3_4", 19.1),
        (0.5, 1e-3, "table_6_1", 2.05),
        (0.5, 1e-5, "table_6_1", 2.94),
    ],
)
def test_noise_of_a_theorem_gives_another_epsilon_than_claimed(claimed, delta, mu_of, real):
    """(a) and (c): the noise as printed, converted by the exact profile. All steps together are one release."""
    log = math.log(1 / delta)
    root = (math.sqrt(log + claimed) - math.sqrt(log)) ** 2  # the rho of Remark 2.5.3, of which there are two
    mu = {
        "dp_ight": math.sqrt(2 * 2 * root),
        "theorem_6_3_4": math.sqrt(2 * claimed**2 / (4 * log)),
        "table_6_1": math.sqrt(2) * claimed,
    }[mu_of]
    assert gdp_epsilon(mu, delta) == pytest.approx(real, rel=3e-3)


@pytest.mark.parametrize(("n", "exact", "claim"), [(1, 1.0, 0.0), (2, 0.781, 0.693), (3, 0.653, 0.732)])
def test_random_stopping_costs_more_than_theorem_26_says_for_one_and_two_records(n, exact, claim):
    """(d): the mean over the stopping times with the stop released, at a = 1, against 2 a ln(n)/n."""
    mean = math.log1p(np.mean([math.expm1(1 / k) for k in range(1, n + 1)]))
    assert mean == pytest.approx(exact, abs=1e-3)
    assert 2 * math.log(n) / n == pytest.approx(claim, abs=1e-3)


def theorem_2_of_dp_lssgd(epsilon, n, steps):
    """Return the least noise of Theorem 2 over mu, for G = 1."""
    mu = np.linspace(1e-3, 1 - 1e-3, 999)
    alpha = math.log(1 / DELTA) / ((1 - mu) * epsilon) + 1
    return math.sqrt(np.min(20 * steps * alpha / (mu * n**2 * epsilon)))


@pytest.mark.parametrize(("n", "missing"), [(60_000, 5), (50_000, 6)])
@pytest.mark.parametrize(
    ("epsilon", "noise"), [(0.3, 0.1162), (0.25, 0.1393), (0.2, 0.1739), (0.15, 0.2316), (0.1, 0.3471)]
)
def test_the_noise_of_dp_lssgds_code_is_the_fifth_part_of_its_theorem_in_variance(epsilon, noise, n, missing):
    """(o): 50 epochs of batches of 128."""
    ratio = theorem_2_of_dp_lssgd(epsilon, n, 50 * n / 128) / noise
    assert ratio == pytest.approx(math.sqrt(missing), rel=5e-4)


CLIENTS, PER_ROUND, ROUNDS = 975, 195, 100  # the LSTM of DP-Fed-LS
CLIENT_DELTA = CLIENTS**-1.1


@pytest.mark.parametrize(("z", "printed"), [(1.4, 17.69), (0.8, 39.90)])
def test_uniform_epsilons_of_dp_fed_ls_are_those_of_twice_the_noise(z, printed):
    """(p): dp-accounting reads z relative to the replace-one sensitivity, which is twice the clip."""
    orders = np.arange(2, 17)
    event = dpa.SampledWithoutReplacementDpEvent(CLIENTS, PER_ROUND, dpa.GaussianDpEvent(z))
    accountant = RdpAccountant(orders.tolist(), dpa.NeighboringRelation.REPLACE_ONE).compose(event, ROUNDS)
    plain = np.min(accountant.rdp + math.log(1 / CLIENT_DELTA) / (orders - 1))
    assert plain == pytest.approx(printed, abs=5e-3)


@pytest.mark.parametrize(("z", "epsilon"), [(1.4, 25.5), (0.8, 85.5)])
def test_noise_of_z_times_the_clip_has_larger_epsilons_than_dp_fed_ls_prints(z, epsilon):
    """(p): in privet z is relative to the clip. Twice the noise would keep the printed epsilon."""

    def certified(noise):
        return GradientPlan(FixedSize(PER_ROUND, CLIENTS), ROUNDS, 1.0, noise).guarantee(CLIENT_DELTA).epsilon

    assert certified(z) == pytest.approx(epsilon, rel=3e-3)
    assert certified(2 * z) < {1.4: 7.3, 0.8: 19.6}[z]
