"""Ledgers in text form, which are migrated, and files that are damaged, foreign, full or not accessible."""

import json
import os
import re
import sqlite3
import tempfile
from pathlib import Path

import pytest
from ledger_examples import GAUSS, PURE, disk_full_after, spent, text_ledger

from privet.privacy import Budget, BudgetExceededError, Ledger, gdp_epsilon
from privet.privacy.events import GaussianRelease
from privet.privacy.ledger import database, text_file

CALLS = ["entries", "total", "check", "spend"]


@pytest.fixture
def path(tmp_path):
    return tmp_path / "patients.ledger"


def call(path, name, guarantee=GAUSS):
    ledger = Ledger(path)
    return getattr(ledger, name)(*([guarantee] if name in {"check", "spend"} else []))


# --- text form ----------------------------------------------------------------------------------------------------


def test_a_ledger_in_text_form_is_read_without_being_changed(path):
    text_ledger(path, (GAUSS, "first"), (PURE, 'second\n"line" é'))
    before = path.read_bytes()
    ledger = Ledger(path, 10)
    ledger.check(GAUSS)
    assert [(entry.label, entry.guarantee) for entry in ledger.entries()] == [
        ("first", GAUSS),
        ('second\n"line" é', PURE),
    ]
    assert ledger.total(1e-6).epsilon > GAUSS.epsilon
    assert path.read_bytes() == before
    assert os.listdir(path.parent) == [path.name]


def test_the_first_booking_migrates_a_ledger_in_text_form_and_keeps_the_text(path):
    text_ledger(path, (GAUSS, "first"), (PURE, "second"))
    path.chmod(0o640)
    text, old = path.read_bytes(), Ledger(path).entries()
    Ledger(path, (5, 1e-5)).spend(GAUSS, "third")
    found = Ledger(path).entries()
    assert found[:2] == old
    assert [entry.id for entry in found[:2]] == [entry.id for entry in old]
    assert [entry.label for entry in found] == ["first", "second", "third"]
    assert sorted(os.listdir(path.parent)) == [path.name, f"{path.name}.text"]
    assert path.with_name(f"{path.name}.text").read_bytes() == text
    assert path.stat().st_mode & 0o777 == 0o640


def test_the_entries_of_the_text_count_towards_the_limit(path):
    text_ledger(path, *[PURE] * 3)
    with pytest.raises(BudgetExceededError):
        Ledger(path, Budget(0.35)).spend(PURE)


def test_a_second_migration_does_not_overwrite_the_text_of_the_first(path):
    for name in ("text", "text2"):
        text_ledger(path, *[PURE] * len(name))
        text = path.read_bytes()
        Ledger(path).spend(PURE)
        assert path.with_name(f"{path.name}.{name}").read_bytes() == text


def test_a_migration_on_a_full_disk_leaves_the_text_as_it_was(path):
    text_ledger(path, *[GAUSS] * 30)
    text = path.read_bytes()
    for room in (0, 1000, 5000, 20_000):
        with disk_full_after(room), pytest.raises(OSError, match=r"is unchanged, and nothing was recorded"):
            Ledger(path).spend(GAUSS)
        assert path.read_bytes() == text
        assert os.listdir(path.parent) == [path.name]
    Ledger(path).spend(GAUSS)
    assert len(Ledger(path).entries()) == 31


@pytest.mark.parametrize("cut", [2, 30, 200, 10_000])
def test_a_line_that_a_crash_cut_off_stops_all_work_until_it_is_removed(path, cut):
    text_ledger(path, GAUSS, GAUSS)
    first, second = path.read_bytes().splitlines(keepends=True)
    cut = min(cut, len(second) - 1)
    path.write_bytes(first + second[:-cut])
    for name in CALLS:
        with pytest.raises(ValueError, match=r"line 2 .*cut off after '\{.*privet ledger .* --drop-cut-line"):
            call(path, name)
    assert path.read_bytes() == first + second[:-cut]
    assert Ledger(path).drop_cut_line() == second[:-cut].decode()
    assert path.read_bytes() == first
    assert Ledger(path).drop_cut_line() is None
    Ledger(path).spend(GAUSS)
    assert Ledger(path).drop_cut_line() is None
    assert Ledger(path).total().epsilon == pytest.approx(gdp_epsilon(0.3 * 2**0.5, 2e-6), rel=1e-12)


def test_an_entry_without_its_line_feed_counts_and_is_never_removed(path):
    text_ledger(path, (GAUSS, "first"))
    path.write_bytes(path.read_bytes()[:-1])
    assert Ledger(path).drop_cut_line() is None
    Ledger(path).spend(PURE, "second")
    assert [entry.label for entry in Ledger(path).entries()] == ["first", "second"]


@pytest.mark.parametrize(
    "line", ["", "{}", "[]", "null", "1", '"x"', '{"label": "x", "time": "y", "guarantee": {}}', "\x00"]
)
def test_a_line_that_is_not_an_entry_is_an_error(path, line):
    text_ledger(path, GAUSS)
    with path.open("a") as file:
        file.write(line + "\n")
    before = path.read_bytes()
    for name in CALLS:
        with pytest.raises(ValueError, match=r"line 2 is not a ledger entry[^\n]*$"):
            call(path, name)
    assert path.read_bytes() == before


@pytest.mark.parametrize("content", [b"\xff\xfe\n", b"a,b\n1,2\n", b"x", b'{"label": "x"}'])
def test_a_file_that_is_no_ledger_is_an_error_and_stays(path, content):
    path.write_bytes(content)
    for name in CALLS:
        with pytest.raises(ValueError, match=r"patients\.ledger: line 1 is not a ledger entry"):
            call(path, name)
    assert path.read_bytes() == content


def test_an_empty_file_is_an_unused_ledger(path):
    path.touch()
    assert Ledger(path).entries() == []
    assert Ledger(path).limit is None
    Ledger(path).spend(GAUSS)
    assert len(Ledger(path).entries()) == 1


# --- damage and forgery -------------------------------------------------------------------------------------------


def edited(path, *statements):
    """Change a ledger by hand, as somebody might who knows SQLite and removes the safeguards first."""
    connection = sqlite3.connect(path)
    for trigger in ("lines_stay", "no_line_goes"):
        connection.execute(f"DROP TRIGGER {trigger}")
    for statement in statements:
        connection.execute(*statement)
    connection.commit()
    connection.close()


def three(path):
    for guarantee in (GAUSS, spent(GaussianRelease(0.5)), GAUSS):
        Ledger(path).spend(guarantee)
    return path


def test_lines_cannot_be_changed_or_removed_by_accident(path):
    connection = sqlite3.connect(three(path))
    for statement in ("DELETE FROM lines", "UPDATE lines SET label = 'x'"):
        with pytest.raises(sqlite3.IntegrityError, match="a ledger only grows"):
            connection.execute(statement)
    connection.close()


@pytest.mark.parametrize("number", [1, 2, 3])
def test_a_removed_line_is_noticed(path, number):
    edited(three(path), ("DELETE FROM lines WHERE number = ?", (number,)))
    for name in CALLS:
        with pytest.raises(ValueError, match=rf"line {number} is missing, so the ledger was edited"):
            call(path, name)


def test_an_edited_guarantee_is_noticed(path):
    text = json.dumps(GAUSS.to_dict()).replace('"mu": 0.3', '"mu": 0.03')
    edited(three(path), ("UPDATE guarantees SET text = ? WHERE text LIKE '%0.3}%'", (text,)))
    for name in CALLS:
        with pytest.raises(ValueError, match="its guarantee was edited or is missing"):
            call(path, name)


def test_a_forged_epsilon_is_noticed_and_the_total_does_not_depend_on_it(path):
    """Even with a matching digest: the total is computed from the events, and a listing recomputes each epsilon."""
    import hashlib

    before = Ledger(three(path)).total().epsilon
    text = re.sub(r'"epsilon": [0-9.]+', '"epsilon": 0.001', json.dumps(GAUSS.to_dict()))
    digest = hashlib.sha256(text.encode()).hexdigest()
    edited(
        path,
        ("INSERT INTO guarantees VALUES (?, ?)", (digest, text)),
        ("UPDATE lines SET guarantee = ? WHERE number <> 2", (digest,)),
    )
    assert Ledger(path).total().epsilon == before
    with pytest.raises(ValueError, match=r"states epsilon = 0\.001 .* but its event gives epsilon = 1\.29"):
        Ledger(path).entries()
    with pytest.raises(BudgetExceededError):
        Ledger(path, (before, 3e-6)).spend(GAUSS)


@pytest.mark.parametrize(
    ("statement", "cause"),
    [
        (f"PRAGMA user_version = {database.FORMAT + 1}", "written by another version of privet: its format is 2"),
        ("PRAGMA application_id = 7", "an SQLite file of another program"),
    ],
)
def test_a_database_of_another_version_or_program_is_an_error(path, statement, cause):
    connection = sqlite3.connect(three(path))
    connection.execute(statement)
    connection.close()
    for name in CALLS:
        with pytest.raises(ValueError, match=cause):
            call(path, name)


@pytest.mark.parametrize("start", [100, 4096, 9000])
def test_a_corrupted_database_is_an_error_or_its_entries_are_all_there(path, start):
    content = bytearray(three(path).read_bytes())
    content[start : start + 3000] = b"\xa5" * len(content[start : start + 3000])
    path.write_bytes(content)
    for name in CALLS:
        try:
            call(path, name)
        except ValueError as error:
            assert re.search("damaged|not valid|missing|edited|not a ledger", str(error)), error
        else:
            assert len(Ledger(path).entries()) >= 3


def test_a_ledger_whose_log_was_left_behind_is_not_begun_anew(path, tmp_path):
    """A killed process leaves a log. Whoever moves the ledger without it would lose what is in the log."""
    three(path)
    log = path.with_name(f"{path.name}-wal")
    held = sqlite3.connect(path)
    held.execute("BEGIN")
    held.execute("SELECT count(*) FROM lines").fetchone()
    Ledger(path).spend(GAUSS)
    written = log.read_bytes()
    held.close()
    path.unlink()
    log.write_bytes(written)
    with pytest.raises(ValueError, match=r"-wal is in the folder, but patients\.ledger is missing"):
        Ledger(path).spend(GAUSS)
    assert not path.exists()


# --- places that cannot be written --------------------------------------------------------------------------------


@pytest.mark.parametrize("entries", [0, 2])
def test_a_full_disk_records_nothing_and_says_so(path, entries):
    for _ in range(entries):
        Ledger(path).spend(GAUSS)
    for room in (0, 4096, 20_000):
        with (
            disk_full_after(room),
            pytest.raises(OSError, match="Nothing was recorded, and the entries"),
        ):
            Ledger(path).spend(spent(GaussianRelease(0.3)), "x" * 50_000)
        assert len(Ledger(path).entries()) == entries
    Ledger(path).spend(GAUSS)
    assert len(Ledger(path).entries()) == entries + 1


def test_a_folder_and_a_missing_folder_are_errors_that_name_them(tmp_path):
    with pytest.raises(OSError, match="is a folder"):
        Ledger(tmp_path).spend(GAUSS)
    with pytest.raises(OSError, match=r"folder .*nowhere does not exist"):
        Ledger(tmp_path / "nowhere" / "a.ledger").spend(GAUSS)


def test_a_file_system_without_shared_memory_is_refused(path, monkeypatch):
    """The file system "unix-dotfile" of SQLite has no shared memory, like network drives, so that there is no log."""
    connect = sqlite3.connect

    def elsewhere(file, **options):
        return connect(f"{file}&vfs=unix-dotfile" if str(file).startswith("file:") else file, **options)

    monkeypatch.setattr(sqlite3, "connect", elsewhere)
    with pytest.raises(OSError, match=r"does not support SQLite's write-ahead log \(WAL\).*on a local disk"):
        Ledger(path).spend(GAUSS)


def passes_without_rights(check):
    """Return whether a check passes in a process that has given up the rights of root, who may write everywhere."""
    process = os.fork()
    if process == 0:
        code = 1
        try:
            if os.getuid() == 0:
                os.setuid(65534)
            check()
            code = 0
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(process, 0)[1]) == 0


@pytest.fixture
def everybodys():
    """Return a folder that other users can reach, unlike those of pytest."""
    with tempfile.TemporaryDirectory() as name:
        Path(name).chmod(0o755)
        yield Path(name)


def test_a_ledger_that_cannot_be_written_can_be_read(everybodys):
    path = everybodys / "data" / "patients.ledger"
    path.parent.mkdir()
    three(path)
    path.chmod(0o444)
    path.parent.chmod(0o555)

    def check():
        assert len(Ledger(path).entries()) == 3
        with pytest.raises(OSError, match=r"Nothing was recorded"):
            Ledger(path).spend(GAUSS)

    assert passes_without_rights(check)
    path.parent.chmod(0o755)
    assert len(Ledger(path).entries()) == 3


# --- other names of a ledger --------------------------------------------------------------------------------------


@pytest.mark.parametrize("is_text", [False, True])
def test_a_link_to_a_ledger_is_the_ledger(path, is_text):
    """A migration must not replace the link by a ledger of its own, since others book under the other name."""
    link = path.parent / "elsewhere" / "link.ledger"
    link.parent.mkdir()
    link.symlink_to(path)
    if is_text:
        text_ledger(path, GAUSS)
    else:
        Ledger(path).spend(GAUSS)
    Ledger(link).spend(GAUSS)
    Ledger(path).spend(GAUSS)
    assert link.is_symlink()
    assert len(Ledger(link).entries()) == len(Ledger(path).entries()) == 3
    assert os.listdir(link.parent) == [link.name]


def test_entries_in_the_log_count_also_under_a_link_where_nothing_can_be_written(everybodys):
    """The log lies beside the ledger, not beside the link. Without it, the total would be too low."""
    path, link = everybodys / "data" / "patients.ledger", everybodys / "link.ledger"
    path.parent.mkdir()
    link.symlink_to(path)
    Ledger(path).spend(GAUSS)
    held = sqlite3.connect(path)
    held.execute("BEGIN")
    held.execute("SELECT count(*) FROM lines").fetchone()
    Ledger(path).spend(GAUSS)
    files = {file: file.read_bytes() for file in path.parent.iterdir() if not file.name.endswith("-shm")}
    held.close()
    for file, written in files.items():  # as a process leaves them that is killed
        file.write_bytes(written)
        file.chmod(0o444)
    path.parent.chmod(0o555)

    def check():
        for each in (path, link):
            with pytest.raises(PermissionError):
                Ledger(each).total(1e-6)

    assert passes_without_rights(check)
    path.parent.chmod(0o755)


def test_a_ledger_stays_the_same_file_when_the_working_folder_changes(path, tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.mkdir()
    monkeypatch.chdir(tmp_path)
    ledger = Ledger(path.name, 1)
    ledger.spend(PURE)
    monkeypatch.chdir(other)
    ledger.spend(PURE)
    assert len(Ledger(path).entries()) == 2
    assert os.listdir(other) == []


def test_a_ledger_that_is_migrated_by_another_process_while_it_is_read_is_read_again(path, monkeypatch):
    text_ledger(path, GAUSS)
    read = text_file.read

    def read_too_late(*arguments):
        process = os.fork()
        if process == 0:
            Ledger(path).spend(GAUSS)
            os._exit(0)
        os.waitpid(process, 0)
        return read(*arguments)

    monkeypatch.setattr(text_file, "read", read_too_late)
    assert len(Ledger(path).entries()) == 2
