import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import load_breast_cancer, load_diabetes


@pytest.fixture(scope="session")
def cancer():
    """Return the breast cancer table with lower and upper bounds that a clinician could state beforehand."""
    frame = load_breast_cancer(as_frame=True).data
    upper = [30, 40, 200, 2500, 0.2, 0.4, 0.5, 0.2, 0.4, 0.1, 3, 5, 22, 550, 0.04, 0.14, 0.4, 0.06, 0.08, 0.03]
    upper += [40, 50, 260, 4300, 0.25, 1.1, 1.3, 0.3, 0.7, 0.21]
    return frame, pd.Series(0.0, frame.columns), pd.Series(upper, frame.columns)


@pytest.fixture(scope="session")
def diabetes():
    """Return the diabetes table in its own units, with bounds of what a laboratory reports."""
    frame = load_diabetes(as_frame=True, scaled=False).data
    lower = pd.Series([18, 1, 15, 50, 50, 20, 10, 1, 2, 40.0], frame.columns)
    return frame, lower, pd.Series([100, 2, 60, 200, 400, 300, 120, 12, 8, 300.0], frame.columns)


@pytest.fixture(scope="session")
def rows():
    """Return 400 rows of three columns, some outside [-4, 4]."""
    rng = np.random.default_rng(0)
    return rng.normal([1.0, 0.0, -2.0], [1.0, 3.0, 0.2], size=(400, 3))
