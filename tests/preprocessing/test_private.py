import math
import pickle
import re
from fractions import Fraction

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import NotFittedError
from sklearn.preprocessing import RobustScaler, StandardScaler
from sklearn.utils.estimator_checks import check_estimator

from privet.preprocessing import PrivateScaler
from privet.privacy import Guarantee, NoiseSource, gaussian_sigma
from privet.privacy.budget import Budget
from privet.privacy.events import Composition, GaussianRelease, PureRelease

METHODS = ["moments", "quantiles"]
by_method = pytest.mark.parametrize("method", METHODS)


def scaler_of(epsilon=1.0, **fields):
    return PrivateScaler(epsilon, **({"lower": -4, "upper": 4, "random_state": 0} | fields))


# ------------------------------------------------------------------------------------------ scikit-learn's checks


@pytest.mark.parametrize(
    ("seed", "fields"),
    [
        (None, {}),
        (None, {"center": False}),
        (0, {"delta": 0.0, "clip_output": 3.0}),
        (0, {"center": False, "quantiles": (0.1, 0.9)}),
    ],
    ids=repr,
)
@by_method
def test_the_scaler_passes_the_checks_of_scikit_learn(method, fields, seed):
    estimator = scaler_of(method=method, random_state=seed, **fields)
    results = check_estimator(estimator, on_fail=None, on_skip=None)
    failed = {result["check_name"]: str(result["exception"]) for result in results if result["status"] == "failed"}
    skipped = {result["check_name"] for result in results if result["status"] == "skipped"}
    noisy = {"check_pipeline_consistency", "check_transformer_general", "check_transformer_data_not_an_array"}
    assert len(results) > 40
    assert not failed
    assert skipped <= {"check_array_api_input"} | (noisy if seed is None else set())


@by_method
def test_a_clone_is_unfitted_and_a_pickled_copy_is_fitted(rows, method):
    scaler = scaler_of(2.0, delta=1e-5, method=method, quantiles=(0.1, 0.9)).fit(rows)
    assert not hasattr(clone(scaler), "scale_")
    assert clone(scaler).get_params() == scaler.get_params()
    back = pickle.loads(pickle.dumps(scaler))
    assert np.array_equal(back.transform(rows), scaler.transform(rows))
    assert back.guarantee_ == scaler.guarantee_


@by_method
def test_learned_attributes_are_float64_arrays(rows, method):
    scaler = scaler_of(method=method).fit(rows)
    learned = {name: value for name, value in vars(scaler).items() if name.endswith("_")}
    assert learned.keys() == {"n_features_in_", "lower_", "upper_", "center_", "scale_", "guarantee_"}
    for name in ("lower_", "upper_", "center_", "scale_"):
        assert learned[name].shape == (3,)
        assert learned[name].dtype == np.float64
    assert Guarantee.from_json(scaler.guarantee_.to_json()) == scaler.guarantee_


@by_method
def test_feature_names_are_kept(rows, method):
    frame = pd.DataFrame(rows, columns=["a", "b", "c"], index=np.arange(400) * 2)
    named = scaler_of(method=method, lower={"c": -4, "b": -3, "a": -2}).set_output(transform="pandas")
    out = named.fit_transform(frame)
    plain = scaler_of(method=method, lower=[-2, -3, -4]).fit(rows)
    assert out.columns.tolist() == ["a", "b", "c"]
    assert out.index.equals(frame.index)
    assert np.array_equal(out.to_numpy(), plain.transform(rows))
    assert named.feature_names_in_.tolist() == ["a", "b", "c"]
    with pytest.raises(ValueError, match="feature names"):
        named.transform(frame[["b", "a", "c"]])


# ------------------------------------------------------------------------------------------------------ the transform


@by_method
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_are_clipped_centred_scaled_and_clipped_again(rows, method, dtype):
    X = rows.astype(dtype)
    scaler = scaler_of(method=method).fit(X)
    expected = (np.clip(X.astype(np.float64), -4, 4) - scaler.center_) / scaler.scale_
    assert scaler.transform(X).dtype == dtype
    assert scaler.transform(X) == pytest.approx(expected, rel=1e-5, abs=1e-6)
    limited = scaler_of(method=method, clip_output=0.5).fit(X)
    assert limited.transform(X) == pytest.approx(np.clip(expected, -0.5, 0.5), rel=1e-5, abs=1e-6)
    inside = X[np.all(np.abs(X) <= 4, axis=1)]
    assert scaler.inverse_transform(scaler.transform(inside)) == pytest.approx(inside, rel=1e-4, abs=1e-4)


@by_method
def test_single_and_double_precision_agree(rows, method):
    narrow, wide = (scaler_of(method=method).fit(rows.astype(kind)) for kind in (np.float32, np.float64))
    assert narrow.center_ == pytest.approx(wide.center_, abs=1e-3)
    assert narrow.scale_ == pytest.approx(wide.scale_, rel=1e-3)


@by_method
@pytest.mark.parametrize("clip_output", [None, 0.3, 2.0, 1e6])
@pytest.mark.parametrize("center", [True, False])
def test_no_row_is_longer_than_the_stated_norm(rows, method, clip_output, center):
    scaler = scaler_of(method=method, clip_output=clip_output, center=center).fit(rows)
    corners = np.array(np.meshgrid(*[[-9.0, 9.0]] * 3)).reshape(3, -1).T
    longest = np.linalg.norm(scaler.transform(np.vstack([rows, corners])), axis=1).max()
    assert longest == pytest.approx(scaler.row_norm_, rel=1e-12)
    if clip_output is not None:
        assert scaler.row_norm_ <= clip_output * math.sqrt(3) * (1 + 1e-12)


@by_method
def test_with_little_noise_it_scales_like_scikit_learn(rows, method):
    X = np.clip(rows, -4, 4)
    private = scaler_of(1e5, method=method).fit(rows)
    if method == "moments":
        reference = StandardScaler().fit(X)
        center = reference.mean_
    else:
        reference = RobustScaler().fit(X)
        center = reference.center_
    assert private.center_ == pytest.approx(center, abs=0.02)
    assert private.scale_ == pytest.approx(reference.scale_, rel=0.02, abs=0.005)


@by_method
def test_a_seed_repeats_the_fit_and_no_seed_does_not(rows, method):
    def fit(seed):
        return scaler_of(method=method, random_state=seed).fit(rows).center_

    assert np.array_equal(fit(1), fit(1))
    assert not np.array_equal(fit(1), fit(2))
    assert not np.array_equal(fit(None), fit(None))


# ------------------------------------------------------------------------------------------------------- sparse rows


@by_method
def test_sparse_rows_stay_sparse_and_equal_dense_ones(rows, method):
    X = sparse.csr_array(rows * (np.abs(rows) > 1))
    one, other = (scaler_of(method=method, center=False, clip_output=2.0).fit(form) for form in (X, X.toarray()))
    assert np.array_equal(one.scale_, other.scale_)
    assert one.center_.tolist() == [0.0, 0.0, 0.0]
    out = one.transform(X)
    assert out.nnz == X.nnz
    assert out.toarray() == pytest.approx(other.transform(X.toarray()))
    assert np.array_equal(scaler_of(method=method, center=False).fit(X.tocsc()).scale_, one.scale_)


@by_method
def test_explicit_zeros_and_entries_stored_twice_change_nothing(rows, method):
    X = sparse.csr_array(rows * (np.abs(rows) > 1))
    halves = sparse.csr_array((np.repeat(X.data / 2, 2), np.repeat(X.indices, 2), X.indptr * 2), shape=X.shape)
    full = sparse.csr_array((X.toarray().ravel(), np.tile(np.arange(3), 400), np.arange(0, 1201, 3)), shape=X.shape)
    scales = [scaler_of(method=method, center=False).fit(form).scale_ for form in (X, halves, full)]
    assert np.array_equal(scales[0], scales[1])
    assert np.array_equal(scales[0], scales[2])


def test_sparse_rows_that_would_become_dense_are_refused(no_noise, rows):
    X = sparse.csr_array(rows)
    with pytest.raises(ValueError, match=r"does not accept sparse rows.*center=False"):
        scaler_of().fit(X)
    with pytest.raises(ValueError, match=r"bounds that include zero.*\[1, 4\]"):
        scaler_of(center=False, lower=[-1, 1, -1]).fit(X)


# ------------------------------------------------------------------------------------------------------- guarantees


@by_method
@pytest.mark.parametrize("delta", [None, 0.0, 1e-6])
@pytest.mark.parametrize("epsilon", [0.1, 1.0, 5.0])
@pytest.mark.parametrize("center", [True, False])
def test_the_guarantee_stays_within_the_budget_and_uses_it(rows, method, delta, epsilon, center):
    guarantee = scaler_of(epsilon, delta=delta, method=method, center=center).fit(rows).guarantee_
    assert 0.98 * epsilon < guarantee.epsilon <= epsilon
    assert guarantee.delta == (1e-6 if delta is None else delta)
    assert str(guarantee.adjacency) == "replace-one"
    if method == "quantiles" and delta == 0:
        assert isinstance(guarantee.event, Composition)
        assert len(guarantee.event.events) == (9 if center else 6)
    elif method == "quantiles":
        assert (
            "each of 9 quantiles" in guarantee.statement(verbose=True)
            if center
            else "each of 6 quantiles" in guarantee.statement(verbose=True)
        )
    else:
        assert isinstance(guarantee.event, PureRelease if delta == 0 else GaussianRelease)


def test_a_median_requested_twice_is_paid_for_once(rows):
    guarantee = scaler_of(method="quantiles", quantiles=(0.5, 0.9)).fit(rows).guarantee_
    assert "each of 6 quantiles" in guarantee.statement(verbose=True)


@by_method
@pytest.mark.parametrize("seed", [None, 7])
def test_the_guarantee_is_conditional_on_a_seed_only(rows, method, seed):
    guarantee = scaler_of(method=method, random_state=seed).fit(rows).guarantee_
    text = guarantee.statement(verbose=True)
    assert guarantee.is_conditional == (seed is not None)
    assert "clipped" in text
    assert "bounds were declared before the fit" in text
    assert "number of records, 400," in text
    assert ("quantiles of each of 3 columns" if method == "quantiles" else "second moments of 3 columns") in text


@pytest.mark.parametrize("delta", [1e-5, 0.0])
def test_the_noise_that_is_drawn_is_the_noise_that_is_stated(rows, monkeypatch, delta):
    drawn = []
    for name in ("add_gaussian", "add_k_norm"):
        monkeypatch.setattr(
            NoiseSource,
            name,
            lambda self, values, scale, *_, name=name: drawn.append((name, values.shape, scale)) or values,
        )
    scaler = scaler_of(0.7, delta=delta).fit(rows)
    sensitivity = 2 * math.sqrt(3) / 400
    scale = gaussian_sigma(sensitivity, Budget(0.7, delta)) if delta else sensitivity / 0.7
    assert drawn == [("add_gaussian" if delta else "add_k_norm", (6,), pytest.approx(scale, rel=1e-6))]
    assert f"{drawn[0][2]:.6g}" in scaler.guarantee_.statement(verbose=True)
    assert scaler.center_ == pytest.approx(np.clip(rows, -4, 4).mean(axis=0), abs=1e-7)


def test_every_quantile_is_drawn_once(rows, monkeypatch):
    scales = []
    top = NoiseSource.top_point
    monkeypatch.setattr(
        NoiseSource,
        "top_point",
        lambda self, starts, scores, end, scale, *rest: scales.append(scale) or top(self, starts, scores, end, scale),
    )
    scaler = scaler_of(method="quantiles", delta=0.0).fit(rows)
    events = scaler.guarantee_.event.events
    assert scales == [pytest.approx(2 / event.epsilon, rel=1e-15) for event in events]
    assert all(Fraction(scale) >= 2 / Fraction(event.epsilon) for scale, event in zip(scales, events, strict=True))


@by_method
def test_the_guarantee_depends_on_the_number_of_rows_only(rows, method):
    one, other = (scaler_of(method=method).fit(X).guarantee_ for X in (rows, 0 * rows + 3))
    assert one == other


# ---------------------------------------------------------------------------------------------------- odd columns


@by_method
@pytest.mark.parametrize("n", [1, 2])
@pytest.mark.parametrize("delta", [None, 0.0])
def test_fits_to_one_or_two_rows_are_finite(method, n, delta):
    X = np.array([[4.0, -4.0], [0.0, 9.0]])[:n]
    for seed in range(20):
        scaler = scaler_of(method=method, delta=delta, random_state=seed).fit(X)
        assert (np.abs(scaler.center_) <= 4).all()
        assert (scaler.scale_ >= 4e-4).all()
        assert np.isfinite(scaler.transform(X)).all()


@by_method
def test_columns_of_ties_and_bounds_have_sensible_scales(method):
    n = 4000
    X = np.column_stack(
        [np.full(n, 2.0), np.where(np.arange(n) % 2, -4.0, 4.0), np.full(n, -4.0), np.arange(n) < n // 10]
    )
    scaler = scaler_of(method=method).fit(X)
    assert scaler.center_[[0, 2, 3]] == pytest.approx([2.0, -4.0, 0.1 if method == "moments" else 0.0], abs=0.05)
    assert scaler.scale_[1] == pytest.approx(4.0 if method == "moments" else 8.0, rel=0.02)
    if method == "quantiles":  # no spread was found: half the bounds' width
        assert scaler.scale_[[0, 2, 3]].tolist() == [4.0, 4.0, 4.0]
    else:  # no spread was found: that of the noise
        assert (scaler.scale_[[0, 2]] < 0.5).all()
        assert scaler.scale_[3] == pytest.approx(0.3, abs=0.15)


def test_min_scale_bounds_small_scales_from_below(rows):
    for method in METHODS:
        scaler = scaler_of(1e6, method=method, min_scale=0.5).fit(rows)
        assert scaler.scale_.min() == pytest.approx(2.0)


@by_method
def test_extreme_rows_and_bounds_give_finite_results(method):
    X = np.array([[1e308, 1e308], [5e-324, 0.0], [-3.0, -1e-300]] * 10)
    for lower, upper in ((-1e300, 1e300), (-1e-280, 1e-280), (1e16, 1e16 + 4)):
        scaler = scaler_of(method=method, lower=lower, upper=upper)
        with np.errstate(over="raise", invalid="raise", divide="raise"):
            assert np.isfinite(scaler.fit_transform(X)).all()
        assert np.isfinite(scaler.row_norm_)


# -------------------------------------------------------------------------------------------- accuracy on real data


def errors(table, method, columns, seeds=10, **fields):
    """Return the errors of centres, in half widths of the bounds, and of scales, in logarithms; seeds by columns."""
    frame, lower, upper = (part[columns] for part in (table[0], table[1], table[2]))
    X = frame.clip(lower, upper, axis=1)
    if method == "moments":
        center, scale = X.mean(), X.std(ddof=0)
    else:
        center, scale = X.median(), X.quantile(0.75) - X.quantile(0.25)
    fits = [
        PrivateScaler(1.0, lower=lower, upper=upper, method=method, random_state=seed, **fields).fit(frame)
        for seed in range(seeds)
    ]
    half = ((upper - lower) / 2).to_numpy()
    return (
        np.array([(fit.center_ - center) / half for fit in fits]),
        np.array([np.log(fit.scale_ / scale) for fit in fits]),
    )


def rms(values):
    return float(np.sqrt(np.mean(np.square(values))))


@pytest.mark.parametrize(
    ("table", "method", "columns", "center", "scale"),
    [
        ("cancer", "moments", 30, 0.06, 0.45),
        ("cancer", "moments", 3, 0.022, 0.15),
        ("cancer", "quantiles", 3, 0.03, 0.25),
        ("diabetes", "moments", 10, 0.05, 0.45),
        ("diabetes", "quantiles", 3, 0.06, 0.55),
    ],
)
def test_accuracy_at_epsilon_one(request, table, method, columns, center, scale):
    """Root mean squares over 10 seeds: centres to that share of half the bounds' width, scales to that logarithm.

    They were measured at delta = 1/n^1.1.
    """
    table = request.getfixturevalue(table)
    names = table[0].columns[:columns]
    if method == "quantiles" and columns == 3 and "sex" in names:
        names = pd.Index(["age", "bmi", "bp"])
    centers, scales = errors(table, method, names, delta=len(table[0]) ** -1.1)
    assert rms(centers) < center
    assert rms(scales) < scale


def test_moments_err_by_no_more_than_the_noise_that_was_added(cancer):
    sigma = gaussian_sigma(2 * math.sqrt(30) / 569, Budget(1.0, 1e-6))
    centers, _ = errors(cancer, "moments", cancer[0].columns, seeds=20)
    assert rms(centers) == pytest.approx(sigma, rel=0.1)


def test_generous_bounds_hurt_moments_and_hardly_quantiles(diabetes):
    frame, lower, upper = (part[["age", "bmi"]] for part in diabetes)
    wide = (frame, lower - 1000, upper + 1000)
    half = ((wide[2] - wide[1]) / 2).to_numpy()
    by_moments, by_quantiles = (errors(wide, method, ["age", "bmi"])[0] * half for method in METHODS)
    assert rms(by_quantiles) < 3.0  # years, and kg/m^2
    assert rms(by_moments) > 4 * rms(by_quantiles)


# --------------------------------------------------------------------------------------------------------- refusals


class Untouchable:
    def __getattr__(self, name):
        raise AssertionError(f"the data was touched: {name}")


@pytest.mark.parametrize(
    ("fields", "cause"),
    [
        *(({"epsilon": value}, "epsilon must") for value in (0, -1.0, np.nan, np.inf, "1", None, True)),
        *(({"delta": value}, "delta must") for value in (-1e-9, 1.0, np.nan, "0.1", False)),
        *(({"method": value}, "method must be moments or quantiles") for value in ("mean", None)),
        *(({"quantiles": value}, "quantiles must") for value in ((0.5, 0.2), (0, 1), 0.5, None)),
        *(({"resolution": value}, "resolution must") for value in (0, 1, 2.5, None, True)),
        *(({"min_scale": value}, "min_scale must") for value in (0, -1, 1.5, np.nan, None)),
        *(({"clip_output": value}, "clip_output must") for value in (0, -1, np.inf, "3")),
        *(({"random_state": value}, "random_state") for value in (-1, 0.5, "seed")),
    ],
    ids=str,
)
def test_an_invalid_parameter_is_named_before_the_data_is_used(no_noise, fields, cause):
    with pytest.raises(ValueError, match=cause) as error:
        scaler_of(**fields).fit(Untouchable())
    assert "\n" not in str(error.value)


@by_method
@pytest.mark.parametrize(
    ("X", "fields", "cause"),
    [
        ([[np.nan, 1.0], [0.0, 1.0]], {}, "NaN.*public constant"),
        ([[np.inf, 1.0], [0.0, 1.0]], {}, "infinity"),
        ([["a", 1], ["b", 2]], {}, "convert"),
        (np.zeros((0, 2)), {}, "0 sample"),
        (np.zeros((2, 0)), {}, "0 feature"),
        (np.zeros(3), {}, "1D|1 dim"),
        (np.zeros((2, 2)), {"lower": [0, 0, 0]}, "There are 2 columns, got 3"),
        (np.zeros((2, 2)), {"lower": 5}, "lower must be below upper"),
        (np.zeros((2, 2)), {"lower": {"a": 0}}, "names 'a', which is not a column"),
        (np.zeros((2, 2)), {"upper": np.nan}, "upper must be finite"),
    ],
    ids=str,
)
def test_bad_rows_and_bounds_are_refused_before_any_noise_is_drawn(no_noise, method, X, fields, cause):
    with pytest.raises(ValueError, match=cause) as error:
        scaler_of(method=method, **fields).fit(X)
    assert "\n" not in str(error.value)


@by_method
def test_the_fixture_that_forbids_noise_works(no_noise, rows, method):
    with pytest.raises(AssertionError, match="noise was drawn"):
        scaler_of(method=method).fit(rows)


def test_bounds_are_required():
    with pytest.raises(TypeError, match=r"lower.*upper|required keyword"):
        PrivateScaler(1.0)


@by_method
def test_a_failed_fit_leaves_no_attributes(rows, method):
    scaler = scaler_of(method=method).fit(rows)
    with pytest.raises(ValueError, match="NaN"):
        scaler.fit(np.where(rows > 1, np.nan, rows))
    for use in (lambda: scaler.transform(rows), lambda: scaler.row_norm_):
        with pytest.raises(NotFittedError):
            use()
    assert not hasattr(scaler, "guarantee_")


def test_rows_with_other_columns_are_refused(rows):
    scaler = scaler_of().fit(rows)
    with pytest.raises(ValueError, match=re.escape("expecting 3 features")):
        scaler.transform(rows[:, :2])
