"""Projections keep the energy, permutations keep the weights, and the experiment runs on synthetic images."""

import json

import numpy as np
import pytest

torch = pytest.importorskip("torch", reason="clients train networks: install the extra deep")


@pytest.fixture
def experiment(opened):
    return opened("fed_orders")


@pytest.mark.parametrize("size", [9, 10])
def test_projections_are_those_on_the_eigenvectors_of_a_cycle(experiment, size):
    layer = np.random.default_rng(0).normal(size=size)
    found = experiment.projections(layer)
    laplacian = 2 * np.eye(size) - np.roll(np.eye(size), 1, axis=0) - np.roll(np.eye(size), -1, axis=0)
    values, vectors = np.linalg.eigh(laplacian)
    assert len(found) == size
    for value in np.unique(values.round(9)):  # a pair of eigenvectors is unique only as a plane
        place = np.isclose(values, value)
        assert np.sum(found[place] ** 2) == pytest.approx(np.sum((vectors[:, place].T @ layer) ** 2))


def test_every_arrangement_has_the_same_weights(experiment):
    layer = np.random.default_rng(0).normal(size=(4, 3, 5, 5))
    found = experiment.arrangements(layer)
    assert len(found) == len(experiment.ORDERS) + experiment.SHUFFLES + 1
    for each in found.values():
        assert np.array_equal(np.sort(each.ravel()), np.sort(layer.ravel()))
    assert np.array_equal(found["OIHW"], layer)


def test_quick_run(experiment, images, tmp_path):
    results = experiment.main(["--quick"])
    written = json.loads((tmp_path / "results" / "fed_orders_quick.json").read_text())
    assert written["spectra"] == results["spectra"]
    assert [row["round"] for row in results["projections"]] == [1, 2]
    assert all(0 <= row["smoothest"] <= 1 for row in results["projections"])
