"""The network of a multi-party computation: who the parties are, where, and how they come together."""

import os
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from ipaddress import ip_address

from privet.checks import positive
from privet.multiparty import engine, tls
from privet.multiparty.joining import Address, Joining
from privet.multiparty.keys import Identity
from privet.multiparty.session import Failure, Session

FEWEST, MOST = 3, 20  # below, one party could open what the others hide; above, there are too many sets of parties


@dataclass(frozen=True)
class Network:
    """Where the parties are, and which one this process is.

    Parameters
    ----------
    addresses : sequence of (host, port)
        One a party, the same order for all: a party's index is its place here. At least 3, at most 20.
    index : int
        Which party this process is. It listens on its port for the parties before it, and dials those after it.
    keys : path or None
        The folder with ``ca.crt``, ``party_<index>.crt`` and ``party_<index>.key``; see
        :func:`privet.multiparty.make_keys`. None only if every address is loopback.
    connect_timeout : float
        Seconds for all to arrive.
    timeout : float
        Seconds for one answer.

    Notes
    -----
    With keys, connections are TLS 1.3 with certificates on both ends. Each end accepts only the certificate that the
    study's authority issued to the very party that it expects there and that is valid today: neither an eavesdropper
    nor a man in the middle nor another party of the study can take a party's place. Without keys, connections stay on
    this machine, and every process on it is trusted.

    The parties themselves are trusted to follow the protocol (they are semi-honest): up to ``(parties - 1) // 2`` of
    them may put together all they saw and learn nothing more than the results. A party that deviates is not detected.
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
                f"a computation needs {FEWEST} to {MOST} parties (one may bring no data), got {len(addresses)}"
            )
        if len(set(addresses)) < len(addresses):
            raise ValueError(f"two parties have the same address in {addresses}: give each its own port")
        for host, port in addresses:
            if not host or not 0 < port < 2**16:
                raise ValueError(f"{host!r}:{port} is no address: give a host and a port from 1 to 65535")
        if not 0 <= self.index < len(addresses):
            raise ValueError(f"index must be one of 0 to {len(addresses) - 1}, got {self.index}")
        positive("connect_timeout", self.connect_timeout)
        positive("timeout", self.timeout)
        abroad = [host for host, _ in addresses if not _is_loopback(host)]
        if self.keys is None and abroad:
            raise ValueError(
                f"{abroad[0]} is not this machine, and without keys anybody between could read and change what parties "
                "send: make keys with `privet party keygen`, and give each party its folder"
            )

    @asynccontextmanager
    async def connect(self, on_waiting: Callable[[list[int]], None] | None = None) -> AsyncIterator[Session]:
        """Connect with all parties, and stay so within an ``async with``.

        Leaving it in peace waits until the others have got all that this party owes them. Leaving it by an error tells
        them so: the text of a network error or of :meth:`Session.stop`, of any other error only its kind.

        Parameters
        ----------
        on_waiting : callable or None
            Called with the list of parties that are missing, at first and whenever that changes; empty in the end.

        Raises
        ------
        PartyMissingError, PartyRefusedError, PortInUseError, StoppedError, PartyLostError
            With the party, its address, the cause and the remedy.
        CertificateError
            This party's own keys are not acceptable.
        """
        identity = None if self.keys is None else Identity.load(self.keys, self.index)
        contexts = None
        if self.keys is not None:
            contexts = tls.context(self.keys, self.index, True), tls.context(self.keys, self.index, False)
        failure = Failure()
        with engine.running(self.index, len(self.addresses), failure.set) as runtime:
            session = Session(runtime, self.timeout, identity, failure)
            try:
                addresses = tuple((_numeric(host), port) for host, port in self.addresses)
                host = addresses[self.index][0]
                joining = Joining(session, failure, addresses, contexts, on_waiting)
                await joining.run(self.connect_timeout, host if _is_loopback(host) else None)
                yield session
                await session.finish()
            except BaseException as error:
                await session.abandon(error)
                raise
            finally:
                await session.close()


def _is_loopback(host: str) -> bool:
    try:
        return ip_address(_numeric(host)).is_loopback
    except ValueError:
        return False  # a name, whatever it may resolve to just now


def _numeric(host: str) -> str:
    return "127.0.0.1" if host == "localhost" else host  # one of the two that the name may mean, the same for all
