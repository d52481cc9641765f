import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.compose import ColumnTransformer
from sklearn.decomposition import PCA
from sklearn.exceptions import NotFittedError
from sklearn.feature_selection import SelectKBest
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import GridSearchCV
from sklearn.pipeline import FeatureUnion, Pipeline, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    KBinsDiscretizer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from privet import PrivateLogisticRegression
from privet.preprocessing import PrivateScaler, PublicScaler, total_guarantee
from privet.privacy import compose


def private(**fields):
    return PrivateScaler(0.5, 1e-6, **({"lower": -4, "upper": 4, "clip_output": 2.0} | fields))


def model(**fields):
    return PrivateLogisticRegression(1.0, 1e-6, **({"feature_norm": 3.0, "classes": [0, 1]} | fields))


@pytest.fixture(scope="module")
def data(rows):
    return rows, (rows[:, 0] > 1).astype(int)


def assumed_of(guarantee):
    return [part.text for part in guarantee.assumptions if not part.is_enforced]


# --------------------------------------------------------------------------------------------------------- the sum


@pytest.mark.parametrize("method", ["moments", "quantiles"])
@pytest.mark.parametrize("delta", [None, 1e-5])
def test_the_guarantee_of_a_pipeline_is_the_composition_of_its_steps(data, method, delta):
    pipeline = make_pipeline(private(method=method), model()).fit(*data)
    total = total_guarantee(pipeline, delta)
    parts = [step.guarantee_ for _, step in pipeline.steps]
    expected = compose(parts, delta)
    alone = [part.epsilon_at(total.delta) for part in parts]
    assert total.epsilon == expected.epsilon
    assert total.delta == (2e-6 if delta is None else delta)
    assert total.event == expected.event
    assert max(alone) < total.epsilon < sum(alone)
    assert not total.is_conditional
    text = total.statement(verbose=True)
    assert "(privatescaler, privatelogisticregression) are counted as made from the same rows" in text
    assert "second moments" in text or "quantiles" in text
    assert "noisy gradient" in text


def test_public_steps_are_free(data):
    pipeline = make_pipeline(PublicScaler(-4, 4), "passthrough", Normalizer(), None, model()).fit(*data)
    total = total_guarantee(pipeline)
    assert total.epsilon == pytest.approx(pipeline[-1].guarantee_.epsilon, rel=1e-9)
    assert not total.is_conditional


def test_the_total_of_a_single_estimator_is_its_own_guarantee(data):
    scaler = private().fit(data[0])
    assert total_guarantee(scaler).epsilon == pytest.approx(scaler.guarantee_.epsilon)


def test_nested_pipelines_columns_and_unions_are_walked(data):
    frame = pd.DataFrame(data[0], columns=["a", "b", "c"])
    columns = ColumnTransformer(
        [
            ("one", Pipeline([("inner", private(lower=[-4], upper=[4]))]), ["a"]),
            ("two", private(method="quantiles"), ["b"]),
            ("gone", "drop", ["c"]),
        ],
        remainder="passthrough",
    )
    union = FeatureUnion([("x", private(lower=-9, upper=9)), ("y", "passthrough"), ("z", "drop")])
    pipeline = Pipeline([("columns", columns), ("union", union), ("model", model())]).fit(frame, data[1])
    total = total_guarantee(pipeline, 1e-5)
    assert "(columns__one__inner, columns__two, union__x, model) are counted" in total.statement(verbose=True)
    fitted = pipeline["columns"].named_transformers_
    parts = [fitted["one"][0], fitted["two"], pipeline["union"].transformer_list[0][1], pipeline["model"]]
    assert total.epsilon == compose([part.guarantee_ for part in parts], 1e-5).epsilon


def test_assumptions_about_seeds_are_kept(data):
    pipeline = make_pipeline(private(random_state=1), model()).fit(*data)
    assert "seed" in " ".join(assumed_of(total_guarantee(pipeline)))


# ---------------------------------------------------------------------------------------------------- steps between


@pytest.mark.parametrize("step", [Normalizer(), Binarizer(), PolynomialFeatures(2), FunctionTransformer()], ids=repr)
def test_steps_that_treat_each_row_by_itself_add_nothing(data, step):
    assert not total_guarantee(make_pipeline(step, model()).fit(*data)).is_conditional


def test_that_a_function_treats_rows_independently_is_an_assumption(data):
    pipeline = Pipeline([("tame", FunctionTransformer(np.tanh)), ("model", model())]).fit(*data)
    total = total_guarantee(pipeline)
    assert assumed_of(total) == ["step 'tame' (FunctionTransformer) transforms each row independently of the others"]
    assert "provided that" in total.statement(verbose=True).splitlines()[0]


@pytest.mark.parametrize("encoder", [OneHotEncoder, OrdinalEncoder])
def test_declared_categories_are_free_and_found_ones_are_not(data, encoder):
    X = np.column_stack([data[1], 1 - data[1]])
    total = total_guarantee(make_pipeline(encoder(categories=[[0, 1], [0, 1]]), model()).fit(X, data[1]))
    assert not total.is_conditional
    assert "were declared beforehand" in total.statement(verbose=True)
    for fields in ({}, {"categories": [[0, 1], [0, 1]], "min_frequency": 3}, {"max_categories": 2}):
        if encoder is OrdinalEncoder and "min_frequency" in fields:
            fields |= {"handle_unknown": "use_encoded_value", "unknown_value": -1}
        with pytest.raises(ValueError, match=r"\(O\w+Encoder\) learned .*categories_"):
            total_guarantee(make_pipeline(encoder(**fields), model()).fit(X, data[1]))


@pytest.mark.parametrize(
    ("step", "learned"),
    [
        (StandardScaler(), "mean_"),
        (MinMaxScaler(), "data_max_"),
        (PCA(2), "components_"),
        (SimpleImputer(), "statistics_"),
        (SelectKBest(k=2), "scores_"),
        (KBinsDiscretizer(3, quantile_method="averaged_inverted_cdf"), "bin_edges_"),
    ],
    ids=repr,
)
def test_a_step_that_learned_without_a_guarantee_is_refused_unless_listed_as_public(data, step, learned):
    pipeline = Pipeline([("before", step), ("model", model())]).fit(*data)
    with pytest.raises(ValueError, match=rf"step 'before' \(\w+\) learned .*{learned}.*public=\('before',\)") as error:
        total_guarantee(pipeline)
    assert "\n" not in str(error.value)
    for public in (("before",), ["before"], "before"):
        total = total_guarantee(pipeline, public=public)
        assert total.epsilon == pytest.approx(pipeline[-1].guarantee_.epsilon, rel=1e-9)
        assert assumed_of(total) == [
            f"what step 'before' ({type(step).__name__}) learned, it learned from public data only"
        ]


def test_nested_steps_are_found(data):
    hidden = ColumnTransformer([("numbers", make_pipeline(private(lower=-9), StandardScaler()), [0, 1])])
    pipeline = Pipeline([("columns", FeatureUnion([("left", hidden)])), ("model", model())]).fit(*data)
    path = "columns__left__numbers__standardscaler"
    with pytest.raises(ValueError, match=rf"step '{path}' \(StandardScaler\)"):
        total_guarantee(pipeline)
    for public in (path, "columns__left__numbers", "columns"):
        assert len(assumed_of(total_guarantee(pipeline, public=(public,)))) == 1
    for public in ("columns__left__num", "left", "standardscaler"):
        with pytest.raises(ValueError, match="learned"):
            total_guarantee(pipeline, public=(public,))
    with pytest.raises(ValueError, match="public lists 'typo', but no such step needs to be listed"):
        total_guarantee(pipeline, public=(path, "typo"))


def test_a_search_over_settings_is_refused(data):
    search = GridSearchCV(model(), {"alpha": [1e-4, 1e-2]}, cv=2).fit(*data)
    with pytest.raises(ValueError, match=r"GridSearchCV learned .*best_estimator_"):
        total_guarantee(search)


def test_a_model_without_privacy_is_refused(data):
    with pytest.raises(ValueError, match=r"\(LogisticRegression\) learned .*coef_"):
        total_guarantee(make_pipeline(private(), LogisticRegression()).fit(*data))


def test_a_private_step_cannot_be_declared_public(data):
    pipeline = make_pipeline(private(), model()).fit(*data)
    with pytest.raises(ValueError, match="'privatescaler', which has its own guarantee"):
        total_guarantee(pipeline, public=("privatescaler",))


@pytest.mark.parametrize(
    "steps", [[("a", PublicScaler(-1, 1))], [("a", "passthrough")], [("a", Normalizer())]], ids=str
)
def test_a_pipeline_with_nothing_private_has_no_guarantee(data, steps):
    with pytest.raises(ValueError, match="No step of this pipeline has a guarantee"):
        total_guarantee(Pipeline(steps).fit(data[0]))


@pytest.mark.parametrize(
    "pipeline",
    [
        make_pipeline(private(), model()),
        make_pipeline(StandardScaler(), model()),
        ColumnTransformer([("a", private(), [0])]),
        private(),
    ],
    ids=lambda pipeline: type(pipeline).__name__,
)
def test_an_unfitted_pipeline_has_no_guarantee(pipeline):
    with pytest.raises(NotFittedError):
        total_guarantee(pipeline)


class Silent(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        return self

    def transform(self, X):
        return X - np.mean(X, axis=0)

    def __sklearn_is_fitted__(self):
        return True


class Stateless(Silent):
    def __sklearn_tags__(self):
        tags = super().__sklearn_tags__()
        tags.requires_fit = False
        return tags


class Free(Silent):
    def fit(self, X, y=None):
        self.shift_, self.guarantee_ = 1.0, None
        return self


def test_unknown_transformers_must_be_listed_as_public(data):
    pipeline = make_pipeline(Silent(), model()).fit(*data)
    with pytest.raises(NotFittedError, match=r"'silent' \(Silent\) has no fitted attributes.*public=\('silent',\)"):
        total_guarantee(pipeline)
    assert len(assumed_of(total_guarantee(pipeline, public=("silent",)))) == 1
    stateless = total_guarantee(make_pipeline(Stateless(), model()).fit(*data))
    assert assumed_of(stateless) == ["step 'stateless' (Stateless) transforms each row independently of the others"]
    assert not total_guarantee(make_pipeline(Free(), model()).fit(*data)).is_conditional


def test_an_attribute_guarantee_of_another_type_is_not_accepted(data):
    pipeline = make_pipeline(Free(), model()).fit(*data)
    pipeline[0].guarantee_ = "trust me"
    with pytest.raises(ValueError, match=r"learned guarantee_, shift_"):
        total_guarantee(pipeline)


@pytest.mark.parametrize("public", [(), ("columntransformer",)])
def test_a_function_that_chooses_columns_must_be_listed_as_public(public):
    X = pd.DataFrame({"a": [0.0, 1.0, 2.0, 3.0], "b": [1.0, 0.0, 1.0, 9.0]})

    def choose(frame):  # one record decides
        return [name for name in frame if (frame[name] > 5).any()]

    columns = ColumnTransformer([("s", PrivateScaler(1.0, 1e-6, lower=-10, upper=10), choose)])
    model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1])
    pipeline = make_pipeline(columns, model).fit(X, [0, 1, 0, 1])
    if public:
        assert total_guarantee(pipeline, public=public).is_conditional
    else:
        with pytest.raises(ValueError, match="selects columns by a function"):
            total_guarantee(pipeline)


def test_two_steps_with_the_same_seed_are_refused():
    X = np.random.default_rng(0).uniform(-1, 1, (50, 2))
    scaler = PrivateScaler(1.0, 1e-6, lower=-1, upper=1, random_state=7)
    model = PrivateLogisticRegression(1.0, 1e-6, classes=[0, 1], random_state=7)
    pipeline = make_pipeline(scaler, model).fit(X, X[:, 0] > 0)
    with pytest.raises(ValueError, match="same random_state"):
        total_guarantee(pipeline)
    one, other = (PrivateScaler(epsilon, 1e-6, lower=-1, upper=1, random_state=7).fit(X) for epsilon in (0.5, 1.0))
    # Noise of one seed at two budgets would be the same up to its scale, and cancel.
    scales = [float(s.guarantee_.statement(verbose=True).split("noise of std ")[1].split(" ")[0]) for s in (one, other)]
    unmasked = (one.center_ / scales[0] - other.center_ / scales[1]) / (1 / scales[0] - 1 / scales[1])
    assert np.abs(unmasked - X.mean(axis=0)).max() > 1e-4
