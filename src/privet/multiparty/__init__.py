"""Several data owners train one model by multi-party computation, which reveals only the result.

``transport`` connects the parties, ``identity`` holds their keys and certificates, ``protocol`` is what they compute,
and ``study`` reads the file on which they agree first.
"""

from privet.multiparty.identity.certificates import Identity, verify
from privet.multiparty.identity.keys import make_keys
from privet.multiparty.protocol.aggregation import Aggregator, JointAggregator, JointProblem, SimulatedAggregator
from privet.multiparty.protocol.gradient import gradient_plan, joint_gradient_descent
from privet.multiparty.protocol.output import joint_output_perturbation, output_plan
from privet.multiparty.protocol.participation import take_part
from privet.multiparty.study import Study, StudyError
from privet.multiparty.transport.errors import (
    NetworkError,
    PartyLostError,
    PartyMissingError,
    PartyRefusedError,
    PartySilentError,
    PortInUseError,
    StoppedError,
)
from privet.multiparty.transport.network import Network, Session

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
