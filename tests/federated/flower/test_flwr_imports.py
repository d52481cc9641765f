"""How Flower is loaded: quietly, and only by those who ask for it."""

import os
import subprocess
import sys

import pytest

HIDE = "import sys; sys.modules['flwr'] = sys.modules['flwr.app'] = None\n"
TOLD = "from flwr.supercore import telemetry; print(telemetry.FLWR_TELEMETRY_ENABLED)"


def run(code, **environment):
    kept = {key: value for key, value in os.environ.items() if key != "FLWR_TELEMETRY_ENABLED"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=kept | environment
    )


@pytest.mark.parametrize(("environment", "expected"), [({}, "0"), ({"FLWR_TELEMETRY_ENABLED": "1"}, "1")])
def test_telemetry_is_off_unless_it_is_asked_for(environment, expected):
    pytest.importorskip("flwr", reason="Flower is not installed: pip install 'privet[federated]'")
    assert run(f"import privet.federated.flower\n{TOLD}", **environment).stdout == f"{expected}\n"


def test_without_flower_the_remedy_is_named():
    found = run(f"{HIDE}import privet.federated.flower")
    assert found.returncode == 1
    assert "pip install 'privet[federated]'" in found.stderr.splitlines()[-1]


def test_simulations_need_no_flower():
    found = run(f"{HIDE}import privet.federated; print(sys.modules['flwr'])")
    assert found.stdout == "None\n"
