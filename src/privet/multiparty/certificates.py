"""Certificates of parties: how they are made, and what must hold of one before it is believed."""

from dataclasses import dataclass
from datetime import UTC, datetime

from cryptography import x509
from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID


class CertificateError(ValueError):
    """A certificate that cannot be believed."""


class ExpiredError(CertificateError):
    """It was valid once."""


class NotYetValidError(CertificateError):
    """It will be valid later."""


class OtherAuthorityError(CertificateError):
    """Another study's authority signed it, or nobody did."""


class OtherPartyError(CertificateError):
    """It is good, and belongs to another party."""


class UnreadableError(CertificateError):
    """There is no such file, or it holds something else."""


class SignatureError(ValueError):
    """A signature that does not fit."""


@dataclass(frozen=True)
class Owner:
    """The party that a certificate speaks of."""

    index: int
    name: str
    public_key: ec.EllipticCurvePublicKey


def host_name(index: int) -> str:
    """Return the name under which a party's certificate is valid: its place, wherever it runs."""
    return f"party-{index}.privet.invalid"  # a top-level domain that can never exist


def authority(key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime) -> x509.Certificate:
    """Return the certificate of a study's authority, signed by itself."""
    name = _name("privet study authority")
    return (
        _builder(name, name, key.public_key(), begin, end)
        .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
        .add_extension(_usage(signs_certificates=True), critical=True)
        .sign(key, hashes.SHA256())
    )


def issue(
    index: int,
    name: str,
    key: ec.EllipticCurvePublicKey,
    issuer: tuple[x509.Certificate, ec.EllipticCurvePrivateKey],
    begin: datetime,
    end: datetime,
) -> x509.Certificate:
    """Return a party's certificate. It cannot sign another: parties cannot make parties."""
    certificate, issuer_key = issuer
    both_ends = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        _builder(_name(name), certificate.subject, key, begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both_ends), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host_name(index))]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def check(certificate: bytes, authority: bytes, party: int | None = None, at: datetime | None = None) -> Owner:
    """Return the owner of a certificate (PEM) of an authority (PEM), or raise the error that says what is wrong."""
    given, issuer = _parsed(certificate, "a party's certificate"), _parsed(authority, "the authority's certificate")
    try:
        given.verify_directly_issued_by(issuer)
    except (ValueError, TypeError, InvalidSignature) as error:
        raise OtherAuthorityError(
            "the certificate was signed by another authority: all parties need the keys of one `privet party keygen`"
        ) from error
    owner = _owner(given)
    if party is not None and owner.index != party:
        raise OtherPartyError(
            f"the certificate is that of party {owner.index} ({owner.name}), not of party {party}: check the index and "
            "the folder of keys"
        )
    now = datetime.now(UTC) if at is None else at
    for each, whose in ((given, f"of party {owner.index} ({owner.name})"), (issuer, "of the study's authority")):
        _check_time(each, whose, now)
    return owner


def to_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _check_time(certificate: x509.Certificate, whose: str, now: datetime) -> None:
    begin, end = certificate.not_valid_before_utc, certificate.not_valid_after_utc
    if now > end:
        raise ExpiredError(f"the certificate {whose} expired on {end:%Y-%m-%d}: make new keys for all parties")
    if now < begin:
        raise NotYetValidError(f"the certificate {whose} is valid from {begin:%Y-%m-%d} on: check this machine's clock")


def _parsed(pem: bytes, what: str) -> x509.Certificate:
    try:
        return x509.load_pem_x509_certificate(pem)
    except ValueError as error:
        raise UnreadableError(f"{what} is damaged, or the file holds something else: copy it again") from error


def _owner(certificate: x509.Certificate) -> Owner:
    try:
        names = certificate.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        (host,) = names.get_values_for_type(x509.DNSName)
        (name,) = certificate.subject.get_attributes_for_oid(NameOID.COMMON_NAME)
        index = int(host.split(".")[0].removeprefix("party-"))
    except (x509.ExtensionNotFound, ValueError) as error:
        raise UnreadableError(
            "the certificate does not say whose it is: make keys with `privet party keygen`"
        ) from error
    key = certificate.public_key()
    if host != host_name(index) or not isinstance(key, ec.EllipticCurvePublicKey):
        raise UnreadableError("the certificate is not that of a party: make keys with `privet party keygen`")
    return Owner(index, str(name.value), key)


def _builder(
    subject: x509.Name, issuer: x509.Name, key: ec.EllipticCurvePublicKey, begin: datetime, end: datetime
) -> x509.CertificateBuilder:
    return (
        x509.CertificateBuilder(subject_name=subject, issuer_name=issuer, public_key=key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(begin)
        .not_valid_after(end)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key), critical=False)
    )


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _usage(signs_certificates: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs_certificates,
        key_cert_sign=signs_certificates,
        crl_sign=False,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        encipher_only=False,
        decipher_only=False,
    )
