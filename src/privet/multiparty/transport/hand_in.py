"""How owners hand in their shares: one short call per release to each server, over gRPC with mutual TLS.

A server knows its callers by their certificates. gRPC limits the length of a message before it is read, keeps a
deadline per call, and lets thousands of owners be connected at the same time. A long share is sent in parts, and a
server reads only so many long shares at the same time: the others wait at their owners.
"""

import asyncio
import hmac
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Iterable, Iterator, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, contextmanager, suppress
from pathlib import Path
from typing import Any

from privet.multiparty.identity.certificates import CertificateError, OtherPartyError, check, host_name, read_keys
from privet.multiparty.transport.contribution import OVERHEAD, PART, Contribution, joined, parts_of
from privet.multiparty.transport.errors import NetworkError, StoppingError
from privet.multiparty.transport.network import is_loopback

_METHOD = "/privet.Committee/HandIn"
_MOST_READ = 128 << 20  # bytes of long shares that a server reads at the same time, and of answers that it keeps
_MOST_CALLS = 4  # that one owner may make at the same time
_REFUSED = {"FAILED_PRECONDITION", "PERMISSION_DENIED", "RESOURCE_EXHAUSTED"}  # by a server, which states the cause
_FINAL = _REFUSED | {"UNIMPLEMENTED", "DEADLINE_EXCEEDED"}
_UNREACHED = "Ask there whether the server runs or why it stopped, and compare the address with that of the study."
_GREETING = 10.0  # seconds for TLS; gRPC's default of 120 lets silent strangers keep a server's file handles for long
_PAUSE = 0.2  # seconds until an owner calls a server again that did not answer


class HandInError(NetworkError):
    """A server refused a share, or could not be reached."""


class Reception:
    """Receives the contributions of owners for one release after the other.

    Parameters
    ----------
    digest : bytes
        SHA-256 of the study.
    owners : int
        Number of owners who may take part.
    authority : bytes or None
        Certificate of the study's authority, as PEM. None without TLS, where callers state their own index.
    names : sequence of str
        The names that the certificates of the owners must state, in order. Empty if the study does not list them.
    closed_by : int or None
        Index of an owner who ends a release by handing in, even if others have not. None if nobody may.
    """

    def __init__(
        self,
        digest: bytes,
        owners: int,
        authority: bytes | None,
        names: Sequence[str] = (),
        closed_by: int | None = None,
    ) -> None:
        self._digest, self._owners, self._authority = digest, owners, authority
        self._names, self._closed_by = names, closed_by
        self._number, self._is_open = -1, False  # of the newest release
        self._received: dict[int, Contribution] = {}  # that were not added yet
        self._settled: dict[int, Contribution] = {}
        self._answers: dict[int, asyncio.Future[bytes]] = {}
        self._calls = Counter[int]()  # that each owner is making
        self._reading = defaultdict[int, asyncio.Lock](asyncio.Lock)
        self._left_out: dict[int, str] = {}
        self._changed = asyncio.Condition()
        self.bytes_received = 0

    async def open(self, number: int) -> None:
        """Accept contributions to a release from now on."""
        async with self._changed:
            self._number, self._received, self._settled, self._is_open = number, {}, {}, True
            self._changed.notify_all()

    def close(self) -> None:
        """Refuse contributions that arrive from now on."""
        self._is_open = False

    @property
    def has_ended(self) -> bool:
        """Whether the owner who ends releases has handed in."""
        return self._closed_by in self._received

    @property
    def outstanding(self) -> int:
        """Number of owners whose shares are expected and were not settled."""
        return self._owners - len(self._settled.keys() | self._left_out.keys())

    async def collected(self, timeout: float, enough: int | None = None) -> dict[int, Contribution]:
        """Return the contributions by owner that :meth:`settle` was not called for.

        They are returned as soon as there are ``enough`` of them, all owners have handed in or the release was ended,
        or after ``timeout`` seconds.
        """
        enough = self.outstanding if enough is None else min(enough, self.outstanding)
        with suppress(TimeoutError):
            async with asyncio.timeout(timeout), self._changed:
                await self._changed.wait_for(lambda: self.has_ended or len(self._received) >= enough)
        return dict(self._received)

    def settle(self, owners: Iterable[int]) -> None:
        """Forget shares that were added. Owners may still hand them in again, which has no effect."""
        self._settled |= {owner: self._received.pop(owner).settled() for owner in owners}

    def answer(self, number: int, opened: bytes) -> None:
        """Tell the owners who wait what was opened in a release."""
        answer = self._answer(number)
        if not answer.done():
            answer.set_result(opened)
        self._answers.pop(number - max(1, _MOST_READ // len(opened)), None)

    def leave_out(self, owner: int, cause: str) -> None:
        """Expect nothing from an owner in later releases, and tell it the cause when it waits or calls."""
        self._left_out[owner] = cause

    async def receive(self, owner: int, contribution: Contribution) -> bytes:
        """Keep a contribution, and return what is opened if the owner waits for it. Raise ValueError to refuse it."""
        if not hmac.compare_digest(contribution.digest, self._digest):
            raise ValueError("the owner has another study. Compare the study files, and the versions of privet.")
        if not 0 <= owner < self._owners:
            raise ValueError(f"owner {owner} is not one of the {self._owners} owners of the study.")
        self._refuse_left_out(owner)
        answer = self._answers.get(contribution.number)
        if answer is None or not answer.done():  # An owner who calls again after an interruption gets the answer.
            await self._keep(owner, contribution)
        opened = await asyncio.shield(self._answer(contribution.number)) if contribution.waits else b""
        self._refuse_left_out(owner)
        return opened

    def _refuse_left_out(self, owner: int) -> None:
        if owner in self._left_out:
            raise ValueError(self._left_out[owner])

    async def _keep(self, owner: int, contribution: Contribution) -> None:
        async with self._changed:
            # Servers that were restarted may still repeat earlier releases.
            await self._changed.wait_for(lambda: self._number >= contribution.number)
            self._refuse_left_out(owner)  # It may have called before it was left out.
            if self._number == contribution.number and self._is_known(owner, contribution):
                return
            if self._number == contribution.number and (owner in self._received or owner in self._settled):
                raise ValueError(f"owner {owner} has already handed in another share for this release.")
            if not self._is_open or self._number != contribution.number:
                raise ValueError(f"release {contribution.number} is over.")
            self._received[owner] = contribution
            self.bytes_received += contribution.length
            self._changed.notify_all()

    def _is_known(self, owner: int, contribution: Contribution) -> bool:
        if owner in self._settled:
            return self._settled[owner] == contribution.settled()
        return self._received.get(owner) == contribution

    def _answer(self, number: int) -> "asyncio.Future[bytes]":
        if number not in self._answers:
            self._answers[number] = asyncio.get_running_loop().create_future()
        return self._answers[number]

    @contextmanager
    def _counted(self, owner: int) -> Iterator[None]:
        """Refuse a call while the owner makes too many others, over any number of connections: each takes memory."""
        if self._calls[owner] >= _MOST_CALLS:
            raise ValueError(f"owner {owner} is already making {_MOST_CALLS} calls.")
        self._calls[owner] += 1
        try:
            yield
        finally:
            self._calls[owner] -= 1

    @asynccontextmanager
    async def _turn(self, owner: int, reads: asyncio.Semaphore) -> AsyncIterator[None]:
        """Wait until a long share can be read: one at a time of an owner, so that nobody takes the turns of others."""
        async with self._reading[owner], reads:
            yield

    def owner_of(self, context: Any) -> int:
        """Return the index of a caller, from its certificate. Raise CertificateError if it is not an owner."""
        if self._authority is None:
            return int(dict(context.invocation_metadata()).get("owner", "-1"))
        (certificate,) = context.auth_context().get("x509_pem_cert", [b""])
        owner = check(certificate, self._authority, role="owner")
        if owner.index < len(self._names) and owner.name != self._names[owner.index]:
            raise OtherPartyError(
                f"The certificate was issued to {owner.name}, but owner {owner.index} of the study is "
                f"{self._names[owner.index]}."
            )
        return owner.index

    @asynccontextmanager
    async def listening(
        self, host: str, port: int, keys: Path | None, server: int, longest: int
    ) -> AsyncIterator[None]:
        """Listen for owners during an ``async with`` block. ``longest`` is the largest length of a share, in bytes."""
        import grpc
        from grpc import aio

        _check_keys(keys, [host])
        if (keys is None) != (self._authority is None):
            raise ValueError("Give both keys and the certificate of the authority, or neither on one machine.")
        reads = asyncio.Semaphore(max(1, _MOST_READ // longest))

        async def hand_in(parts: AsyncIterator[bytes], context: Any) -> bytes:
            try:
                owner = self.owner_of(context)
                with self._counted(owner):
                    message = await joined(parts, longest, self._turn(owner, reads))
                    return await self.receive(owner, Contribution.from_bytes(message))
            except CertificateError as error:
                await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error))
            except ValueError as error:
                await context.abort(grpc.StatusCode.FAILED_PRECONDITION, str(error))
            except (StoppingError, TimeoutError) as error:
                await context.abort(grpc.StatusCode.UNAVAILABLE, str(error) or "the share stopped arriving.")
            raise AssertionError("abort() raises")

        options = [
            ("grpc.max_receive_message_length", min(longest + OVERHEAD, PART)),
            ("grpc.max_concurrent_streams", _MOST_CALLS),
            ("grpc.server_handshake_timeout_ms", int(1000 * _GREETING)),
            ("grpc.so_reuseport", 0),  # Otherwise a second process could take some of the calls.
        ]
        listener = aio.server(options=options)
        service, method = _METHOD.strip("/").split("/")
        handlers = {method: grpc.stream_unary_rpc_method_handler(hand_in)}
        listener.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, handlers),))
        address = _target(host, port)
        try:
            if keys is None:
                listener.add_insecure_port(address)
            else:
                authority, certificate, key = read_keys(keys, server)
                listener.add_secure_port(
                    address, grpc.ssl_server_credentials([(key, certificate)], authority, require_client_auth=True)
                )
        except RuntimeError as error:
            raise HandInError(f"Server {server} cannot listen on {address}. Is the port in use? ({error})") from error
        await listener.start()
        try:
            yield
        finally:
            for answer in self._answers.values():
                if not answer.done():
                    answer.set_exception(StoppingError("The server stops. It may be started again."))
                    answer.exception()  # It may be that nobody waits.
            await listener.stop(grace=1.0)


class Servers:
    """An owner's connections with all servers, for the duration of an ``async with`` block.

    Parameters
    ----------
    addresses : sequence of (host, port)
        Where the servers listen for owners, in order.
    owner : int
        Index of this owner.
    keys : path or None
        The folder with the owner's key and certificate. None without TLS, on one machine.
    timeout : float
        Seconds within which a server must accept a share, and within which a release must be opened.
    longest : int
        The largest length of a message, in bytes.
    """

    def __init__(
        self, addresses: Sequence[tuple[str, int]], owner: int, keys: Path | None, timeout: float, longest: int
    ) -> None:
        _check_keys(keys, [host for host, _ in addresses])
        self._addresses, self._owner, self._timeout = addresses, owner, timeout
        self._keys, self._longest = keys, longest
        self._calls: list[Any] = []
        self._stack = AsyncExitStack()
        self.bytes_sent = 0

    async def __aenter__(self) -> "Servers":
        """Prepare the connections. They are made at the first call."""
        import grpc
        from grpc import aio

        options = [
            ("grpc.max_receive_message_length", self._longest + OVERHEAD),
            ("grpc.use_local_subchannel_pool", 1),
            ("grpc.initial_reconnect_backoff_ms", 200),
            ("grpc.max_reconnect_backoff_ms", 1000),  # A server may be restarted.
        ]
        credentials = None
        if self._keys is not None:
            authority, certificate, key = read_keys(self._keys, self._owner, "owner")
            credentials = grpc.ssl_channel_credentials(authority, key, certificate)
        for server, (host, port) in enumerate(self._addresses):
            address = _target(host, port)
            if credentials is None:
                # A proxy is another machine, which must not see shares that are not encrypted.
                channel = aio.insecure_channel(address, options=[*options, ("grpc.enable_http_proxy", 0)])
            else:
                name = ("grpc.ssl_target_name_override", host_name(server))
                channel = aio.secure_channel(address, credentials, options=[*options, name])
            self._calls.append((await self._stack.enter_async_context(channel)).stream_unary(_METHOD))
        return self

    async def __aexit__(self, *_error: object) -> None:
        """Close the connections."""
        await self._stack.aclose()

    async def hand_in(self, contributions: Sequence[Contribution]) -> list[bytes]:
        """Hand in one contribution per server, and return the answers."""
        calls = (self._handed_in(server, each) for server, each in enumerate(contributions))
        return list(await asyncio.gather(*calls))

    async def _handed_in(self, server: int, contribution: Contribution) -> bytes:
        """Call a server until it answers, or until the timeout. A share may arrive twice, but counts once."""
        import grpc

        message = contribution.to_bytes()
        metadata = (("owner", str(self._owner)),) if self._keys is None else None
        loop = asyncio.get_running_loop()
        end = loop.time() + self._timeout
        while True:
            try:
                answer: bytes = await self._calls[server](
                    parts_of(message), timeout=max(0.1, end - loop.time()), metadata=metadata
                )
                self.bytes_sent += len(message)
                return answer
            except grpc.aio.AioRpcError as error:
                code, why = error.code(), error.details()
            if code.name in _FINAL or loop.time() + _PAUSE > end:
                host, port = self._addresses[server]
                remedy = "" if code.name in _REFUSED else f". {_UNREACHED}"
                raise HandInError(f"Server {server} ({host}:{port}) did not accept a share: {why}{remedy}")
            await asyncio.sleep(_PAUSE)


def _check_keys(keys: Path | None, hosts: Sequence[str]) -> None:
    """Raise if shares would be sent without TLS to or from another machine: all shares together are the vector."""
    remote = [host for host in hosts if not is_loopback(host)]
    if keys is None and remote:
        raise ValueError(
            f"{remote[0]} is not this machine, and without keys others could read all shares of an owner, or hand in "
            "shares in its name. Make keys with `privet party keygen`, and give each server and owner its files."
        )


def _target(host: str, port: int) -> str:
    """Return an address as gRPC expects it, with an IPv6 address in brackets."""
    return f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
