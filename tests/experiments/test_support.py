"""Reading the first rows of a data file gives the same rows as reading all of it."""

import zipfile

import numpy as np
import pytest


@pytest.fixture
def support(opened):
    return opened("support")


@pytest.mark.parametrize("n", [0, 1, 3, 4, 9])
@pytest.mark.parametrize("order", ["C", "F"])
def test_the_first_rows_are_those_of_the_whole_file(support, monkeypatch, tmp_path, n, order):
    values = np.random.default_rng(0).integers(0, 256, (4, 3, 2)).astype(np.uint8)
    parts = {"x_train": np.array(values, order=order), "y_train": np.arange(4.0), "x_test": values + 1, "only": values}
    np.savez(tmp_path / "made.npz", **parts)
    monkeypatch.setenv("PRIVET_DATA", str(tmp_path))
    found = support.arrays("made.npz", {"train": n, "test": None})
    expected = {key: part[:n] if key.endswith("train") else part for key, part in parts.items()}
    assert found.keys() == expected.keys()
    for key, part in expected.items():
        np.testing.assert_array_equal(found[key], part, strict=True)
        assert found[key].flags.writeable


def test_rows_behind_the_first_are_not_read(support, monkeypatch, tmp_path):
    np.savez(tmp_path / "made.npz", x_train=np.zeros((1000, 1000), np.uint8))
    monkeypatch.setenv("PRIVET_DATA", str(tmp_path))
    taken, read = [], zipfile.ZipExtFile.read

    def counted(file, n=-1):
        content = read(file, n)
        taken.append(len(content))
        return content

    monkeypatch.setattr(zipfile.ZipExtFile, "read", counted)
    support.arrays("made.npz", {"train": 5})
    assert 5000 <= sum(taken) < 10_000
