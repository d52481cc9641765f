"""What ``import privet`` offers, and what it does not load."""

import subprocess
import sys
from types import ModuleType

import pytest

import privet

EXTRAS = {"deep": "torch", "federated": "torch", "multiparty": "mpyc"}


@pytest.mark.parametrize("name", privet.__all__)
def test_every_exported_name_resolves(name):
    if name in EXTRAS:
        pytest.importorskip(EXTRAS[name])
    assert getattr(privet, name) is not None
    assert name in dir(privet)


def test_subpackages_are_attributes():
    code = "import privet; print(type(privet.plans).__name__, privet.privacy.Budget is privet.Budget)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["module", "True"]
    assert isinstance(privet.audit, ModuleType)


def test_an_unknown_name_raises_attribute_error():
    with pytest.raises(AttributeError, match="module 'privet' has no attribute 'spam'"):
        privet.spam  # noqa: B018


def test_importing_privet_loads_no_other_package():
    code = (
        "import sys, privet; print(*[name for name in sys.modules if name.startswith(('privet', 'numpy', 'sklearn'))])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["privet"]
