"""Keys are made completely or not at all, certificates are checked, and signatures are valid for one payload."""

import stat
import subprocess
from datetime import UTC, datetime, timedelta

import pytest

pytest.importorskip("cryptography", reason="several parties need cryptography: install the extra multiparty")
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec

from privet.multiparty.identity import keys
from privet.multiparty.identity.certificates import (
    CertificateError,
    ExpiredError,
    Identity,
    NotYetValidError,
    OtherAuthorityError,
    OtherPartyError,
    SignatureError,
    UnreadableError,
    check,
    verify,
)
from privet.multiparty.identity.keys import make_keys

NAMES = ["North", "South", "Zürich-West 2."]
NOW = datetime.now(UTC)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("study") / "keys", NAMES)


@pytest.fixture(scope="module")
def other(tmp_path_factory):
    return make_keys(tmp_path_factory.mktemp("other") / "keys", NAMES)


def copy(folder, target):
    target.mkdir()
    for path in folder.iterdir():
        (target / path.name).write_bytes(path.read_bytes())
    return target


# --------------------------------------------------------------------------------------------------------------- making


def test_all_files_exist_and_only_their_owner_can_read_them(folder):
    names = {"ca.crt", *(f"party_{index}.{kind}" for index in range(3) for kind in ("crt", "key"))}
    assert {path.name for path in folder.iterdir()} == names  # the authority's key is not among them
    assert {stat.S_IMODE(path.stat().st_mode) for path in folder.iterdir()} == {0o600}
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700


def test_every_party_loads_its_own_identity_and_hides_its_key(folder):
    for index, name in enumerate(NAMES):
        identity = Identity.load(folder, index)
        assert (identity.index, identity.name) == (index, name)
        assert "PRIVATE" not in repr(identity) and "key" not in repr(identity)


def test_openssl_accepts_the_certificates(folder):
    """An independent implementation accepts the chain, the purposes and the names."""
    options = ["-x509_strict", "-CAfile", str(folder / "ca.crt"), "-verify_hostname", "party-1.privet.invalid"]
    command = ["openssl", "verify", *options, str(folder / "party_1.crt")]
    try:
        done = subprocess.run(command, capture_output=True, text=True, check=False)
    except FileNotFoundError:
        pytest.skip("openssl is not installed")
    assert done.returncode == 0, done.stderr
    refused = subprocess.run([*command[:-1], str(folder / "party_2.crt")], capture_output=True, check=False)
    assert refused.returncode != 0


def test_existing_keys_are_never_overwritten(folder):
    before = {path: path.read_bytes() for path in folder.iterdir()}
    with pytest.raises(FileExistsError, match="never overwritten"):
        make_keys(folder, NAMES)
    assert {path: path.read_bytes() for path in folder.iterdir()} == before


def test_a_folder_that_appears_in_the_meantime_is_not_changed(tmp_path, monkeypatch):
    target = tmp_path / "keys"
    issue = keys.issue

    def issue_in_the_meantime(*arguments):
        target.mkdir(exist_ok=True)
        (target / "theirs").write_text("mine")
        return issue(*arguments)

    monkeypatch.setattr(keys, "issue", issue_in_the_meantime)
    with pytest.raises(FileExistsError):
        make_keys(target, NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["keys"]
    assert [path.name for path in target.iterdir()] == ["theirs"]


def test_an_empty_folder_is_filled_and_a_failure_leaves_nothing_behind(tmp_path, monkeypatch):
    (tmp_path / "empty").mkdir()
    make_keys(tmp_path / "empty", NAMES)
    Identity.load(tmp_path / "empty", 2)

    def failing(*arguments):
        raise OSError("the disk is full")

    monkeypatch.setattr("privet.multiparty.identity.keys._write", failing)
    with pytest.raises(OSError, match="disk is full"):
        make_keys(tmp_path / "new", NAMES)
    assert [path.name for path in tmp_path.iterdir()] == ["empty"]


@pytest.mark.parametrize("parties", [[], "abc", [""], ["x" * 65], ["ü" * 33], [3], ["a, b"], ["a\n"]])
def test_invalid_names_are_refused(tmp_path, parties):
    with pytest.raises(ValueError, match=r"a list of names|is not a valid name of a party"):
        make_keys(tmp_path / "keys", parties)
    with pytest.raises(ValueError, match="days"):
        make_keys(tmp_path / "keys", NAMES, days=0)
    assert not (tmp_path / "keys").exists()


# -------------------------------------------------------------------------------------------------------------- loading


def test_expired_and_not_yet_valid_certificates_are_refused(tmp_path):
    make_keys(tmp_path / "old", NAMES, days=10, start=NOW - timedelta(days=11))
    with pytest.raises(ExpiredError, match=r"party 1 \(South\) expired on 20.*Make new keys"):
        Identity.load(tmp_path / "old", 1)
    make_keys(tmp_path / "new", NAMES, start=NOW + timedelta(days=1))
    with pytest.raises(NotYetValidError, match=r"valid only from 20.*clock"):
        Identity.load(tmp_path / "new", 1)


def test_certificates_of_another_authority_are_refused(folder, other, tmp_path):
    mixed = copy(folder, tmp_path / "mixed")
    (mixed / "ca.crt").write_bytes((other / "ca.crt").read_bytes())
    with pytest.raises(OtherAuthorityError, match="another authority"):
        Identity.load(mixed, 1)


def test_certificates_of_another_party_are_refused(folder, tmp_path):
    mixed = copy(folder, tmp_path / "mixed")
    for kind in ("crt", "key"):
        (mixed / f"party_1.{kind}").write_bytes((folder / f"party_2.{kind}").read_bytes())
    with pytest.raises(OtherPartyError, match=r"belongs to party 2 .* not to party 1"):
        Identity.load(mixed, 1)


def test_a_private_key_of_another_party_is_refused(folder, tmp_path):
    mixed = copy(folder, tmp_path / "mixed")
    (mixed / "party_1.key").write_bytes((folder / "party_2.key").read_bytes())
    with pytest.raises(CertificateError, match=r"party_1\.key does not belong to party_1\.crt"):
        Identity.load(mixed, 1)


@pytest.mark.parametrize("name", ["ca.crt", "party_1.crt", "party_1.key"])
@pytest.mark.parametrize("damage", ["missing", "empty", "garbage", "cut"])
def test_unreadable_files_are_named(folder, tmp_path, name, damage):
    damaged = copy(folder, tmp_path / "damaged")
    content = (damaged / name).read_bytes()
    if damage == "missing":
        (damaged / name).unlink()
    else:
        (damaged / name).write_bytes(
            {"empty": b"", "garbage": b"\xff" * 99, "cut": content[: len(content) // 2]}[damage]
        )
    with pytest.raises(UnreadableError, match=r"privet party keygen|Copy it again|Copy the file again"):
        Identity.load(damaged, 1)


def test_a_party_cannot_create_another_party(folder):
    """A certificate that party 1 signed for party 2 is refused, although the authority signed that of party 1."""
    mine = Identity.load(folder, 1)
    own = x509.load_pem_x509_certificate(mine.certificate)
    key = ec.generate_private_key(ec.SECP256R1())
    forged = keys.issue(2, "West", key.public_key(), (own, mine._key), NOW, NOW + timedelta(days=1))
    with pytest.raises(OtherAuthorityError):
        check(keys.to_pem(forged), mine.authority)


def test_the_certificate_of_the_authority_is_not_accepted_as_a_party(folder):
    authority = (folder / "ca.crt").read_bytes()
    with pytest.raises(UnreadableError, match="does not name its owner"):
        check(authority, authority)


# -------------------------------------------------------------------------------------------------------------- signing


def test_a_signature_is_valid_only_for_its_payload_and_its_party(folder, other):
    one, two = Identity.load(folder, 1), Identity.load(folder, 2)
    signature = one.sign(b"the model")
    verify(one.certificate, b"the model", signature, authority=two.authority, party=1)
    verify(one.certificate, b"the model", signature, authority=two.authority)
    with pytest.raises(SignatureError, match=r"party 1 \(South\)"):
        verify(one.certificate, b"the Model", signature, authority=two.authority)
    with pytest.raises(SignatureError):
        verify(one.certificate, b"the model", two.sign(b"the model"), authority=two.authority)
    with pytest.raises(SignatureError):
        verify(one.certificate, b"the model", b"", authority=two.authority)
    with pytest.raises(OtherPartyError):
        verify(one.certificate, b"the model", signature, authority=two.authority, party=2)
    stranger = Identity.load(other, 1)
    with pytest.raises(OtherAuthorityError):
        verify(stranger.certificate, b"the model", stranger.sign(b"the model"), authority=two.authority)


def test_an_old_signature_can_be_verified_for_the_time_at_which_it_was_made(folder):
    identity = Identity.load(folder, 0)
    signature = identity.sign(b"")
    later = NOW + timedelta(days=500)
    with pytest.raises(ExpiredError):
        verify(identity.certificate, b"", signature, authority=identity.authority, at=later)
    verify(identity.certificate, b"", signature, authority=identity.authority, at=NOW)


def test_signatures_made_for_other_protocols_are_refused(folder):
    """A signature of the bare bytes, as another protocol might request it, is not valid here."""
    from cryptography.hazmat.primitives import hashes

    identity = Identity.load(folder, 0)
    bare = identity._key.sign(b"the model", ec.ECDSA(hashes.SHA256()))
    with pytest.raises(SignatureError):
        verify(identity.certificate, b"the model", bare, authority=identity.authority)
