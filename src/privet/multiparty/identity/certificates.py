"""Certificates, identities and signatures of parties, and what must hold before a certificate is accepted."""

import os
import re
import ssl
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

# Prefix of everything that parties sign, so that no signature made for another protocol is valid here.
_PURPOSE = b"privet: a payload signed by a party\0"


# A name is printed in lists and used as a file name, so it must not contain separators or control characters.
ROLES = ("party", "owner")
_NAME = re.compile(r"\w(?:[\w .-]*[\w.-])?")
_LONGEST_NAME = 64  # bytes, the most that a certificate holds


class CertificateError(ValueError):
    """A certificate is not acceptable."""


class ExpiredError(CertificateError):
    """The certificate is no longer valid."""


class NotYetValidError(CertificateError):
    """The certificate is not valid yet."""


class OtherAuthorityError(CertificateError):
    """The certificate was not signed by the authority of this study."""


class OtherPartyError(CertificateError):
    """The certificate is valid, but belongs to another party."""


class UnreadableError(CertificateError):
    """The file does not exist, or does not contain what it should."""


class SignatureError(ValueError):
    """A signature does not match the signer or the payload."""


@dataclass(frozen=True)
class Identity:
    """A party's certificate and the private key that belongs to it.

    Attributes
    ----------
    index : int
        The party's position in the list of parties.
    name : str
        The party's name in the certificate.
    certificate, authority : bytes
        The party's certificate and the authority's certificate, both as PEM.
    """

    index: int
    name: str
    certificate: bytes
    authority: bytes
    _key: ec.EllipticCurvePrivateKey = field(repr=False, compare=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], index: int) -> "Identity":
        """Read a party's files and check that peers with the same authority will accept them today.

        Raises
        ------
        CertificateError
            One of its subclasses, which says whether the certificate has expired, is not valid yet, belongs to another
            authority or party, or is unreadable.
        """
        authority_file, certificate_file, key_file = key_files(folder, index)
        authority, certificate = _read(authority_file), _read(certificate_file)
        owner = check(certificate, authority, party=index)
        key_text = _read(key_file)
        try:
            key = serialization.load_pem_private_key(key_text, password=None)
        except (ValueError, TypeError) as error:
            raise UnreadableError(f"{key_file} does not contain a private key. Copy the file again.") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != owner.public_key:
            raise CertificateError(
                f"{key_file.name} does not belong to {certificate_file.name}. Copy both files again from the folder "
                "in which the keys were made."
            )
        return cls(index, owner.name, certificate, authority, key)

    def sign(self, payload: bytes) -> bytes:
        """Return this party's signature of a payload (ECDSA, P-256, SHA-256)."""
        return self._key.sign(_PURPOSE + payload, ec.ECDSA(hashes.SHA256()))


def verify(
    certificate: bytes,
    payload: bytes,
    signature: bytes,
    *,
    authority: bytes,
    party: int | None = None,
    name: str | None = None,
    at: datetime | None = None,
) -> None:
    """Check that the owner of a certificate signed a payload, and raise an error otherwise.

    Parameters
    ----------
    certificate, authority : bytes
        The signer's certificate and the authority's, as PEM.
    payload, signature : bytes
        What :meth:`Identity.sign` was given, and what it returned.
    party : int or None
        The party that must have signed. None accepts any party of the authority.
    name : str or None
        The name of that party, which its certificate must state. None accepts any name.
    at : datetime or None
        When the certificate must have been valid, with a time zone. None means now. A signature does not contain the
        time at which it was made, so to verify an old one you must know that time from elsewhere.

    Raises
    ------
    CertificateError
        The certificate is not acceptable.
    SignatureError
        The certificate is acceptable, but its owner did not make this signature of this payload.
    """
    owner = check(certificate, authority, party=party, name=name, at=at)
    try:
        owner.public_key.verify(signature, _PURPOSE + payload, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise SignatureError(
            f"The signature of party {owner.index} ({owner.name}) is not valid. Either another key made it, or the "
            "signed text was changed."
        ) from error


@dataclass(frozen=True)
class Owner:
    """The party to which a certificate was issued."""

    index: int
    name: str
    public_key: ec.EllipticCurvePublicKey
    role: str = "party"


def check(
    certificate: bytes,
    authority: bytes,
    party: int | None = None,
    name: str | None = None,
    at: datetime | None = None,
    role: str = "party",
) -> Owner:
    """Return the owner of a certificate after checking who signed it, whose it is, and when it is valid.

    Parameters
    ----------
    certificate, authority : bytes
        The certificate and that of the authority that must have signed it, as PEM.
    party : int or None
        The party to which the certificate must belong. None accepts any party.
    name : str or None
        The name that the certificate must state. None accepts any name.
    at : datetime or None
        When both certificates must be valid. None means now.
    role : {"party", "owner"}
        What the certificate must have been issued for: taking part in the computation, or handing in shares.

    Raises
    ------
    CertificateError
        One of its subclasses, which says what is wrong.
    """
    given, issuer = _parse(certificate, "The party's certificate"), _parse(authority, "The authority's certificate")
    try:
        given.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise OtherAuthorityError(
            "The certificate was signed by another authority. All parties need keys from the same run of `privet "
            "party keygen`."
        ) from error
    owner = _owner(given)
    if owner.role != role:
        raise OtherPartyError(
            f"The certificate was issued to {owner.role} {owner.index} ({owner.name}), but one of a {role} is needed."
        )
    if party is not None and owner.index != party:
        raise OtherPartyError(
            f"The certificate belongs to party {owner.index} ({owner.name}), not to party {party}. Check the index and "
            "the folder of keys."
        )
    if name is not None and owner.name != name:
        raise OtherPartyError(
            f"The certificate of party {owner.index} names {owner.name!r}, but the study names that party {name!r}. "
            "Make the keys of this study with `privet party keygen`."
        )
    now = datetime.now(UTC) if at is None else at
    for each, whose in ((given, f"party {owner.index} ({owner.name})"), (issuer, "the study's authority")):
        begin, end = each.not_valid_before_utc, each.not_valid_after_utc
        if now > end:
            raise ExpiredError(f"The certificate of {whose} expired on {end:%Y-%m-%d}. Make new keys for all parties.")
        if now < begin:
            raise NotYetValidError(
                f"The certificate of {whose} is valid only from {begin:%Y-%m-%d}. Check the clock of this machine."
            )
    return owner


def check_name(name: object) -> None:
    """Raise ValueError unless a party may have this name."""
    if not isinstance(name, str) or not _NAME.fullmatch(name) or len(name.encode()) > _LONGEST_NAME:
        raise ValueError(
            f"{name!r} is not a valid name of a party. Use up to {_LONGEST_NAME} letters, digits, spaces, dots and "
            "dashes, where letters with accents count as two and those of some scripts as three. Start with a letter "
            "or digit, and do not end with a space."
        )


def host_name(index: int, role: str = "party") -> str:
    """Return the host name in a certificate. It depends on the role and the index, and not on where a party runs."""
    return f"{role}-{index}.privet.invalid"  # The top-level domain "invalid" is reserved and can never exist.


def key_files(folder: str | os.PathLike[str], index: int, role: str = "party") -> tuple[Path, Path, Path]:
    """Return the paths of the authority's certificate, a party's certificate and its private key."""
    place = Path(folder)
    return place / "ca.crt", place / f"{role}_{index}.crt", place / f"{role}_{index}.key"


def read_keys(folder: str | os.PathLike[str], index: int, role: str = "party") -> tuple[bytes, bytes, bytes]:
    """Return the contents of the files of :func:`key_files`. Raise, with the remedy, if one of them is missing."""
    authority, certificate, key = key_files(folder, index, role)
    return _read(authority), _read(certificate), _read(key)


def tls_context(folder: str | os.PathLike[str], index: int, is_server: bool) -> ssl.SSLContext:
    """Return the TLS settings of a party: version 1.3 only, and certificates required on both ends."""
    authority_file, certificate_file, key_file = key_files(folder, index)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER if is_server else ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_STRICT
    context.load_verify_locations(authority_file)  # Trust only this authority, not the system's.
    context.load_cert_chain(certificate_file, key_file)
    if is_server:
        context.num_tickets = 0  # Each party connects once, so TLS sessions are never resumed.
    return context


def _parse(pem: bytes, what: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise UnreadableError(f"{what} is damaged, or its file contains something else. Copy it again.") from error


def _owner(certificate: x509.Certificate) -> Owner:
    """Return the party that a certificate names, and raise if it does not name one."""
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (host,) = names.get_values_for_type(x509.DNSName)
        (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        role, _, number = host.split(".")[0].partition("-")
        index = int(number)
    except (x509.ExtensionNotFound, ValueError) as error:
        raise UnreadableError(
            "The certificate does not name its owner. Make the keys with `privet party keygen`."
        ) from error
    key = certificate.public_key()
    if role not in ROLES or host != host_name(index, role) or not isinstance(key, ec.EllipticCurvePublicKey):
        raise UnreadableError(
            "The certificate does not belong to a party of a study. Make the keys with `privet party keygen`."
        )
    return Owner(index, str(name.value), key, role)


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableError(
            f"{path} cannot be read ({error.strerror}). Check the folder of keys, or make keys with `privet party "
            "keygen`."
        ) from error
