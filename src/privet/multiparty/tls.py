"""TLS between parties: 1.3 only, certificates on both ends, each for the party that it should be."""

import os
import socket
import ssl
from pathlib import Path

from privet.multiparty import keys

_NO_ISSUER = {18, 19, 20, 21}  # OpenSSL's X509_V_ERR_...: self-signed, self-signed in chain, no issuer, no first
_CERTIFICATE = {
    9: "its certificate is not yet valid: check the clocks of both machines",
    10: "its certificate has expired: make new keys for all parties",
    62: "its certificate is that of another party: check the order of the addresses and its index",
    **dict.fromkeys(_NO_ISSUER, "its certificate is of another authority: all parties need the keys of one keygen"),
}
_CLOSED = "it closed the connection without a word: does it use keys as this party does, and accept this one's?"
_PLAIN = {
    ConnectionRefusedError: "nobody listens there",
    TimeoutError: "no answer",
    EOFError: _CLOSED,
    ConnectionResetError: _CLOSED,
}


def context(folder: str | os.PathLike[str], index: int, is_server: bool) -> ssl.SSLContext:
    """Return how a party proves who it is and what it demands of the other end."""
    place = Path(folder)
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    made.minimum_version = ssl.TLSVersion.TLSv1_3
    made.verify_mode = ssl.CERT_REQUIRED
    made.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    made.load_verify_locations(keys.authority_file(place))  # this authority, and none of the system's
    made.load_cert_chain(keys.certificate_file(place, index), keys.key_file(place, index))
    if is_server:
        made.num_tickets = 0  # nobody resumes: a party connects once
    return made


def explained(error: BaseException) -> str:
    """Return in plain words why a connection did not come about."""
    if isinstance(error, ssl.SSLCertVerificationError):
        return _CERTIFICATE.get(error.verify_code, f"its certificate is not acceptable ({error.verify_message})")
    if isinstance(error, ssl.SSLError):
        return f"TLS failed ({error.reason or error}): was the other end started without keys, or with others?"
    if isinstance(error, socket.gaierror):
        return f"the host name does not resolve ({error.strerror})"
    for kind, words in _PLAIN.items():
        if isinstance(error, kind):
            return words
    return str(error) or type(error).__name__
