"""Flower is imported only where it is needed, and without its telemetry."""

import os
import subprocess
import sys

import pytest

HIDE = "import sys; sys.modules['flwr'] = sys.modules['flwr.app'] = None\n"
PRINT_TELEMETRY = "from flwr.supercore import telemetry; print(telemetry.FLWR_TELEMETRY_ENABLED)"


def run(code, **environment):
    kept = {key: value for key, value in os.environ.items() if key != "FLWR_TELEMETRY_ENABLED"}
    return subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=False, env=kept | environment
    )


@pytest.mark.parametrize(("environment", "expected"), [({}, "0"), ({"FLWR_TELEMETRY_ENABLED": "1"}, "1")])
def test_telemetry_is_off_by_default(environment, expected):
    pytest.importorskip("flwr", reason="Flower is not installed: install the extra federated")
    assert run(f"import privet.federated.flower\n{PRINT_TELEMETRY}", **environment).stdout == f"{expected}\n"


def test_the_import_error_names_the_package_to_install():
    found = run(f"{HIDE}import privet.federated.flower")
    assert found.returncode == 1
    assert "Run: pip install 'privet[federated]'" in found.stderr.splitlines()[-1]


def test_simulations_do_not_import_flower():
    found = run(f"{HIDE}from privet.federated import simulate; print(sys.modules['flwr'])")
    assert found.stdout == "None\n"
