"""What a guarantee is. Pure mathematics: nothing here knows of learning."""

from privet.privacy.budget import Adjacency, Budget
from privet.privacy.calibration import calibrate
from privet.privacy.gaussian import (
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
from privet.privacy.guarantee import Assumption, Guarantee, Unit, assumed, compose, enforced
from privet.privacy.ledger import BudgetExceededError, Entry, Ledger
from privet.privacy.noise import NoiseSource

__all__ = [
    "Adjacency",
    "Assumption",
    "Budget",
    "BudgetExceededError",
    "Entry",
    "Guarantee",
    "Ledger",
    "NoiseSource",
    "Unit",
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
    "zcdp_epsilon",
    "zcdp_rho",
]
