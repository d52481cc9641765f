"""Guarantees, their analyses and the noise that they rest on. Nothing in this package depends on machine learning."""

from privet.privacy.analyses.calibration import calibrate
from privet.privacy.analyses.gaussian import (
    gaussian_epsilon,
    gaussian_sigma,
    gdp_delta,
    gdp_epsilon,
    gdp_mu,
    gdp_to_zcdp,
    pure_to_zcdp,
    zcdp_epsilon,
    zcdp_rho,
)
from privet.privacy.budget import Adjacency, AttackRate, Budget, NoiseMultiplier, as_budget
from privet.privacy.guarantees.guarantee import Assumption, Guarantee, Unit, assumed, compose, enforced
from privet.privacy.ledger.ledger import BudgetExceededError, Ledger
from privet.privacy.ledger.lines import Entry, LimitChange
from privet.privacy.ledger.spending import spending
from privet.privacy.noise.source import NoiseSource

__all__ = [
    "Adjacency",
    "Assumption",
    "AttackRate",
    "Budget",
    "BudgetExceededError",
    "Entry",
    "Guarantee",
    "Ledger",
    "LimitChange",
    "NoiseMultiplier",
    "NoiseSource",
    "Unit",
    "as_budget",
    "assumed",
    "calibrate",
    "compose",
    "enforced",
    "gaussian_epsilon",
    "gaussian_sigma",
    "gdp_delta",
    "gdp_epsilon",
    "gdp_mu",
    "gdp_to_zcdp",
    "pure_to_zcdp",
    "spending",
    "zcdp_epsilon",
    "zcdp_rho",
]
