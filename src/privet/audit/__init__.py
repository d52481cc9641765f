"""Attacks on models and mechanisms, and the lower bounds on epsilon that they prove."""

from privet.audit.canaries import one_run_linear
from privet.audit.distinguish import Distinguished, distinguish, from_outputs
from privet.audit.estimators import audit_estimator
from privet.audit.membership import Membership, likelihood_ratio, membership, rmia
from privet.audit.one_run import OneRun, one_run
from privet.replay import Replayed, replay

__all__ = [
    "Distinguished",
    "Membership",
    "OneRun",
    "Replayed",
    "audit_estimator",
    "distinguish",
    "from_outputs",
    "likelihood_ratio",
    "membership",
    "one_run",
    "one_run_linear",
    "replay",
    "rmia",
]
