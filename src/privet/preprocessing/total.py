"""The guarantee of a whole pipeline: the composition of its steps, or an error if a step is not accounted for."""

from collections.abc import Collection, Iterator, Sequence
from typing import Any

from sklearn.compose import ColumnTransformer
from sklearn.exceptions import NotFittedError
from sklearn.pipeline import FeatureUnion, Pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
)
from sklearn.utils import get_tags
from sklearn.utils.validation import check_is_fitted

from privet.privacy import Assumption, Guarantee, assumed, compose, enforced

# Fitted attributes that hold only the shape and the names of the columns.
_SHAPE = {"n_features_in_", "feature_names_in_", "n_features_out_"}
_ROW_BY_ROW = (Normalizer, Binarizer, PolynomialFeatures)
_ENCODERS = (OneHotEncoder, OrdinalEncoder)


def total_guarantee(pipeline: Any, delta: float | None = None, *, public: Sequence[str] = ()) -> Guarantee:
    """Return the guarantee of a fitted pipeline, all steps together.

    Parameters
    ----------
    pipeline : Pipeline, ColumnTransformer or FeatureUnion, possibly nested, or a single estimator
        Fitted. Every step must be *private*, with a ``guarantee_``; or *free*, with ``guarantee_`` None, like
        :class:`~privet.preprocessing.PublicScaler`; or known to transform each row independently of the others; or
        listed in ``public``.
    delta : float or None
        The total delta. None adds up the deltas of the steps.
    public : sequence of str
        Paths of steps that learned from public data only, like ``"numbers__impute"``. The path of a container covers
        all steps in it. This cannot be checked, so each such step becomes an assumption of the guarantee.

    Returns
    -------
    Guarantee
        The composition of all private steps. It composes further with other releases from the same rows.

    Raises
    ------
    ValueError
        If a step learned from the rows and has no guarantee: for example ``StandardScaler``, ``PCA``, an imputer, a
        ``OneHotEncoder`` that found its categories in the data, or a search over parameters.

    Formal guarantees
    -----------------
    Adaptive composition: each step may depend on what the steps before it released. Steps between them must transform
    each row independently of the others, because otherwise one record could change many rows. Unknown steps are
    therefore refused unless they are listed in ``public``.

    Examples
    --------
    >>> import numpy as np
    >>> from sklearn.pipeline import make_pipeline
    >>> from privet import PrivateLogisticRegression
    >>> from privet.preprocessing import PrivateScaler, total_guarantee
    >>> X = np.random.default_rng(0).normal(size=(300, 2))
    >>> scaler = PrivateScaler(0.5, 1e-6, lower=-5, upper=5, clip_output=3.0)
    >>> model = PrivateLogisticRegression(1.0, 1e-6, feature_norm=4.0, classes=[0, 1])
    >>> total = total_guarantee(make_pipeline(scaler, model).fit(X, X[:, 0] > 0), delta=1e-6)
    >>> 1.0 < total.epsilon < 1.5
    True
    """
    declared = _PublicSteps((public,) if isinstance(public, str) else tuple(public))
    guarantees: dict[str, Guarantee] = {}
    conditions: list[Assumption] = []
    seeds: dict[int, str] = {}
    for path, step in _steps(pipeline, ""):
        guarantee = getattr(step, "guarantee_", None)
        if isinstance(step, ColumnTransformer):
            conditions.append(_choice_of_columns(path, step, declared))
        elif isinstance(guarantee, Guarantee):
            guarantees[path] = guarantee
            _check_seed(path, step, seeds)
        elif hasattr(step, "guarantee_") and guarantee is None:
            continue
        elif declared.covers(path):
            conditions.append(assumed(f"what {_named(path, step)} learned, it learned from public data only"))
        else:
            conditions += _conditions(path, step)
    declared.check_used(guarantees)
    if not guarantees:
        raise ValueError("No step of this pipeline has a guarantee, so there is nothing to add up.")
    steps = ", ".join(path or "the estimator" for path in guarantees)
    same_rows = enforced(f"the releases of all private steps ({steps}) are counted as made from the same rows")
    return compose(list(guarantees.values()), delta).assuming(same_rows, *conditions)


class _PublicSteps:
    """The paths that the caller listed as public, and which of them were found in the pipeline."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._paths = paths
        self._met: set[str] = set()

    def covers(self, path: str) -> bool:
        """Return whether the step, or a container of it, was listed."""
        found = {name for name in self._paths if path == name or path.startswith(f"{name}__")}
        self._met |= found
        return bool(found)

    def check_used(self, private: Collection[str]) -> None:
        """Raise for a listed path that no step needs: a typing error, or a step that has a guarantee."""
        for name in self._paths:
            if name in private:
                raise ValueError(f"public lists {name!r}, which has its own guarantee. Remove it from the list.")
            if name not in self._met:
                raise ValueError(f"public lists {name!r}, but no such step needs to be listed. Check the spelling.")


def _steps(step: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the paths and steps that contain no other steps, and column transformers whose columns a function chose."""
    if step is None or (isinstance(step, str) and step in {"passthrough", "drop"}):
        return
    parts: list[tuple[str, Any]] | None = None
    if isinstance(step, Pipeline):
        parts = list(step.steps)
    elif isinstance(step, FeatureUnion):
        parts = list(step.transformer_list)
    elif isinstance(step, ColumnTransformer):
        check_is_fitted(step)
        parts = [(name, part) for name, part, _ in step.transformers_]
        if any(callable(columns) for _, _, columns in step.transformers):
            yield path, step
    if parts is None:
        yield path, step
        return
    for name, part in parts:
        yield from _steps(part, f"{path}__{name}" if path else name)


def _conditions(path: str, step: Any) -> list[Assumption]:
    """Return the assumptions for a step without a guarantee. Raise if it may have learned from the rows."""
    who = _named(path, step)
    row_by_row = assumed(f"{who} transforms each row independently of the others")
    if type(step) is FunctionTransformer:
        return [] if step.func is None else [row_by_row]  # a function could subtract the mean of all rows
    if type(step) in _ROW_BY_ROW:
        return []
    if type(step) in _ENCODERS and _is_declared(step):
        return [enforced(f"the categories of {who} were declared before the fit")]
    learned = sorted(name for name in vars(step) if name.endswith("_") and not name.startswith("_"))
    learned = [name for name in learned if name not in _SHAPE]
    if learned:
        raise ValueError(
            f"{who} learned {', '.join(learned)} from the rows and has no guarantee, so its privacy loss is unknown. "
            f"Use a private or a public step instead. If it learned from public data only, pass public=({path!r},)."
        )
    if get_tags(step).requires_fit:
        raise NotFittedError(
            f"{who} has no fitted attributes. If it is not fitted, fit the pipeline. If it learns nothing from the "
            f"rows, pass public=({path!r},)."
        )
    return [row_by_row]


def _choice_of_columns(path: str, step: ColumnTransformer, declared: "_PublicSteps") -> Assumption:
    """Return the assumption that a function chose columns without regard to the rows. Raise unless it is listed."""
    if declared.covers(path):
        return assumed(f"the columns that {_named(path, step)} selects do not depend on the rows")
    raise ValueError(
        f"{_named(path, step)} selects columns by a function, whose choice one record may change. List the columns "
        f"instead, or pass public=({path!r},) if the choice does not depend on the rows."
    )


def _check_seed(path: str, step: Any, seeds: dict[int, str]) -> None:
    """Raise if another private step used the same seed: composition needs independent noise."""
    seed = getattr(step, "random_state", None)
    if seed is None:
        return
    if seed in seeds:
        raise ValueError(
            f"{_named(path, step)} and step {seeds[seed]!r} have the same random_state, so their noise is not "
            "independent. Give each step its own random_state, or none."
        )
    seeds[seed] = path


def _is_declared(encoder: Any) -> bool:
    """Return whether the categories of an encoder were declared, and are all kept even if they are rare."""
    is_given = not isinstance(encoder.categories, str)
    return is_given and encoder.min_frequency is None and encoder.max_categories is None


def _named(path: str, step: Any) -> str:
    kind = type(step).__name__
    return f"step {path!r} ({kind})" if path else kind
