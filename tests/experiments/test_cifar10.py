"""CIFAR-10 is read from the pictures of a public package."""

import json

import numpy as np
import pytest


@pytest.fixture
def experiment(opened):
    return opened("cifar10")


@pytest.fixture
def package(tmp_path):
    """A package with two images per batch, whose pixels are random."""
    image = pytest.importorskip("PIL.Image")
    generator = np.random.default_rng(0)
    folder = tmp_path / "package"
    folder.mkdir()
    images = {}
    for name in [*(f"data_batch_{number}" for number in range(1, 6)), "test_batch"]:
        images[name] = generator.integers(0, 256, (2, 32, 32, 3), dtype=np.uint8)
        image.fromarray(images[name].reshape(2, 1024, 3)).save(folder / f"{name}.png")
    (folder / "train_lables.json").write_text(json.dumps([*range(10)]))
    (folder / "test_lables.json").write_text("[3, 4]")
    return folder, images


def test_images_and_labels_keep_their_order_and_their_channels(experiment, package, tmp_path):
    folder, images = package
    target = experiment.main([str(folder)])
    assert target == tmp_path / ".experiments" / "data" / "cifar10.npz"
    with np.load(target) as made:
        assert made["x_train"].shape == (10, 3, 32, 32)
        assert np.array_equal(made["x_train"][4:6].transpose(0, 2, 3, 1), images["data_batch_3"])
        assert np.array_equal(made["x_test"][1, 2], images["test_batch"][1, :, :, 2])
        assert made["y_train"].tolist() == [*range(10)]
        assert made["y_test"].tolist() == [3, 4]


def test_the_file_is_found_by_other_experiments(experiment, package, monkeypatch, tmp_path):
    monkeypatch.setenv("PRIVET_DATA", str(tmp_path / "elsewhere"))
    target = experiment.main([str(package[0])])
    assert experiment.made_data("cifar10.npz") == target
    runs = pytest.importorskip("deep_runs")
    runs.images.cache_clear()
    training, test = runs.images("cifar10.npz", "from_zero_to_one", 10)
    assert training.tensors[0].shape == (10, 3, 32, 32)
    assert float(test.tensors[0][0, 1, 0, 0]) == pytest.approx(package[1]["test_batch"][0, 0, 0, 1] / 255)
    runs.images.cache_clear()


def test_labels_must_be_as_many_as_images(experiment, package):
    (package[0] / "test_lables.json").write_text("[3]")
    with pytest.raises(SystemExit, match="2 images and 1 labels of test"):
        experiment.main([str(package[0])])
