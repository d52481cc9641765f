"""Errors of the network between parties. Each message names the party, its address, the cause and the remedy."""

import socket
import ssl

_NO_ISSUER = {18, 19, 20, 21}  # OpenSSL's X509_V_ERR_...: self-signed, self-signed in chain, no issuer, no first
_CERTIFICATE = {
    9: "its certificate is not valid yet. Check the clocks of both machines",
    10: "its certificate has expired. Make new keys for all parties",
    62: "its certificate belongs to another party. Check the order of the addresses and the index of that party",
    **dict.fromkeys(
        _NO_ISSUER, "its certificate was signed by another authority. All parties need keys that were made together"
    ),
}
_CLOSED = "it closed the connection without a message. Check that both parties use keys of the same study"
_PLAIN = {
    ConnectionRefusedError: "no process listens there",
    TimeoutError: "no answer",
    EOFError: _CLOSED,
    ConnectionResetError: _CLOSED,
}


class NetworkError(RuntimeError):
    """The parties could not connect, or their connection was lost."""


class PortInUseError(NetworkError):
    """A party cannot listen on its own port."""


class _PartyError(NetworkError):
    """An error with one party, whose index is ``party``."""

    def __init__(self, message: str, party: int) -> None:
        super().__init__(message)
        self.party = party


class _PartiesError(NetworkError):
    """An error with at least one party. The indices are ``parties``."""

    def __init__(self, message: str, parties: tuple[int, ...]) -> None:
        super().__init__(message)
        self.parties = parties


class PartyMissingError(_PartiesError):
    """At least one party did not connect in time."""


class PartySilentError(_PartiesError):
    """A connection exists, but an awaited message did not arrive over it within the timeout."""


class PartyRefusedError(_PartyError):
    """Two parties reached each other, but one of them does not accept the other."""


class PartyLostError(_PartyError):
    """An existing connection was lost because the other process ended or the network failed."""


class StoppedError(NetworkError):
    """A party stopped the computation and said why."""

    def __init__(self, party: int, cause: str) -> None:
        super().__init__(f"party {party}: {cause}")
        self.party, self.cause = party, cause


def explained(error: BaseException) -> str:
    """Return the reason why a connection could not be made, as text."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATE.get(error.verify_code, f"its certificate is not acceptable ({error.verify_message})")
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}). Check that the other party was started with keys of this study"
    if isinstance(error, socket.gaierror):
        return f"the host name cannot be resolved ({error.strerror})"
    for kind, words in _PLAIN.items():
        if isinstance(error, kind):
            return words
    return str(error) or type(error).__name__


class StoppingError(Exception):
    """A server stops while an owner waits for it."""
