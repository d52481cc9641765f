"""Several data owners, one model: computations among parties that show each other nothing but the result."""

from privet.multiparty.protocol.aggregation import Aggregator, JointAggregator, SimulatedAggregator
from privet.multiparty.transport.errors import (
    NetworkError,
    PartyLostError,
    PartyMissingError,
    PartyRefusedError,
    PartySilentError,
    PortInUseError,
    StoppedError,
)
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.identity.keys import Identity, make_keys, verify
from privet.multiparty.transport.network import Network
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.multiparty.protocol.participation import take_part
from privet.multiparty.protocol.problem import JointProblem
from privet.multiparty.transport.network import Session
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
