"""Noise that three servers, as processes, draw jointly: what they open distinguishes as little as the plan claims."""

import os
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest

if any(find_spec(name) is None for name in ("mpyc", "gmpy2", "grpc", "cryptography")):
    pytest.skip("several parties need MPyC: install the extra multiparty", allow_module_level=True)
if os.environ.get("PRIVET_AUDIT") != "long":
    pytest.skip("joint noise for many runs takes half a minute: make audit draws it", allow_module_level=True)

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "multiparty"))

import noisy_server
from multiparty_scenarios import as_gaussian
from parties import Machine

from privet.audit import from_outputs

RUNS = 1000


@pytest.fixture(scope="module")
def opened(tmp_path_factory):
    folder = tmp_path_factory.mktemp("noise")
    with Machine() as machine:
        orders = {"ports": machine.ports, "runs": RUNS}
        made = [machine.start(folder / str(i), noisy_server.main, {**orders, "index": i}) for i in range(3)]
        assert [server.wait() for server in made] == [0, 0, 0], [server.err for server in made]
    names = [f"{name}_{world}" for name in ("right", "halved") for world in (0, 1)]
    return {name: np.load(folder / "0" / f"{name}.npy")[:, None].astype(float) for name in names}


def audited(opened, name):
    guarantee = as_gaussian(noisy_server.PLAN.guarantee())
    return from_outputs(opened[f"{name}_0"], opened[f"{name}_1"], guarantee=guarantee, confidence=0.999)


def test_the_opened_sum_reveals_most_of_the_claim_and_no_more(opened):
    found = audited(opened, "right")
    assert not found.is_violation, str(found)
    assert found.lower_bound > 0.5 * found.claimed, str(found)
    assert np.std(opened["right_0"]) == pytest.approx(noisy_server.PLAN.law.std, rel=0.15)


def test_noise_of_half_the_size_is_flagged(opened):
    found = audited(opened, "halved")
    assert found.is_violation, str(found)
