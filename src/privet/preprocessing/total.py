"""What a whole pipeline promises: the sum over its steps, or a refusal where a step spends without counting."""

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

# What fitting leaves behind that is no more than the shape and the names of the columns.
_SHAPE = {"n_features_in_", "feature_names_in_", "n_features_out_"}
_ROW_BY_ROW = (Normalizer, Binarizer, PolynomialFeatures)
_ENCODERS = (OneHotEncoder, OrdinalEncoder)


def total_guarantee(pipeline: Any, delta: float | None = None, *, public: Sequence[str] = ()) -> Guarantee:
    """Return what a fitted pipeline promises as a whole, all its steps together.

    Parameters
    ----------
    pipeline : Pipeline, ColumnTransformer, FeatureUnion, nested as you like, or a single estimator
        Fitted. Every step must be one of: *private*, with a ``guarantee_``; *free*, with ``guarantee_`` None, like
        :class:`~privet.preprocessing.PublicScaler`; known to treat each row by itself; or named in ``public``.
    delta : float or None
        The total delta; None adds the steps' deltas up.
    public : sequence of str
        Steps (paths like ``"numbers__impute"``, or a container for all within it) that learned from public data only.
        Nobody can check that, so each becomes an assumption of the guarantee.

    Returns
    -------
    Guarantee
        Its event composes with others on the same rows.

    Raises
    ------
    ValueError
        If a step learned from the rows and has no guarantee: ``StandardScaler``, ``PCA``, an imputer, a
        ``OneHotEncoder`` that found its categories by itself, a search over settings.

    Formal guarantees
    -----------------
    Adaptive composition: each step may depend on what the steps before it released. Whatever lies between must treat
    each row by itself, or one record would change many rows; that is why steps which nobody vouches for are refused.

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
    vouched = _Vouched((public,) if isinstance(public, str) else tuple(public))
    guarantees: dict[str, Guarantee] = {}
    conditions: list[Assumption] = []
    seeds: dict[int, str] = {}
    for path, step in _steps(pipeline, ""):
        guarantee = getattr(step, "guarantee_", None)
        if isinstance(step, ColumnTransformer):
            conditions.append(_choice_of_columns(path, step, vouched))
        elif isinstance(guarantee, Guarantee):
            guarantees[path] = guarantee
            _check_seed(path, step, seeds)
        elif hasattr(step, "guarantee_") and guarantee is None:
            continue
        elif vouched.covers(path):
            conditions.append(assumed(f"what {_named(path, step)} learned, it learned from public data only"))
        else:
            conditions += _conditions(path, step)
    vouched.check_used(guarantees)
    if not guarantees:
        raise ValueError("no step has a guarantee: there is nothing private in this pipeline")
    steps = ", ".join(path or "the estimator" for path in guarantees)
    same_rows = enforced(f"the releases of all private steps ({steps}) are counted as made from the same rows")
    return compose(list(guarantees.values()), delta).assuming(same_rows, *conditions)


class _Vouched:
    """The paths that the caller vouches for, and which of them were met."""

    def __init__(self, paths: tuple[str, ...]) -> None:
        self._paths = paths
        self._met: set[str] = set()

    def covers(self, path: str) -> bool:
        """Whether the step, or something that holds it, was named."""
        found = {name for name in self._paths if path == name or path.startswith(f"{name}__")}
        self._met |= found
        return bool(found)

    def check_used(self, private: Collection[str]) -> None:
        """Raise on a name that vouched for nothing: a slip of the pen, or a step that counts by itself."""
        for name in self._paths:
            if name in private:
                raise ValueError(f"public names {name!r}, which has a guarantee of its own: leave it out")
            if name not in self._met:
                raise ValueError(f"public names {name!r}, which is no step that needs it: check the spelling")


def _steps(step: Any, path: str) -> Iterator[tuple[str, Any]]:
    """Yield the steps that hold no others, with their paths."""
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
    """Return what a step without a guarantee adds to the whole; raise if it may have learned from the rows."""
    who = _named(path, step)
    row_by_row = assumed(f"{who} treats each row by itself")
    if type(step) is FunctionTransformer:
        return [] if step.func is None else [row_by_row]  # a function may well subtract a mean
    if type(step) in _ROW_BY_ROW:
        return []
    if type(step) in _ENCODERS and _is_declared(step):
        return [enforced(f"the categories of {who} were declared beforehand")]
    learned = sorted(name for name in vars(step) if name.endswith("_") and not name.startswith("_"))
    learned = [name for name in learned if name not in _SHAPE]
    if learned:
        raise ValueError(
            f"{who} learned {', '.join(learned)} from the rows and has no guarantee: what it gives away is not "
            "counted. Use a private or a public step instead; if it learned from public data only, say so: "
            f"public=({path!r},)"
        )
    if get_tags(step).requires_fit:
        raise NotFittedError(
            f"{who} has nothing that a fit learned. If it is not fitted, fit the pipeline; if it learns nothing, "
            f"name it: public=({path!r},)"
        )
    return [row_by_row]


def _choice_of_columns(path: str, step: ColumnTransformer, vouched: "_Vouched") -> Assumption:
    """Return the condition under which columns that a function chose are no secret; raise if nobody vouches for it."""
    if vouched.covers(path):
        return assumed(f"which columns {_named(path, step)} takes does not depend on the rows")
    raise ValueError(
        f"{_named(path, step)} lets a function choose columns, and one record may change its choice: name the columns, "
        f"or vouch for the function: public=({path!r},)"
    )


def _check_seed(path: str, step: Any, seeds: dict[int, str]) -> None:
    """Raise on a seed that another private step used: their noise is not independent, as composition needs it."""
    seed = getattr(step, "random_state", None)
    if seed is None:
        return
    if seed in seeds:
        raise ValueError(
            f"{_named(path, step)} and step {seeds[seed]!r} have the same random_state: noise that is used twice can "
            "be subtracted. Give each its own, or none"
        )
    seeds[seed] = path


def _is_declared(encoder: Any) -> bool:
    """Whether the categories of an encoder were given, all of them kept however rare."""
    is_given = not isinstance(encoder.categories, str)
    return is_given and encoder.min_frequency is None and encoder.max_categories is None


def _named(path: str, step: Any) -> str:
    kind = type(step).__name__
    return f"step {path!r} ({kind})" if path else kind
