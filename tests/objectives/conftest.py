import numpy as np
import pytest
from scipy import sparse

from privet.objectives import BoundedRows, Huber, Logistic, Multinomial, SmoothedHinge, Squared, TamedLogistic

OBJECTIVES = [
    Logistic(),
    TamedLogistic(),
    SmoothedHinge(),
    SmoothedHinge(2.0),
    Huber(0.7),
    Squared(),
    Multinomial(2),
    Multinomial(4),
]


def name_of(objective):
    """Return the class and its number, as in Huber0.7."""
    return type(objective).__name__ + "".join(map(str, [v for k, v in vars(objective).items() if "bound" not in k]))


def n_outputs(objective):
    return getattr(objective, "n_classes", 1)


def as_kind(X, kind):
    return {"dense": np.ascontiguousarray, "fortran": np.asfortranarray, "csr": sparse.csr_array}[kind](X)


def draw_targets(objective, rng, n, dtype=np.float64):
    if isinstance(objective, Multinomial):
        return rng.integers(objective.n_classes, size=n)
    if isinstance(objective, Huber | Squared):
        return (2 * rng.standard_normal(n)).astype(dtype)
    return rng.integers(2, size=n).astype(dtype)


def draw_scores(objective, rng, n, scale):
    k = n_outputs(objective)
    return scale * rng.standard_normal(n if k == 1 else (n, k))


def draw_table(rng, n, d):
    """Return a table with rows inside and outside the unit ball, zeros among the entries, and a row of zeros."""
    X = rng.standard_normal((n, d)) * rng.choice([0.05, 0.4, 3.0], (n, 1))
    X[X > 2] = 0.0
    X[min(1, n - 1)] = 0.0
    return X


def problem(objective, *, n=12, d=5, intercept=0.5, dtype=np.float64, kind="dense", seed=0):
    """Return weights, rows and targets."""
    rng = np.random.default_rng(seed)
    rows = BoundedRows(as_kind(draw_table(rng, n, d).astype(dtype), kind), 1.0, intercept)
    weights = (2 * rng.standard_normal(objective.start(rows.dimension).shape)).astype(dtype)
    return weights, rows, draw_targets(objective, rng, n, dtype)


@pytest.fixture(params=OBJECTIVES, ids=name_of)
def objective(request):
    return request.param


@pytest.fixture(params=[each for each in OBJECTIVES if n_outputs(each) == 1], ids=name_of)
def scalar(request):
    """A loss of one score per record."""
    return request.param


@pytest.fixture(scope="session")
def tools():
    """Provide the helpers above, because test folders are not importable packages."""
    helpers = (n_outputs, as_kind, draw_targets, draw_scores, draw_table, problem)
    return type("Tools", (), {helper.__name__: staticmethod(helper) for helper in helpers})


@pytest.fixture
def no_dense(monkeypatch):
    """Make every way from a sparse matrix to a dense one fail."""

    def refuse(*_args, **_kwargs):
        raise AssertionError("a sparse matrix was densified")

    for form in (sparse.csr_array, sparse.csc_array, sparse.coo_array, sparse.csr_matrix, sparse.csc_matrix):
        for way in ("toarray", "todense"):
            monkeypatch.setattr(form, way, refuse)
