"""A journal that can be used, whatever had happened to the file.

Opening checks everything: the pages (sqlite's integrity check, which compares the index too), the log, and the CRC of
every record. A file that fails is replaced by a new one with every record that can still be read, and kept beside it.
Nobody has to decide anything then: the neighbours have what is lost, and the node pulls it.

Records carry the run in their checksums (`records`). So nothing of another run is ever taken over, not even when the
record that tells whose journal it is can no longer be read; a journal of which that can be read is not touched.
"""

import contextlib
import os
import sqlite3
from dataclasses import dataclass
from pathlib import Path

from seedflood.durable import sync_folder
from seedflood.storage.layout import IDENTITY, INCARNATION, SCHEMA, check_identity, draft
from seedflood.storage.records import (
    ChecksumError,
    Identity,
    Salts,
    coefficients_salt,
    decode_coefficients,
    decode_epoch,
    decode_identity,
    is_strand,
    is_whole,
)
from seedflood.storage.rescue import Rescue
from seedflood.storage.sqlite_pages import SqlitePages
from seedflood.storage.survey import Survey
from seedflood.storage.tables import COUNT_ALL

_SALVAGED = ".salvaged"
_DAMAGED = ".damaged"
_FAULTS_OF_THE_HOST = {
    sqlite3.SQLITE_PERM,
    sqlite3.SQLITE_BUSY,
    sqlite3.SQLITE_LOCKED,
    sqlite3.SQLITE_NOMEM,
    sqlite3.SQLITE_READONLY,
    sqlite3.SQLITE_IOERR,
    sqlite3.SQLITE_FULL,
    sqlite3.SQLITE_CANTOPEN,
    sqlite3.SQLITE_PROTOCOL,
    sqlite3.SQLITE_NOLFS,
}
_UNREADABLE = {sqlite3.SQLITE_IOERR_READ, sqlite3.SQLITE_IOERR_SHORT_READ, sqlite3.SQLITE_IOERR_CORRUPTFS}


@dataclass(frozen=True, slots=True)
class Damage:
    """A journal was damaged when it was opened. kept_at: the damaged file. Lost: None if nobody can tell."""

    bundles_kept: int
    bundles_lost: int | None
    epochs_lost: int | None
    kept_at: Path


@dataclass(slots=True)
class _Findings:
    """What sqlite can tell of a file; the counts as far as it got."""

    is_sound: bool = False
    bundles: int | None = None
    epochs: int | None = None


def make_usable(path: Path, identity: Identity, salts: Salts, refresh_period: int) -> tuple[Damage | None, Survey]:
    """Creates the journal, finds it sound, or salvages it; says what had happened to it and what it holds.

    Raises ConfigError, sqlite3.Error, OSError.
    """
    survey = Survey(salts.strand, refresh_period)
    damage = _make_usable(path, identity, salts, refresh_period, survey)
    return damage, survey


def _make_usable(path: Path, identity: Identity, salts: Salts, refresh_period: int, survey: Survey) -> Damage | None:
    is_interrupted = _with(path, _SALVAGED).exists()
    if is_interrupted:
        _replace(path)
    if not _is_there(path):
        with draft(path, identity):
            return None
    with SqlitePages(path) as pages:
        findings = _Findings()
        if pages.is_header_intact and pages.is_log_intact:
            _inspect(path, identity, salts, findings, survey)
        if findings.is_sound:
            return Damage(findings.bundles or 0, None, None, _with(path, _DAMAGED)) if is_interrupted else None
        with draft(_with(path, _SALVAGED), identity) as connection:
            rescue = Rescue(connection, path, identity, salts, refresh_period)
            rescue.take(pages.rows())
            survey.clear()
            are_records_whole(connection, salts, survey)
    _replace(path)
    return Damage(
        rescue.bundles,
        _lost(findings.bundles, rescue.bundles),
        _lost(findings.epochs, rescue.epochs),
        _with(path, _DAMAGED),
    )


def _is_there(path: Path) -> bool:
    """Is there anything but an empty file, which may be young?"""
    return any(file.exists() and file.stat().st_size for file in (path, _with(path, "-wal")))


def _inspect(path: Path, identity: Identity, salts: Salts, findings: _Findings, survey: Survey) -> None:
    """Raises ConfigError if it is the journal of another run; what sqlite cannot read is no error."""
    try:
        with contextlib.closing(sqlite3.connect(path, isolation_level=None)) as connection:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            _inspect_tables(connection, path, identity, salts, findings, survey)
    except sqlite3.Error as error:
        code = getattr(error, "sqlite_errorcode", sqlite3.SQLITE_CORRUPT)
        if code & 0xFF in _FAULTS_OF_THE_HOST and code not in _UNREADABLE:
            raise
    except (ChecksumError, UnicodeDecodeError):  # the latter: sqlite complains of a schema, in the words of the schema
        pass


def _inspect_tables(
    connection: sqlite3.Connection, path: Path, identity: Identity, salts: Salts, findings: _Findings, survey: Survey
) -> None:
    schema = connection.execute("SELECT CAST(sql AS BLOB) FROM sqlite_master ORDER BY rowid").fetchall()
    if schema != [(statement.encode(),) for statement in SCHEMA]:
        return
    ((found,),) = connection.execute("SELECT record FROM meta WHERE key = ?", (IDENTITY,)).fetchall() or [(b"",)]
    check_identity(path, decode_identity(found), identity)
    ((findings.bundles,),) = connection.execute(COUNT_ALL)
    ((findings.epochs,),) = connection.execute("SELECT COUNT(*) FROM epochs")
    is_consistent = connection.execute("PRAGMA integrity_check(1)").fetchall() == [("ok",)]
    findings.is_sound = is_consistent and are_records_whole(connection, salts, survey)


def are_records_whole(connection: sqlite3.Connection, salts: Salts, survey: Survey) -> bool:
    """In one pass, a row at a time: a journal may be longer than memory. Surveys it, as far as it is whole."""
    strands = connection.execute("SELECT record, origin, step, last, bundles FROM strands")
    members = connection.execute("SELECT record FROM members")
    epochs = connection.execute("SELECT epoch, frontier, coefficients FROM epochs")
    numbers = connection.execute("SELECT record FROM meta WHERE key = ?", (INCARNATION,))
    for epoch, frontier, coefficients in epochs:
        if not (is_whole(frontier, salts.epoch) and is_whole(coefficients, coefficients_salt(frontier))):
            return False
        held = decode_epoch(frontier, salts.epoch)[1]
        survey.note_sum(epoch, held, decode_coefficients(coefficients, coefficients_salt(frontier)))
    for record, *columns in strands:
        if not is_strand(salts.strand, record, *columns):
            return False
        survey.note(record, columns[1], columns[3])
    return all(is_whole(record, salts.member) for (record,) in members) and all(
        is_whole(record, salts.number) for (record,) in numbers
    )


def _replace(path: Path) -> None:
    """The salvaged file takes the place of the damaged one. A crash in between is made good by the next opening."""
    damaged = _with(path, _DAMAGED)
    for suffix in ("-wal", "-shm", "-journal"):  # sqlite would apply the log of the old file to the new one
        _with(damaged, suffix).unlink(missing_ok=True)
        if _with(path, suffix).exists():
            os.replace(_with(path, suffix), _with(damaged, suffix))
    if path.exists():
        os.replace(path, damaged)
    sync_folder(path.parent)
    os.replace(_with(path, _SALVAGED), path)
    sync_folder(path.parent)


def _lost(before: int | None, kept: int) -> int | None:
    return None if before is None else max(0, before - kept)


def _with(path: Path, suffix: str) -> Path:
    return path.with_name(path.name + suffix)
