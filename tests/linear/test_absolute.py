"""PrivateAbsoluteRegressor, and the Gaussian smoothing of PrivateLinearSVC."""

import numpy as np
import pytest

from privet import PrivateAbsoluteRegressor, PrivateLinearSVC, PrivateRidge, load
from privet.objectives import GaussianAbsolute, GaussianHinge


@pytest.fixture(scope="module")
def skewed():
    """Return rows, and targets whose noise has the median 0 and a large mean."""
    rng = np.random.default_rng(0)
    X = rng.uniform(-1, 1, (4000, 3))
    return X, X[:, 0] + np.where(rng.random(4000) < 0.2, 4.0, 0.0)


@pytest.mark.parametrize("method", ["auto", "iteration", "output"])
def test_predicts_medians_where_least_squares_predicts_means(skewed, method):
    X, y = skewed
    settings = {"epsilon": 5.0, "feature_norm": 1.8, "target_bound": 5.0, "random_state": 0}
    median = PrivateAbsoluteRegressor(method=method, **settings).fit(X, y)
    mean = PrivateRidge(**settings).fit(X, y)
    error = {name: np.mean(np.abs(model.predict(X) - y)) for name, model in (("median", median), ("mean", mean))}
    assert error["median"] < 0.85 * error["mean"]


def test_the_unit_of_the_target_does_not_matter(skewed, tmp_path):
    X, y = skewed
    models = []
    for unit in (1.0, 64.0):
        settings = {"feature_norm": 1.8, "target_bound": 5.0 * unit, "corner_width": unit, "random_state": 0}
        models.append(PrivateAbsoluteRegressor(2.0, **settings).fit(X, y * unit))
    assert models[1].coef_ == pytest.approx(64 * models[0].coef_, rel=1e-6)
    models[1].save(tmp_path / "m.json")
    assert load(tmp_path / "m.json").corner_width == 64.0


def test_the_default_width_is_a_tenth_of_the_bound_and_the_loss_is_as_smooth_as_the_squared_one():
    loss = PrivateAbsoluteRegressor(target_bound=7.0)._objective()
    assert isinstance(loss, GaussianAbsolute)
    assert loss.width == pytest.approx(0.7)
    assert loss.curvature_bound == pytest.approx(1.0)
    assert PrivateAbsoluteRegressor(corner_width=0.3)._objective().width == 0.3


@pytest.mark.parametrize("width", [0.0, -1.0, np.inf, "wide"])
def test_an_impossible_width_is_refused(skewed, width):
    with pytest.raises(ValueError, match="corner_width must"):
        PrivateAbsoluteRegressor(corner_width=width).fit(*skewed)


@pytest.mark.parametrize("method", ["auto", "iteration", "objective", "minimiser"])
def test_a_gaussian_hinge_separates_classes(skewed, method):
    X, y = skewed[0], skewed[0][:, 0] > 0
    settings = {"alpha": 0.1} if method == "minimiser" else {}
    model = PrivateLinearSVC(3.0, feature_norm=1.8, loss="gaussian", method=method, random_state=0, **settings)
    assert model.fit(X, y).score(X, y) > 0.9
    assert isinstance(model._objective(2), GaussianHinge)
    assert model._objective(2).width == 0.5


@pytest.mark.parametrize("loss", ["hinge", None, 1])
def test_an_unknown_loss_is_refused(skewed, loss):
    with pytest.raises(ValueError, match="loss must be one of 'parabola', 'gaussian', got"):
        PrivateLinearSVC(loss=loss).fit(skewed[0], skewed[0][:, 0] > 0)
