"""Keys and certificates of a study's parties, and signatures with them.

One authority signs one certificate a party. Its private key is never written: once the certificates are made, nobody,
not even who made them, can make another that passes for a party of this study. The price is that new certificates mean
a new authority, for all parties; they are made for one study, so that is what one wants.

Who runs :func:`make_keys` sees every party's private key. Give each party its own three files over a safe way, and
delete the rest.
"""

import os
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from privet.checks import positive
from privet.multiparty import certificates
from privet.multiparty.certificates import CertificateError, SignatureError, UnreadableError

_PURPOSE = b"privet: a payload signed by a party\0"  # no other protocol signs such bytes with these keys


def authority_file(folder: Path) -> Path:
    """Return where the authority's certificate lies."""
    return folder / "ca.crt"


def certificate_file(folder: Path, index: int) -> Path:
    """Return where a party's certificate lies."""
    return folder / f"party_{index}.crt"


def key_file(folder: Path, index: int) -> Path:
    """Return where a party's private key lies."""
    return folder / f"party_{index}.key"


def make_keys(
    folder: str | os.PathLike[str], parties: Sequence[str], days: float = 365, start: datetime | None = None
) -> Path:
    """Make an authority, and a key and a certificate for every party, in a new folder.

    The folder appears with all its files (each readable by its owner only) or not at all. An existing folder with
    anything in it is never touched.

    Parameters
    ----------
    folder : path
        The folder to make: ``ca.crt``, and ``party_<i>.crt`` and ``party_<i>.key`` for each party.
    parties : sequence of str
        The parties' names, in the order of their addresses.
    days : float
        How long the certificates are valid, from now or from ``start``.
    start : datetime or None
        When their validity begins, with a time zone; None for now (and a day before it, because clocks differ).

    Returns
    -------
    Path
        The folder.
    """
    positive("days", days)
    if not parties or not all(isinstance(name, str) and 0 < len(name) <= 64 for name in parties):
        raise ValueError(f"parties must be names of 1 to 64 characters, got {parties!r}")
    target = Path(folder).resolve()
    if target.exists() and (not target.is_dir() or any(target.iterdir())):
        raise FileExistsError(f"{folder} exists already, and keys are never overwritten: name a new folder")
    now = datetime.now(UTC) if start is None else start
    begin = now - timedelta(days=1) if start is None else start
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent, prefix=f".{target.name}.") as temporary:
        made = Path(temporary) / "keys"
        made.mkdir(mode=0o700)
        for path, content in _contents(made, parties, begin, now + timedelta(days=days)).items():
            _write(path, content)
        try:
            made.rename(target)  # fails if somebody made the folder, and something in it, meanwhile
        except OSError as error:
            raise FileExistsError(f"{folder} exists already, and keys are never overwritten: name a new one") from error
    return Path(folder)


def _contents(folder: Path, parties: Sequence[str], begin: datetime, end: datetime) -> dict[Path, bytes]:
    authority_key = ec.generate_private_key(ec.SECP256R1())
    authority = certificates.authority(authority_key, begin, end)
    contents = {authority_file(folder): certificates.to_pem(authority)}
    for index, name in enumerate(parties):
        key = ec.generate_private_key(ec.SECP256R1())
        certificate = certificates.issue(index, name, key.public_key(), (authority, authority_key), begin, end)
        contents[certificate_file(folder, index)] = certificates.to_pem(certificate)
        contents[key_file(folder, index)] = key.private_bytes(
            serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
        )
    return contents


def _write(path: Path, content: bytes) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())


@dataclass(frozen=True)
class Identity:
    """Who a party is: its certificate, and the key that proves it.

    Attributes
    ----------
    index : int
        The party's place among the parties.
    name : str
        Its name in the certificate.
    certificate, authority : bytes
        Its certificate and the authority's, as PEM.
    """

    index: int
    name: str
    certificate: bytes
    authority: bytes
    _key: ec.EllipticCurvePrivateKey = field(repr=False, compare=False)

    @classmethod
    def load(cls, folder: str | os.PathLike[str], index: int) -> "Identity":
        """Read a party's files, and check that peers with the same authority will accept them today.

        Raises
        ------
        CertificateError
            In the form that says what is wrong: expired, not yet valid, of another authority, of another party,
            unreadable.
        """
        place = Path(folder)
        authority = _read(authority_file(place))
        certificate = _read(certificate_file(place, index))
        owner = certificates.check(certificate, authority, party=index)
        try:
            key = serialization.load_pem_private_key(_read(key_file(place, index)), password=None)
        except (ValueError, TypeError) as error:
            raise UnreadableError(f"{key_file(place, index)} holds no private key: copy it again") from error
        if not isinstance(key, ec.EllipticCurvePrivateKey) or key.public_key() != owner.public_key:
            raise CertificateError(
                f"{key_file(place, index).name} does not belong to {certificate_file(place, index).name}: copy both "
                "from the folder that they were made in"
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
    at: datetime | None = None,
) -> None:
    """Check that the owner of a certificate signed a payload; raise if not.

    Parameters
    ----------
    certificate, authority : bytes
        The signer's certificate and the authority's, as PEM.
    payload, signature : bytes
        What :meth:`Identity.sign` was given, and what it returned.
    party : int or None
        The party that must have signed; None to accept any party of the authority.
    at : datetime or None
        When the certificate must have been valid, with a time zone; None for now. A signature carries no time of its
        own: who verifies an old one must know from elsewhere when it was made.

    Raises
    ------
    CertificateError
        The certificate is not acceptable.
    SignatureError
        It is, and the signature is not the owner's, or not of this payload.
    """
    owner = certificates.check(certificate, authority, party=party, at=at)
    try:
        owner.public_key.verify(signature, _PURPOSE + payload, ec.ECDSA(hashes.SHA256()))
    except InvalidSignature as error:
        raise SignatureError(
            f"the signature is not that of party {owner.index} ({owner.name}), or the signed text was changed"
        ) from error


def _read(path: Path) -> bytes:
    try:
        return path.read_bytes()
    except OSError as error:
        raise UnreadableError(
            f"{path} cannot be read ({error.strerror}): make keys with `privet party keygen`, or name their folder"
        ) from error
