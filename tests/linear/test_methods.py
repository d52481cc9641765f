"""The registry of methods, and everything that is built from it."""

import re
from dataclasses import replace
from importlib import import_module
from pathlib import Path

import numpy as np
import pytest

from privet import (
    PrivateAbsoluteRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSparseLogisticRegression,
    PrivateSparseRegression,
)
from privet.linear import methods
from privet.linear.methods import METHODS

DOCS = Path(__file__).parents[2] / "docs"
ESTIMATORS = [
    PrivateAbsoluteRegressor,
    PrivateHuberRegressor,
    PrivateLinearSVC,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSparseLogisticRegression,
    PrivateSparseRegression,
]
X, Y = np.eye(4), np.array([0, 1, 0, 1])


def test_every_file_of_the_package_defines_the_method_of_its_name():
    files = {path.stem for path in Path(methods.__file__).parent.glob("[!_]*.py")}
    assert files == set(METHODS)
    for name, method in METHODS.items():
        assert method.name == name
        assert method.train is import_module(f"privet.linear.methods.{name}").train


@pytest.mark.parametrize("page", ["linear_models.md", "sparse_models.md"])
def test_the_table_in_the_docs_has_one_row_per_method(page):
    text = (DOCS / page).read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| `method` \|.*\n(?:\|.*\n)+", text, re.M)
    rows = [[cell.strip() for cell in line.strip("|").split("|")] for line in table.splitlines()[2:]]
    found = {re.match(r"`(\w+)`", row[0])[1]: row for row in rows}
    expected = {name: each for name, each in METHODS.items() if each.is_sparse == (page == "sparse_models.md")}
    assert list(found) == list(expected), f"docs/{page} must have one row per method, in the order of the registry"
    for name, method in expected.items():
        assert found[name][1] == method.summary
        if not method.is_sparse:
            assert found[name][-1] == ("yes" if method.is_pure else "no")


def test_the_decision_tables_say_when_to_take_each_method():
    text = (DOCS / "methods.md").read_text(encoding="utf-8")
    assert {name for name in METHODS if f'`"{name}"`' in text} == set(METHODS)


def test_the_table_of_solvers_in_the_docs_names_every_method():
    text = (DOCS / "linear_models.md").read_text(encoding="utf-8")
    (table,) = re.findall(r"^\| solver \|.*\n(?:\|.*\n)+", text, re.M)
    last_cells = [line.strip("|").split("|")[-1] for line in table.splitlines()[2:]]
    named = set(re.findall(r"`(\w+)`", " ".join(last_cells)))
    assert named == set(METHODS)


@pytest.mark.parametrize("kind", ESTIMATORS)
def test_the_docstring_describes_every_method_that_is_offered(kind):
    offered = kind.offered_methods()
    assert "{methods}" not in kind.__doc__
    for name, method in METHODS.items():
        described = f"``{name}``: noise is added to {method.summary}." in kind.__doc__
        assert described == (name in offered and kind is not PrivateSparseRegression)


def test_methods_that_need_a_bounded_loss_are_not_offered_for_the_squared_loss():
    assert set(PrivateHuberRegressor.offered_methods()) - set(PrivateRidge.offered_methods()) == {
        "adaptive",
        "minimiser",
        "objective",
    }


def test_sparse_and_other_estimators_share_no_method():
    assert not set(PrivateSparseRegression.offered_methods()) & set(PrivateHuberRegressor.offered_methods())


@pytest.fixture
def novel(monkeypatch):
    """Return a function that registers a new method, a copy of ``gradient`` with other traits."""
    return lambda **traits: monkeypatch.setitem(METHODS, "novel", replace(METHODS["gradient"], name="novel", **traits))


def test_a_registered_method_is_offered_by_every_estimator_that_is_not_sparse(novel):
    novel()
    for kind in ESTIMATORS:
        assert ("novel" in kind.offered_methods()) == (not kind._is_sparse)
    assert PrivateLogisticRegression(method="novel").fit(X, Y).method_ == "novel"


def test_a_setting_that_a_new_method_does_not_use_is_refused_for_that_reason(novel):
    novel(uses=())
    with pytest.raises(
        ValueError, match=r"'novel' does not use smoothing \(got 2\)\. .* or use method='gradient' or 'minibatch'\."
    ):
        PrivateLogisticRegression(method="novel", smoothing=2.0).fit(X, Y)
    with pytest.raises(ValueError, match=r"'novel' does not use clip_norm \(got 0\.1\)"):
        PrivateLogisticRegression(method="novel", clip_norm=0.1).fit(X, Y)


def test_auto_takes_the_applicable_method_of_least_expected_excess(novel):
    novel(excess=lambda task: 0.0, needs_one_score=True)
    model = PrivateLogisticRegression().fit(X, Y)
    assert model.method_ == "novel"
    assert model.method_reason_.startswith("by public numbers, its result is expected to be 0 above the minimum (")
    assert PrivateLogisticRegression().fit(X, [0, 1, 2, 0]).method_ == "gradient"
    assert PrivateLogisticRegression(delta=0.0).fit(X, Y).method_ == "objective"


def test_a_method_that_needs_a_bounded_loss_is_refused_for_the_squared_loss(novel):
    novel(needs_bound=True)
    assert "novel" in PrivateHuberRegressor.offered_methods()
    with pytest.raises(ValueError, match=r"'novel' needs a loss with bounded gradients, but the loss of PrivateRidge"):
        PrivateRidge(method="novel").fit(X, Y)
