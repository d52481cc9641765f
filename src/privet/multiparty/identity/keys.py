"""Making the keys and certificates of a study's parties.

One authority signs one certificate per party. The authority's private key is never written, so once the certificates
are made, nobody (including the person who made them) can make another certificate for this study. The price is that
new certificates require a new authority for all parties, which is acceptable because keys are made for one study.

Whoever runs :func:`make_keys` sees the private key of every party. Give each party its own three files over a secure
channel, and delete the rest.
"""

import os
import tempfile
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from privet.checks import positive
from privet.multiparty.identity.certificates import check_name, host_name, key_files


def make_keys(
    folder: str | os.PathLike[str],
    parties: Sequence[str],
    days: float = 365,
    start: datetime | None = None,
    *,
    owners: Sequence[str] = (),
) -> Path:
    """Make an authority, and a private key and a certificate for every party, in a new folder.

    Either the folder appears with all its files (each readable by its owner only), or it does not appear at all. A
    folder that already contains something is never changed.

    Parameters
    ----------
    folder : path
        The folder to make. It will contain ``ca.crt``, and ``party_<i>.crt`` and ``party_<i>.key`` for each party.
    parties : sequence of str
        The parties' names, in the order of their addresses.
    days : float
        How long the certificates are valid, counted from ``start``.
    start : datetime or None
        When the certificates become valid, with a time zone. None means now; the certificates are then also valid for
        the day before, because clocks differ.
    owners : sequence of str
        The names of owners who hand in shares to the parties, and take no other part. The folder will also contain
        ``owner_<i>.crt`` and ``owner_<i>.key`` for each of them: an owner's invitation to the study.

    Returns
    -------
    Path
        The folder.
    """
    positive("days", days)
    if not parties or isinstance(parties, str):
        raise ValueError(f"parties must be a list of names, got {parties!r}. Give one name per party.")
    for name in (*parties, *owners):
        check_name(name)
    exists = f"{folder} already exists, and keys are never overwritten. Choose a new folder."
    target = Path(folder).resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(exists)
    now = datetime.now(UTC) if start is None else start
    begin = now - timedelta(days=1) if start is None else start
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        made = Path(temporary) / "keys"
        made.mkdir(mode=0o700)
        for path, content in _contents(
            made, {"party": parties, "owner": owners}, begin, now + timedelta(days=days)
        ).items():
            _write(path, content)
        os.sync()  # once, because there may be thousands of files
        try:
            made.rename(target)  # This fails if somebody made the folder and put something into it in the meantime.
        except OSError as error:
            raise FileExistsError(exists) from error
    return Path(folder)


def make_authority(key: ec.EllipticCurvePrivateKey, begin: datetime, end: datetime) -> x509.Certificate:
    """Return the self-signed certificate of a study's authority."""
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
    role: str = "party",
) -> x509.Certificate:
    """Return a party's certificate. It cannot sign other certificates, so a party cannot create further parties."""
    certificate, issuer_key = issuer
    both_ends = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
    identifier = x509.AuthorityKeyIdentifier.from_issuer_public_key(issuer_key.public_key())
    return (
        _builder(_name(name), certificate.subject, key, begin, end)
        .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
        .add_extension(_usage(signs_certificates=False), critical=True)
        .add_extension(x509.ExtendedKeyUsage(both_ends), critical=False)
        .add_extension(x509.SubjectAlternativeName([x509.DNSName(host_name(index, role))]), critical=False)
        .add_extension(identifier, critical=False)
        .sign(issuer_key, hashes.SHA256())
    )


def to_pem(certificate: x509.Certificate) -> bytes:
    """Return a certificate as PEM text."""
    return certificate.public_bytes(serialization.Encoding.PEM)


def _contents(folder: Path, names: Mapping[str, Sequence[str]], begin: datetime, end: datetime) -> dict[Path, bytes]:
    """Return the files of a new study: their paths and what they contain. ``names`` are those of each role."""
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = make_authority(authority_key, begin, end)
    contents = {}
    for role, index, name in ((role, *each) for role, listed in names.items() for each in enumerate(listed)):
        authority_file, certificate_file, key_file = key_files(folder, index, role)
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = issue(index, name, key.public_key(), (authority, authority_key), begin, end, role)
        contents[authority_file] = to_pem(authority)
        contents[certificate_file] = to_pem(certificate)
        contents[key_file] = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    return contents


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)


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
