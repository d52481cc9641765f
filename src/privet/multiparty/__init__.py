"""Several data owners, one model: computations among parties that show each other nothing but the result."""

from privet.multiparty.aggregation import Aggregator, JointAggregator, SimulatedAggregator
from privet.multiparty.errors import (
    NetworkError,
    PartyLostError,
    PartyMissingError,
    PartyRefusedError,
    PartySilentError,
    PortInUseError,
    StoppedError,
)
from privet.multiparty.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.keys import Identity, make_keys, verify
from privet.multiparty.network import Network
from privet.multiparty.output import joint_output_perturbation, output_plan
from privet.multiparty.party import take_part
from privet.multiparty.problem import JointProblem
from privet.multiparty.session import Session
from privet.multiparty.study import Study, StudyError

__all__ = [
    "Aggregator",
    "Identity",
    "JointAggregator",
    "JointProblem",
    "Network",
    "NetworkError",
    "PartyLostError",
    "PartyMissingError",
    "PartyRefusedError",
    "PartySilentError",
    "PortInUseError",
    "Session",
    "SimulatedAggregator",
    "StoppedError",
    "Study",
    "StudyError",
    "gradient_plan",
    "joint_gradient_descent",
    "joint_output_perturbation",
    "make_keys",
    "output_plan",
    "take_part",
    "verify",
]
