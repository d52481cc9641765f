"""Canaries for linear models: planted rows whose traces in the weights are guessed in a one-run audit."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse

from privet.audit.one_run import Bits, Floats, Form, OneRun, one_run
from privet.checks import count, positive
from privet.privacy import Adjacency, NoiseSource
from privet.privacy.analyses.accounting import gaussian_mu

Counterpart = Literal["opposite", "zero", "nothing"]


@dataclass(frozen=True, eq=False)
class Canaries:
    """Orthogonal rows of full norm, one column per row, and the coins that decide which of them are included.

    What a model learned from a canary shows only in the weight of its column. Rows that share columns would blur each
    other's traces, which limits what an audit with one run can show.

    Attributes
    ----------
    rows : sparse array
        The canaries, one per row.
    labels, other_labels : array
        The label of each canary, and the label of its opposite.
    included : array of bool
        The result of each coin.
    counterpart : str
        What replaces a canary that is not included; see :func:`canaries`.
    """

    rows: Any
    labels: NDArray[Any]
    other_labels: NDArray[Any]
    included: Bits
    counterpart: Counterpart

    def table(self) -> tuple[Any, NDArray[Any]]:
        """Return the rows and labels to train on, according to the coins."""
        if self.counterpart == "nothing":
            return self.rows[np.flatnonzero(self.included)], self.labels[self.included]
        if self.counterpart == "opposite":
            return self.rows, np.where(self.included, self.labels, self.other_labels)
        return sparse.csr_array(sparse.diags_array(self.included.astype(np.float64)) @ self.rows), self.labels

    def scores(self, coefficients: Floats, classes: Sequence[Any] | None = None) -> Floats:
        """Return how far each canary pulled the weights of its column, as a product of coefficients and row.

        ``classes`` are the classes that the rows of ``coefficients`` belong to, or None for a regression.
        """
        pulls = np.asarray(self.rows @ np.atleast_2d(coefficients).T)
        if classes is None:
            return np.asarray(pulls[:, 0] * np.sign(self.labels - self.other_labels))
        order = np.asarray(classes)
        if len(order) == 2 and pulls.shape[1] == 1:
            pulls = np.column_stack([-pulls, pulls])
        own = pulls[self.labels[:, None] == order]
        if self.counterpart == "opposite":
            return np.asarray(own - pulls[self.other_labels[:, None] == order])
        return np.asarray(own - pulls.mean(axis=1))


def canaries(
    number: int,
    *,
    norm: float = 1.0,
    labels: ArrayLike = (0, 1),
    counterpart: Counterpart = "opposite",
    source: NoiseSource | None = None,
) -> Canaries:
    """Return canaries about which a linear model with bounded rows reveals most, and toss their coins.

    Parameters
    ----------
    number : int
        Number of canaries, and of columns.
    norm : float
        Norm of every row. It should be the bound to which the model scales rows down.
    labels : array
        At least two labels, used in turn. For a regression, the smallest and the largest target.
    counterpart : {"opposite", "zero", "nothing"}
        What replaces a canary that is not included. Under replace-one adjacency it is the same row with another label
        ("opposite"), which pulls the other way and shows twice as much, or a row of zeros ("zero"). Under add-or-remove
        adjacency nothing replaces it, because a replacement would count as two changes and cost 2 epsilon.
    source : NoiseSource or None
        Tosses the coins. A seeded source makes the audit repeatable. It must not be the source of the model's noise.
    """
    if counterpart not in ("opposite", "zero", "nothing"):
        raise ValueError(f"counterpart must be 'opposite', 'zero' or 'nothing', got {counterpart!r}.")
    number, kinds = count("number", number), np.asarray(labels)
    if kinds.ndim != 1 or len(np.unique(kinds)) != len(kinds) or len(kinds) < 2:
        raise ValueError("labels must contain at least two labels, all different.")
    included = np.zeros(number, dtype=bool)
    included[(source or NoiseSource()).poisson_batch(number, 0.5)] = True
    places = np.arange(number) % len(kinds)
    rows = sparse.csr_array(sparse.eye_array(number) * positive("norm", norm))
    return Canaries(rows, kinds[places], kinds[(places + 1) % len(kinds)], included, counterpart)


def one_run_linear(
    estimator: Any,
    X: Any,
    y: Any,
    *,
    number: int = 1000,
    counterpart: Counterpart = "opposite",
    norm: float | None = None,
    delta: float | None = None,
    claimed: float | None = None,
    confidence: float = 0.95,
    guesses: int | tuple[int, int] | None = None,
    source: NoiseSource | None = None,
    name: str = "",
    form: Form | None = None,
) -> OneRun:
    """Add canaries to a table, fit a linear estimator once, and return the lower bound on epsilon that it proves.

    Parameters
    ----------
    estimator
        A scikit-learn estimator that has ``coef_`` after fitting. A copy is fitted. It need not be private.
    X, y
        The table to which canaries are added: an array, a numeric DataFrame or a sparse matrix. Each canary adds a row
        and a column.
    number, counterpart, source
        Settings of the canaries; see :func:`canaries`.
    norm : float or None
        Norm of the canaries. The default is the estimator's ``feature_norm``, or 1 if it has none.
    delta, claimed : float or None
        The claim to test. The default is the ``guarantee_`` of the fitted model, at ``delta`` if that is given. A model
        without a guarantee requires ``delta``.
    confidence, guesses, name
        See :func:`one_run`.
    form : {"approximate", "gaussian"} or None
        See :func:`one_run`. The default is "gaussian" if the claim is that of the fitted model and is Gaussian-DP, and
        "approximate" otherwise.

    Formal guarantees
    -----------------
    Those of :func:`one_run`, for the estimator's epsilon on the enlarged table, because a guarantee must hold on every
    table. Flipping a coin replaces one record, or removes it if ``counterpart`` is "nothing". A counterpart that does
    not fit the adjacency of the guarantee raises ``ValueError``.
    """
    from sklearn.base import clone, is_classifier

    table = _sparse(X)
    targets = np.asarray(y)
    if targets.shape != table.shape[:1]:
        raise ValueError(
            f"X and y must have the same length, got {table.shape[0]} rows and labels of shape {targets.shape}."
        )
    bound = float(getattr(estimator, "target_bound", 1.0))
    is_classification = bool(is_classifier(estimator))
    planted = canaries(
        number,
        norm=float(getattr(estimator, "feature_norm", 1.0)) if norm is None else norm,
        labels=np.unique(targets) if is_classification else np.array([-bound, bound]),
        counterpart=counterpart,
        source=source,
    )
    rows, labels = planted.table()
    enlarged = sparse.csr_array(sparse.block_diag([table, rows], format="csr"))
    model = clone(estimator).fit(enlarged, np.concatenate([targets, labels]))
    guarantee = getattr(model, "guarantee_", None)
    if guarantee is not None:
        _check_adjacency(guarantee.adjacency, counterpart)
        if claimed is None:
            is_gaussian = gaussian_mu(guarantee.event, guarantee.adjacency) is not None
            form = form or ("gaussian" if is_gaussian else "approximate")
            if form == "gaussian" and not is_gaussian:
                raise ValueError(
                    "form='gaussian' cannot test this guarantee, because it is not one of Gaussian DP: the release may "
                    "be easier to tell apart at another delta than a Gaussian one. Leave form= out."
                )
            claimed = guarantee.epsilon if delta is None else guarantee.epsilon_at(delta)
        delta = guarantee.delta if delta is None else delta
    if delta is None:
        raise ValueError(f"{type(model).__name__} has no guarantee. Set delta, at which epsilon is bounded.")
    if not hasattr(model, "coef_"):
        raise TypeError(f"{type(model).__name__} has no coef_. Compute the scores of the canaries and call one_run.")
    weights = np.atleast_2d(np.asarray(model.coef_, dtype=np.float64))[:, table.shape[1] :]
    scores = planted.scores(weights, model.classes_ if is_classification else None)
    return one_run(
        scores,
        planted.included,
        delta=delta,
        confidence=confidence,
        guesses=guesses,
        claimed=claimed,
        name=name or type(estimator).__name__,
        form=form or "approximate",
    )


def _check_adjacency(adjacency: Adjacency, counterpart: Counterpart) -> None:
    if (adjacency is Adjacency.REPLACE_ONE) == (counterpart == "nothing"):
        right = "'opposite' or 'zero'" if counterpart == "nothing" else "'nothing'"
        raise ValueError(
            f"counterpart={counterpart!r} does not fit the guarantee, which is for {adjacency} adjacency. Use "
            f"counterpart={right}."
        )


def _sparse(X: Any) -> Any:
    table = sparse.csr_array(X if sparse.issparse(X) else np.asarray(X, dtype=np.float64))
    if table.ndim != 2 or not np.isfinite(table.data).all():
        raise ValueError("X must be a table of finite numbers.")
    return table
