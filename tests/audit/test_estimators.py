"""Estimators in the distinguishing game: worst-case tables, settings, and a planted leak."""

import numpy as np
import pytest

from privet import PrivateLogisticRegression, PrivateRidge
from privet.audit.estimators import audit_estimator, worst_pairs
from privet.audit.pairs import label_flip, support_flip
from privet.plans.gradient import Step


def test_worst_pairs_differ_in_one_record_and_keep_the_estimator_s_bounds():
    for estimator in (PrivateLogisticRegression(feature_norm=3.0), PrivateRidge(feature_norm=3.0, target_bound=5.0)):
        for pair in worst_pairs(estimator, n=5, d=3):
            (X, y), (X2, y2) = pair
            changed = (X != X2).any(axis=1) | (y != y2)
            assert changed.sum() == 1
            assert X.shape == (5, 3)
            assert pair.name == "extreme row" or np.linalg.norm(X, axis=1).max() == 3.0
    assert np.abs(worst_pairs(PrivateRidge(target_bound=5.0))[0].first[1]).max() == 5.0


def test_the_pair_that_flips_a_support_is_balanced_but_for_one_row():
    (X, y), (X2, _) = support_flip(11)
    assert X.sum(axis=0).tolist() == [6, 5]
    assert X2.sum(axis=0).tolist() == [5, 6]
    assert y.tolist() == [1.0] * 11


def test_an_estimator_is_consistent_and_missing_noise_is_found(monkeypatch):
    model = PrivateLogisticRegression(1.0, 1e-5, method="gradient", max_iter=5)
    done = []
    right = audit_estimator(
        model, pairs=[label_flip()], runs=300, confidence=0.999, progress=lambda *steps: done.append(steps)
    )
    assert not right["label flip"].is_violation
    assert done[-1] == (300, 300)
    monkeypatch.setattr(Step, "noisy", lambda self, total: self._source.add_gaussian(total, 1e-3))
    wrong = audit_estimator(model, pairs=[label_flip()], runs=300, confidence=0.999)
    assert wrong["label flip"].is_violation
    assert "VIOLATION" in wrong["label flip"].verdict


def test_a_seed_is_refused():
    with pytest.raises(ValueError, match="new noise in every fit"):
        audit_estimator(PrivateLogisticRegression(random_state=0))
