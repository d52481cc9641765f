"""Images are decoded correctly, networks have the sizes of the papers, and runs are reproducible."""

import importlib
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

ROOT = Path(__file__).resolve().parents[2]

torch = pytest.importorskip("torch", reason="networks need PyTorch: install the extra deep")
pytest.importorskip("matplotlib", reason="experiments draw plots: install the extra experiments")


@pytest.fixture
def deep_runs(monkeypatch):
    monkeypatch.syspath_prepend(str(ROOT / "experiments"))
    return importlib.import_module("deep_runs")


@pytest.fixture
def job(deep_runs, monkeypatch):
    """A small training on synthetic images of two classes that differ in brightness."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, 2, 300).astype(np.uint8)
    pixels = generator.integers(0, 80, (300, 28, 28)) + 150 * labels[:, None, None]
    parts = {"x_train": pixels[:200], "y_train": labels[:200], "x_test": pixels[200:], "y_test": labels[200:]}
    monkeypatch.setattr(deep_runs, "arrays", lambda name, first: {k: v.astype(np.uint8) for k, v in parts.items()})
    deep_runs.images.cache_clear()
    yield deep_runs.Job(
        "DP-SGD",
        "made up",
        "mnist_moments",
        n=200,
        net="mnist_cnn",
        steps=20,
        batch=50,
        clip_norm=1.0,
        learning_rate=0.5,
        noise_multiplier=0.5,
    )
    deep_runs.images.cache_clear()


def encoded(pixels):
    """Return the delta coding of pixels, with channels as the second axis."""
    coded = pixels.copy()
    coded[:, 0] -= coded[:, 1]
    coded[:, 2] -= coded[:, 1]
    for axis in (3, 2):
        before = np.zeros_like(coded)
        inner = [slice(None)] * 4
        outer = [slice(None)] * 4
        inner[axis], outer[axis] = slice(1, None), slice(None, -1)
        before[tuple(inner)] = coded[tuple(outer)]
        coded = coded - before
    return coded


def test_images_are_decoded(deep_runs):
    pixels = np.random.default_rng(0).integers(0, 256, (5, 3, 32, 32), dtype=np.uint8)
    np.testing.assert_array_equal(deep_runs.decoded(encoded(pixels)), pixels)


@pytest.mark.parametrize(
    ("net", "shape", "weights"),
    [("mnist_cnn", (1, 28, 28), 26_010), ("cnn5", (3, 32, 32), 62_006), ("tensorflow_cnn", (3, 24, 24), 1_068_298)],
)
def test_networks_have_the_size_of_the_papers(deep_runs, net, shape, weights):
    model = deep_runs.NETS[net]()
    assert sum(parameter.numel() for parameter in model.parameters()) == weights
    assert model(torch.zeros(2, *shape)).shape == (2, 10)


def test_scales_centre_or_shift_pixels(deep_runs):
    pixels = torch.rand(4, 3, 32, 32, generator=torch.Generator().manual_seed(0))
    middle = deep_runs.SCALES["centred"](pixels)
    assert middle.shape == (4, 3, 24, 24)
    assert torch.allclose(middle.mean((1, 2, 3)), torch.zeros(4), atol=1e-5)
    assert torch.allclose(middle.std((1, 2, 3)), torch.ones(4), atol=1e-5)
    assert torch.isfinite(deep_runs.SCALES["centred"](torch.zeros(1, 3, 32, 32))).all()
    assert deep_runs.SCALES["from_minus_one"](torch.tensor([0.0, 1.0])).tolist() == [-1, 1]


def test_a_training_learns_and_is_reproducible(deep_runs, job):
    outcome = deep_runs.train(job)
    assert outcome.last > 90
    assert outcome.steps[-1] == 20
    assert outcome.accuracy == deep_runs.train(job).accuracy
    assert outcome.accuracy != deep_runs.train(replace(job, seed=1)).accuracy
    assert outcome.noise_multiplier == 0.5
    assert outcome.epsilon == pytest.approx(deep_runs.plan_of(job).guarantee(deep_runs.DELTA).epsilon)


def test_both_methods_stay_within_the_budget(deep_runs, job):
    networks = importlib.import_module("dp_srm_networks")
    for setting in (networks.Setting(0.1, 50, 1.0), networks.Setting(0.1, 50, 1.0, refresh=0.5, first=2)):
        made = setting.of(replace(job, noise_multiplier=None), "", 5.0)
        assert made.steps == 4
        assert 4.9 < deep_runs.train(made).epsilon <= 5.0


def test_runs_are_summarised(deep_runs, job):
    one, two = (deep_runs.Outcome([1, 2], each, 1.0, 2.0, 3.0) for each in ([50.0, 70.0], [80.0, 60.0]))
    outcomes = {job: one, replace(job, seed=1): two}
    runs = deep_runs.grouped(outcomes, lambda each: each.method)["DP-SGD"]
    assert (runs.last.mean, runs.best.mean, runs.last.runs) == (65, 75, 2)
    assert runs.curve[1].tolist() == [65, 65]
    assert "seed" not in runs.summary()


def test_the_search_takes_the_best_candidate(deep_runs, job, monkeypatch):
    networks = importlib.import_module("dp_srm_networks")

    def by_rate(jobs, workers):
        return {each: deep_runs.Outcome([1], [100 * each.learning_rate], 1.0, 1.0, 1.0) for each in jobs}

    monkeypatch.setattr(networks, "run_all", by_rate)
    candidates = networks.grid((0.1, 0.3, 0.2), (32,), 1, (0.5,), (1, 2))
    assert {method: len(each) for method, each in candidates.items()} == {"DP-SGD": 3, "DP-SRM": 6}
    study = networks.Study("", replace(job, noise_multiplier=None), (1.0, 2.0), candidates, {}, runs=1)
    settings = networks.chosen(study, 1)
    assert len(settings) == 4
    assert {setting.learning_rate for setting in settings.values()} == {0.3}


def test_marks_end_with_the_last_step(deep_runs):
    assert deep_runs.marks(1) == [1]
    assert deep_runs.marks(1500)[-1] == 1500
    assert len(deep_runs.marks(1500)) == deep_runs.MARKS


def test_a_finished_job_is_not_run_again(deep_runs, job, monkeypatch, tmp_path):
    monkeypatch.setattr(importlib.import_module("support"), "ROOT", tmp_path)
    jobs = [job, replace(job, seed=1)]
    first = deep_runs.run_all(jobs[:1], 1)
    ran = []
    train = deep_runs.train
    monkeypatch.setattr(deep_runs, "train", lambda each: ran.append(each) or train(each))
    both = deep_runs.run_all(jobs, 1)
    assert ran == jobs[1:]
    assert both[job] == first[job]


def test_settings_are_chosen_on_training_images_that_follow_those_of_the_training(deep_runs, job):
    training, held_out = deep_runs.images(job.source, job.scale, 150, held_out=50)
    everything, test = deep_runs.images(job.source, job.scale, 200)
    assert len(training) == 150
    for few, all_of_them in zip(held_out.tensors, everything.tensors, strict=True):
        assert torch.equal(few, all_of_them[150:])
    assert len(test) == 100


def test_the_learning_rate_decreases_to_zero(deep_runs, job):
    annealed = replace(job, is_annealed=True, decay_at=10)
    training, test = deep_runs.images(job.source, job.scale, job.n)
    private = deep_runs.begun(annealed, deep_runs.NETS[job.net](), training)
    rates = {}
    for step, _ in deep_runs.accuracies(annealed, private, test):
        rates[step] = private.optimizer.param_groups[0]["lr"]
    assert rates[5] == pytest.approx(0.5 * 15 / 20)
    assert rates[10] == pytest.approx(0.05 * 10 / 20)
    assert rates[20] == 0.0


def test_a_training_is_compared_with_its_start_the_majority_class_and_itself_without_noise(deep_runs, job):
    _, test = deep_runs.images(job.source, job.scale, job.n)
    share = float(test.tensors[1].double().mean())
    found = deep_runs.start_and_majority(job)
    assert found["majority"] == pytest.approx(100 * max(share, 1 - share))
    assert 0 <= found["start"] <= 100
    plain = deep_runs.without_noise(replace(job, noise_multiplier=None, epsilon=1.0, smoothing=1.0))
    assert (plain.epsilon, plain.noise_multiplier, plain.smoothing) == (None, 0.0, 0.0)
