"""Each warning appears where it saves somebody, and not in the ordinary case."""

import warnings
from functools import partial

import numpy as np
import pandas as pd
import pytest
import torch
from scipy import sparse
from sklearn.datasets import load_diabetes
from sklearn.model_selection import GridSearchCV

from privet import (
    PrivateHuberRegressor,
    PrivateLogisticRegression,
    PrivateRidge,
    PrivateSparseLogisticRegression,
    PrivateSparseRegression,
    PrivetWarning,
    TableModel,
    cautions,
)
from privet.cautions import about_budget, about_existing_file, once
from privet.deep import make_private
from privet.federated import Committee, client_plan, committee_plan
from privet.linear import MODELS
from privet.linear.usefulness import loss_of_guessing
from privet.tables import Numeric, NumericTarget, TableSchema, Target

NOT_PRIVATE = "(depends on the rows; not private)"


def given(function, *arguments, **options) -> list[str]:
    """Return the warnings of privet that a call gives, as someone sees them who asked for every repetition."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        function(*arguments, **options)
    return [str(each.message) for each in caught if each.category is PrivetWarning]


def classes(n, d=5, scale=1.0):
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (n, d)) / np.sqrt(d) * scale
    return X, (X[:, 0] > 0).astype(int)


def test_an_ordinary_fit_gives_no_warning():
    X, y = classes(2000)
    assert given(PrivateLogisticRegression(1.0, random_state=0).fit, X, y) == []
    assert given(PrivateRidge(1.0, random_state=0).fit, X, X[:, 0]) == []


@pytest.mark.parametrize(("epsilon", "count"), [(10.0, 0), (10.5, 1)])
def test_an_epsilon_above_10_is_named(epsilon, count):
    X, y = classes(500)
    found = given(PrivateLogisticRegression(epsilon, random_state=0).fit, X, y)
    assert len(found) == count
    assert all("epsilon=10.5 is above 10" in text and "1 is usual" in text for text in found)


def test_a_release_without_noise_is_not_given_an_infinite_factor():
    with pytest.warns(PrivetWarning, match="there is no noise") as found:
        about_budget(float("inf"), 1e-6, 1000)
    assert "e^inf" not in str(found[0].message)


@pytest.mark.parametrize(("multiplier", "count"), [(50.0, 0), (0.5, 1)])
def test_an_epsilon_above_10_that_follows_from_the_noise_is_named(multiplier, count):
    X, y = classes(500)
    model = PrivateLogisticRegression(noise_multiplier=multiplier, method="gradient", random_state=0)
    found = given(model.fit, X, y)
    assert ["is above 10" in text for text in found] == [True] * count
    assert (model.guarantee_.epsilon > 10) == bool(count)


@pytest.mark.parametrize(("delta", "count"), [(0.0019, 0), (0.002, 1)])
def test_a_delta_of_at_least_1_over_n_is_named(delta, count):
    X, y = classes(500)
    found = given(PrivateLogisticRegression(4.0, delta, random_state=0).fit, X, y)
    assert len(found) == count
    assert all("delta=0.002 is at least 1/n" in text and "Leave delta out" in text for text in found)


def remedies(text):
    words = text.replace(",", "").split()
    epsilon = [float(word.removeprefix("epsilon=")) for word in words if word.startswith("epsilon=")]
    return epsilon, [int(words[place - 1]) for place, word in enumerate(words) if word == "records" and place > 20]


@pytest.mark.parametrize("name", [name for name in MODELS if not name.startswith(("sparse", "additive"))])
@pytest.mark.parametrize("delta", [None, 0.0])
def test_either_remedy_for_a_budget_that_is_too_small_ends_the_warning(name, delta):
    n = 100
    X, y = classes(n)
    makes_classes = hasattr(MODELS[name](), "classes")
    if delta == 0.0 and name == "ridge":
        delta = 1e-9
    (text,) = given(MODELS[name](0.02, delta, random_state=0).fit, X, y if makes_classes else X[:, 0])
    assert "no better than guessing" in text and NOT_PRIVATE not in text
    (epsilon,), (records,) = remedies(text)
    assert 0.02 < epsilon <= 10 and n < records
    X, y = classes(records)
    assert given(MODELS[name](0.02, delta, random_state=0).fit, X, y if makes_classes else X[:, 0]) == []
    X, y = classes(n)
    assert given(MODELS[name](epsilon, delta, random_state=0).fit, X, y if makes_classes else X[:, 0]) == []


def test_the_number_of_records_that_would_do_allows_for_their_smaller_default_delta():
    X, y = classes(1000, d=2)
    (text,) = given(PrivateLogisticRegression(1e-4, random_state=0).fit, X, y)
    _, (records,) = remedies(text)
    X, y = classes(records, d=2)
    assert given(PrivateLogisticRegression(1e-4, random_state=0).fit, X, y) == []


def test_no_epsilon_above_10_is_recommended():
    X, y = classes(20, d=200)
    (text,) = given(PrivateLogisticRegression(1.0, random_state=0).fit, X, y)
    (), (records,) = remedies(text)
    assert records > 100


def test_the_budget_warning_does_not_depend_on_the_values_of_the_table():
    X, y = classes(60)
    flipped = given(PrivateLogisticRegression(0.1, classes=[0, 1], random_state=0).fit, -X, 1 - y)
    assert flipped == given(PrivateLogisticRegression(0.1, classes=[0, 1], random_state=0).fit, X, y)
    assert len(flipped) == 1


def test_targets_far_beyond_the_default_bound_are_noticed():
    X, y = load_diabetes(return_X_y=True)
    settings = {"epsilon": 8.0, "feature_norm": 0.2, "random_state": 0}
    for kind in (PrivateRidge, PrivateHuberRegressor):
        (text,) = given(kind(**settings).fit, X, y)
        assert "target_bound, which was left at its default" in text and text.endswith(NOT_PRIVATE)
        assert given(kind(**settings, target_bound=175).fit, X, y - 175) == []
    standardised = (y - y.mean()) / y.std()  # a third of these targets is clipped, as may well be intended
    assert given(PrivateRidge(**settings).fit, X, standardised) == []


def test_rows_far_longer_than_the_default_bound_are_noticed():
    X, y = classes(500, scale=20.0)
    (text,) = given(PrivateLogisticRegression(4.0, random_state=0).fit, X, y)
    assert "feature_norm, which was left at its default" in text and text.endswith(NOT_PRIVATE)
    assert not any(character.isdigit() for character in text)
    assert given(PrivateLogisticRegression(4.0, feature_norm=2.0, random_state=0).fit, X, y) == []
    assert given(PrivateLogisticRegression(4.0, random_state=0).fit, X / 10, y) == []  # at most 2 long


@pytest.mark.parametrize("as_matrix", [np.asarray, sparse.csr_array])
@pytest.mark.parametrize("kind", [PrivateSparseLogisticRegression, PrivateSparseRegression])
def test_long_rows_of_sparse_models_are_noticed_although_their_entries_are_bounded_first(kind, as_matrix):
    X, y = classes(500, scale=20.0)
    (text,) = given(kind(4.0, random_state=0).fit, as_matrix(X), y)
    assert "feature_norm, which was left at its default" in text
    assert given(kind(4.0, random_state=0).fit, as_matrix(X / 20), y) == []
    assert given(kind(4.0, feature_norm=20.0, random_state=0).fit, as_matrix(X), y) == []


@pytest.mark.parametrize("committee", [None, Committee("majority", 3)])
def test_budgets_of_networks_and_of_clients_are_checked_like_those_of_tables(committee):
    make = client_plan if committee is None else partial(committee_plan, committee=committee, dimension=5)
    sizes = {"n_clients": 100, "clients_per_round": 10, "rounds": 2, "clip_norm": 1.0}
    epsilon, delta = given(make, (20.0, 0.01), **sizes)
    assert epsilon.startswith("epsilon=20 is above 10") and "permits publishing a client's data" in delta
    assert given(make, (8.0, 0.0099), **sizes) == []


def test_the_budget_of_a_network_is_checked():
    model = torch.nn.Linear(2, 2)
    data = torch.utils.data.TensorDataset(torch.zeros(100, 2), torch.zeros(100, dtype=torch.int64))
    sizes = {"loss": torch.nn.CrossEntropyLoss(), "epochs": 1, "batch_size": 10, "clip_norm": 1.0}
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    epsilon, delta = given(make_private, model, optimizer, data, budget=(20.0, 0.01), **sizes)
    assert epsilon.startswith("epsilon=20 is above 10") and "permits publishing a record of the dataset" in delta
    assert given(make_private, model, optimizer, data, budget=(8.0, 0.0099), **sizes) == []
    assert given(make_private, model, optimizer, data, noise_multiplier=0.1, **sizes) == []


def people(n=1000):
    rng = np.random.default_rng(0)
    age = rng.integers(0, 100, n)
    return pd.DataFrame({"age": age, "height": rng.integers(150, 200, n), "ill": np.where(age > 50, "yes", "no")})


@pytest.mark.parametrize(("highest", "count"), [(95, 0), (85, 1)])
def test_bounds_that_clip_a_tenth_of_a_column_are_noticed(highest, count):
    schema = TableSchema((Numeric("age", 0, highest), Numeric("height", 0, 200)), Target("ill", ("no", "yes")))
    found = given(TableModel(schema, PrivateLogisticRegression(4.0, random_state=0)).fit, people())
    assert len(found) == count
    assert all("a tenth or more of the cells of column 'age'" in text and NOT_PRIVATE in text for text in found)


def test_clipped_cells_of_a_target_are_noticed_once_and_no_bound_is_suggested():
    schema = TableSchema((Numeric("height", 0, 200),), NumericTarget("age", 0, 40))
    (text,) = given(TableModel(schema, PrivateRidge(4.0, random_state=0)).fit, people())
    assert "more than half of the cells of column 'age'" in text
    assert not any(character.isdigit() for character in text)


def test_a_warning_changes_nothing_that_is_computed():
    X, y = classes(60, scale=20.0)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", PrivetWarning)
        silent = PrivateLogisticRegression(11.0, 0.1, random_state=0).fit(X, y)
    with pytest.warns(PrivetWarning):
        loud = PrivateLogisticRegression(11.0, 0.1, random_state=0).fit(X, y)
    assert np.array_equal(silent.coef_, loud.coef_)
    assert silent.guarantee_ == loud.guarantee_


def test_the_category_silences_all_warnings():
    X, y = classes(60, scale=20.0)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        warnings.simplefilter("ignore", PrivetWarning)
        PrivateLogisticRegression(11.0, 0.1, random_state=0).fit(X, y)
    assert caught == []


def test_several_targets_give_each_warning_once_and_name_the_whole_budget():
    X, y = classes(60)
    three = np.arange(60) % 3
    settings = {"epsilon": 0.1, "delta": 0.02, "classes": [[0, 1], [0, 1, 2]], "random_state": 0}
    found = given(PrivateLogisticRegression(**settings).fit, X, np.column_stack([y, three]))
    assert len(found) == 2
    assert "delta=0.02 is at least 1/n" in found[0]
    assert "no better than guessing" in found[1]
    assert len(given(PrivateRidge(0.1, random_state=0).fit, X, X[:, :3])) == 1


@pytest.mark.parametrize("action", ["default", "always"])
def test_a_search_shows_each_warning_once_at_the_line_that_starts_it(action):
    X, y = classes(100)  # its three folds have 66 and 67 rows
    search = GridSearchCV(PrivateLogisticRegression(0.1, 0.02, random_state=0), {"alpha": [1e-4, 1e-3]}, cv=3)
    cautions._given_by_searches.clear()
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter(action)
        search.fit(X, y)
    found = [each for each in caught if each.category is PrivetWarning]
    assert [str(each.message).partition(" ")[0] for each in found] == ["delta=0.02", "the"]
    assert all(each.filename == __file__ for each in found)


def test_an_existing_model_file_is_named(tmp_path):
    path = tmp_path / "model.json"
    assert given(about_existing_file, path) == []
    path.write_text("{}")
    (text,) = given(about_existing_file, path)
    assert str(path) in text and "replaced" in text


def test_repetitions_are_counted_within_the_outermost_block():
    def repeat():
        with once():
            about_budget(20, 0, 10)
            with once():
                about_budget(30, 0, 10)
        about_budget(40, 0, 10)

    assert [text.partition(" ")[0] for text in given(repeat)] == ["epsilon=20", "epsilon=40"]


def test_guessing_has_the_loss_of_the_zero_model(monkeypatch):
    found = []
    monkeypatch.setattr("privet.linear.base.warn_of_noise", lambda task, *_: found.append(loss_of_guessing(task)))
    X, y = classes(300)
    PrivateLogisticRegression(random_state=0).fit(X, y)
    PrivateLogisticRegression(random_state=0).fit(X, np.arange(300) % 3)
    PrivateRidge(random_state=0).fit(X, X[:, 0])
    assert found == pytest.approx([np.log(2), np.log(3), 0.02])
