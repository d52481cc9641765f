"""Every method of the DP-LSSGD paper trains with the learning rate that is best on held-out images."""

import importlib
import os
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DATA = Path(os.environ.get("PRIVET_DATA", ROOT.parent / "shared" / "data"))

pytest.importorskip("torch", reason="networks need PyTorch: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def experiment(opened):
    yield opened("dp_lssgd_rates")
    importlib.import_module("deep_runs").images.cache_clear()


@pytest.mark.parametrize(
    "images, file, name",
    [
        ("mnist", "mnist.npz", "dp_lssgd_rates_quick"),
        ("cifar10", "cifar10_15k_3k.npz", "dp_lssgd_rates_cifar10_quick"),
    ],
)
def test_quick_run_chooses_rates_on_held_out_images_only(images, file, name, experiment, tmp_path):
    if not (DATA / file).exists():
        pytest.skip(f"{file} is not available: set PRIVET_DATA to its folder")
    results = experiment.main(["--images", images, "--quick", "--workers", "1"])
    written = {path.name for path in (tmp_path / "results").iterdir()}
    assert written == {f"{name}.{kind}" for kind in ("json", "png")}
    assert {row["source"] for row in results["rows"]} == {file}
    for row in results["rows"]:
        candidates = [each for each in results["candidates"] if each["method"] == row["method"]]
        found = {each["learning_rate"]: each["held_out_accuracy"] for each in candidates}
        assert found[row["learning_rate"]] == max(found.values())
    assert len(results["gains"]) == 2


def sizes(experiment):
    return [
        experiment.size_of(images, preset) for images in experiment.RATES for preset in ("standard", "full", "quick")
    ]


def test_candidates_never_see_their_held_out_images_in_training(experiment):
    for size in sizes(experiment):
        for each in experiment.trials(size):
            assert each.n + each.held_out == size.jobs[0].n
            assert each.held_out > 0
            assert each.seed not in range(size.runs)


def test_the_rate_of_the_paper_is_among_the_candidates(experiment):
    for size in sizes(experiment):
        tried = {(*experiment.setting(each), each.learning_rate) for each in experiment.trials(size)}
        assert {(*experiment.setting(each), each.learning_rate) for each in size.jobs} <= tried
