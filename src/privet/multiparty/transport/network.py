"""The network of a multi-party computation: where the parties are, and how they connect."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address

from privet.checks import positive
from privet.multiparty.identity.certificates import Identity, tls_context
from privet.multiparty.protocol import mpyc_runtime
from privet.multiparty.transport.connection import Failure
from privet.multiparty.transport.handshake import Address, Handshake
from privet.multiparty.transport.session import Session

__all__ = ["Network", "Session"]

# With more parties, there are too many sets of parties. Methods that share secrets need at least three.
FEWEST, MOST = 2, 20


@dataclass(frozen=True)
class Network:
    """The addresses of the parties, and the index of this process among them.

    Parameters
    ----------
    addresses : sequence of (host, port)
        One per party, in the same order for all parties. A party's index is its position here. At least 2, at most 20.
    index : int
        Index of this process. It listens on its port for parties with a lower index, and calls those with a higher one.
    keys : path or None
        The folder with ``ca.crt``, ``party_<index>.crt`` and ``party_<index>.key``; see
        :func:`privet.multiparty.make_keys`. It may be None only if every address is a loopback address.
    connect_timeout : float
        Seconds within which all parties must connect.
    timeout : float
        Seconds within which an awaited answer must arrive.

    Notes
    -----
    With keys, connections use TLS 1.3 with certificates on both ends. Each end accepts only a certificate that the
    study's authority issued to the expected party and that is valid today. Neither an eavesdropper nor a man in the
    middle nor another party of the study can therefore take a party's place. Without keys, connections stay on this
    machine, and every process on it is trusted.

    The parties themselves are assumed to follow the protocol (they are semi-honest). Of what they compute on shared
    secrets, up to ``(parties - 1) // 2`` of them may combine everything they saw without learning more than the
    results. With two parties this number is zero: a share is then the secret itself. A party that deviates from the
    protocol is not detected.
    """

    addresses: tuple[Address, ...]
    index: int
    keys: str | os.PathLike[str] | None = None
    connect_timeout: float = 60.0
    timeout: float = 60.0

    def __post_init__(self) -> None:
        addresses = tuple((str(host), int(port)) for host, port in self.addresses)
        object.__setattr__(self, "addresses", addresses)
        if not FEWEST <= len(addresses) <= MOST:
            raise ValueError(
                f"A computation needs {FEWEST} to {MOST} parties, got {len(addresses)}. A party may bring no data."
            )
        if len(set(addresses)) < len(addresses):
            raise ValueError(f"Two parties have the same address in {addresses}. Give each party its own port.")
        for host, port in addresses:
            if not host or not 0 < port < 2**16:
                raise ValueError(f"{host!r}:{port} is not an address. Give a host and a port from 1 to 65535.")
        if not 0 <= self.index < len(addresses):
            raise ValueError(f"index must be one of 0 to {len(addresses) - 1}, got {self.index}")
        positive("connect_timeout", self.connect_timeout)
        positive("timeout", self.timeout)
        remote = [host for host, _ in addresses if not is_loopback(host)]
        if self.keys is None and remote:
            raise ValueError(
                f"{remote[0]} is not this machine, and without keys others could read and change what the parties "
                "send. Make keys with `privet party keygen`, and give each party its files."
            )

    @asynccontextmanager
    async def connect(self, on_waiting: Callable[[list[int]], None] | None = None) -> AsyncIterator["Session"]:
        """Connect with all parties for the duration of an ``async with`` block.

        If the block ends normally, this waits until the other parties have received everything they need from this
        one. If it ends with an error, the other parties are told: the text of a network error or of
        :meth:`Session.stop`, and only the type of any other error.

        Parameters
        ----------
        on_waiting : callable or None
            Called with the list of missing parties, first at the start and then whenever the list changes. The last
            list is empty.

        Raises
        ------
        PartyMissingError, PartyRefusedError, PortInUseError, StoppedError, PartyLostError
            The message names the party, its address, the cause and the remedy.
        CertificateError
            This party's own keys are not acceptable.
        """
        identity = contexts = None
        if self.keys is not None:
            identity = Identity.load(self.keys, self.index)
            contexts = tls_context(self.keys, self.index, True), tls_context(self.keys, self.index, False)
        failure = Failure()
        with mpyc_runtime.running(self.index, len(self.addresses), failure.set) as runtime:
            session = Session(runtime, self.timeout, identity, failure)
            try:
                addresses = tuple((_numeric(host), port) for host, port in self.addresses)
                host = addresses[self.index][0]
                handshake = Handshake(session, failure, addresses, contexts, on_waiting)
                await handshake.run(self.connect_timeout, host if is_loopback(host) else None)
                yield session
                await session.finish()
            except BaseException as error:
                await session.abandon(error)
                raise
            finally:
                await session.close()


def is_loopback(host: str) -> bool:
    """Return whether a host is an address of this machine that others cannot reach."""
    try:
        return ip_address(_numeric(host)).is_loopback
    except ValueError:
        return False  # A host name, whatever it currently resolves to.


def _numeric(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host  # The name may also mean ::1; all parties must use the same.
