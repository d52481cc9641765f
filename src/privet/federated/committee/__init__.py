"""Federated rounds whose sums a committee of servers opens, so that nobody sees the update of a single client.

:func:`committee_plan` and :class:`RoundPrice` also serve simulations. Everything else runs between machines, and needs
the extra ``multiparty``.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from privet.federated.committee.plan import CommitteePlan, committee_plan
    from privet.federated.committee.price import RoundPrice
    from privet.federated.committee.roles import CommitteeClient, Coordinator, serve
    from privet.federated.committee.study import FederatedStudy
    from privet.plans.committee import Committee

__all__ = [
    "Committee",
    "CommitteeClient",
    "CommitteePlan",
    "Coordinator",
    "FederatedStudy",
    "RoundPrice",
    "committee_plan",
    "serve",
]

_MODULES = {
    "privet.federated.committee.plan": ("CommitteePlan", "committee_plan"),
    "privet.federated.committee.price": ("RoundPrice",),
    "privet.federated.committee.roles": ("CommitteeClient", "Coordinator", "serve"),
    "privet.federated.committee.study": ("FederatedStudy",),
    "privet.plans.committee": ("Committee",),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    if name in _MODULE_OF:
        return getattr(import_module(_MODULE_OF[name]), name)
    raise AttributeError(f"module 'privet.federated.committee' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted(__all__)
