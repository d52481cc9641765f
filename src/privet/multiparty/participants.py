"""Who takes part in a study: parties with addresses, servers with owners, or the owners of a relay."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from privet.checks import count
from privet.multiparty.identity.certificates import check_name
from privet.plans.committee import Committee

OF_RELAYS = {"order": "fixed", "passes": 1, "batch": 1, "on_failure": "stop"}
"""The settings that only a relay has, with their defaults."""
OF_SERVERS = {
    "servers": (),
    "trust": "majority",
    "owners": 0,
    "rows_per_owner": None,
    "fewest_owners": 1,
    "check_norms": False,
}
"""The settings that only a study with servers has, with their defaults."""
_LONGEST_NAME = 100


class StudyError(ValueError):
    """The study file is not valid, or the parties do not agree on it."""


@dataclass(frozen=True)
class PartyInfo:
    """A party of a study: its name, and the host and port at which it listens."""

    name: str
    host: str
    port: int

    def __post_init__(self) -> None:
        try:
            check_name(self.name)
        except ValueError as error:
            raise StudyError(str(error)) from None


def check_participants(study: Any) -> None:
    """Raise unless the study has a name, and its parties, servers and owners are compatible with its method."""
    _check_study_name(study.name)
    _check_committee(study) if study.servers else _check_parties(study)
    _check_relay(study)


def _check_study_name(name: str) -> None:
    """Raise unless a study may have this name."""
    if not 0 < len(name.strip()) <= len(name) <= _LONGEST_NAME or not name.isprintable():
        raise StudyError(f"{name!r} is not a valid name of a study. Use up to {_LONGEST_NAME} printable characters.")


def _check_parties(study: Any) -> None:
    """Raise unless the parties of a study without servers are valid."""
    if any(getattr(study, name) != usual for name, usual in OF_SERVERS.items()):
        raise StudyError(
            "owners, rows_per_owner, fewest_owners, check_norms and trust are settings of a study with servers. Add a "
            "[[server]] for each of them, or remove these settings."
        )
    if len(study.parties) < (2 if study.method == "relay" else 3):
        raise StudyError(
            f"A study needs at least three parties, got {len(study.parties)}. Secrets are shared such that no "
            "minority of the parties can open them. Of two parties, even one is no minority, so that each would "
            'see the secrets of the other. The third party may bring no data, or use method = "relay".'
        )
    _check_distinct(study.parties, "parties")


def _check_committee(study: Any) -> None:
    """Raise unless the servers, the owners and the trust are compatible."""
    try:
        Committee(study.trust, len(study.servers)).check()
    except ValueError as error:
        raise StudyError(str(error)) from None
    if study.check_norms and study.trust != "majority":
        raise StudyError(
            'check_norms needs trust = "majority". To verify a contribution, servers multiply shares, which needs an '
            "honest majority of them. Remove check_norms, or change trust."
        )
    _check_distinct(study.servers, "servers")
    check_second_ports(study.servers)
    if bool(study.owners) == bool(study.parties):
        raise StudyError("A study with servers needs either a number of owners or a list of parties, not both.")
    count("owners", study.n_owners)
    count("fewest_owners", study.fewest_owners)
    if study.rows_per_owner is None:
        raise StudyError("A study with servers needs rows_per_owner, the most rows that an owner may bring.")
    count("rows_per_owner", study.rows_per_owner)
    if study.fewest_owners > study.n_owners:
        raise StudyError(f"fewest_owners = {study.fewest_owners} exceeds the number of owners, {study.n_owners}.")


def _check_relay(study: Any) -> None:
    """Raise unless the settings of a relay are valid, and are used by a relay only."""
    if study.method == "relay" and study.servers:
        raise StudyError('A relay has no servers. Remove them, or use method = "gradient" or "output".')
    if study.method != "relay":
        for name, usual in OF_RELAYS.items():
            if getattr(study, name) != usual:
                raise StudyError(f"{name} is a setting of the method relay, but the method is {study.method}.")
    if study.method == "relay" and study.delta == 0:
        raise StudyError(
            "delta = 0 asks for pure epsilon, but the steps of a relay add Gaussian noise, which gives no pure epsilon "
            'guarantee. Set delta > 0, or use method = "gradient" or "output".'
        )
    if study.order not in ("fixed", "lot"):
        raise StudyError(f'order must be "fixed" or "lot", got {study.order!r}')
    if study.on_failure not in ("stop", "skip"):
        raise StudyError(f'on_failure must be "stop" or "skip", got {study.on_failure!r}')
    if study.on_failure == "skip" and len(study.parties) < 3:
        raise StudyError(
            'on_failure = "skip" needs at least three parties, because a relay goes on only while more than half '
            'of them are left. Use "stop".'
        )


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port from the text ``host:port``."""
    host, colon, port = text.rpartition(":")
    if not colon or not host or not port.isdecimal() or not 0 < int(port) < 1 << 16:
        raise StudyError(f"{text!r} is not an address. Write host:port, as in 192.0.2.7:9100.")
    return host.strip("[]"), int(port)


def _check_distinct(parties: Sequence[PartyInfo], what: str) -> None:
    if len({party.name for party in parties}) < len(parties):
        raise StudyError(f"Two {what} have the same name. Give each its own name.")
    if len({(party.host, party.port) for party in parties}) < len(parties):
        raise StudyError(f"Two {what} have the same address. Give each its own address.")


def check_second_ports(servers: Sequence[PartyInfo]) -> None:
    """Raise unless each server can also listen at the port after that of its address, for the other servers."""
    addresses = {(server.host, server.port): server.name for server in servers}
    for server in servers:
        other = addresses.get((server.host, server.port + 1))
        if other is not None:
            raise StudyError(
                f"The servers {server.name} and {other} have adjacent ports on {server.host}, {server.port} and "
                f"{server.port + 1}. A server also listens at the next port, for the other servers. Leave one port "
                "between them."
            )
        if server.port + 1 >= 1 << 16:
            raise StudyError(
                f"The server {server.name} has port {server.port}, but it also listens at the next port, for the other "
                "servers. Choose a smaller port."
            )


def party_from(values: Any, where: str, kind: str = "party", needs_address: bool = True) -> PartyInfo:
    """Return a party or server from its values in a TOML file. ``where`` names the file in errors."""
    keys = {"name", "address"} if needs_address else {"name"}
    if not isinstance(values, dict) or set(values) != keys:
        address = ' and an address = "host:port"' if needs_address else ""
        raise StudyError(f"{where}: each [[{kind}]] must have a name{address}, and nothing else.")
    host, port = parse_address(str(values["address"])) if needs_address else ("", 0)
    try:
        return PartyInfo(values["name"], host, port)
    except StudyError as error:
        raise StudyError(f"{where}: {error}") from None
