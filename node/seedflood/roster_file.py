"""The file of a roster: readable, with operator, run and signature inside, so it can be checked wherever it lies.

    {
      "seedflood_roster": 1,
      "operator": "64 hex digits",
      "run": "first",
      "serial": 3,
      "entries": [
        {"name": "host1", "public_key": "64 hex digits", "roles": ["train"], "not_after": "2027-01-01T00:00:00Z"}
      ],
      "signature": "128 hex digits"
    }

Times are in UTC; an entry may leave them out. An entry without roles is a host that was removed. It may say which of
its updates count, those of all steps outside of these holes:

        {"name": "host2", "public_key": "64 hex digits", "roles": [],
         "cut": {"holes": [[40, 43], [120, null]], "since": 96, "content": "64 hex digits"}}

Who came to train, or was kept from it, after the first roster, has the serials of the rosters that state it:
"trains_from" and "trains_until".
"""

import json
import re
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, NamedTuple, Self

from seedflood import durable
from seedflood.errors import ConfigError
from seedflood.identity import Identity, verify
from seedflood.protocol.origin import STEP_MAX
from seedflood.protocol.swarm.roster import CONTENT_BYTES, ENTRIES_MAX, RUN_CHARACTERS_MAX, Cut, Entry, Roster

FILE_VERSION = 1
FILE_BYTES_MAX = 2 << 20
KEYS = ("seedflood_roster", "operator", "run", "serial", "entries", "signature")
ENTRY_KEYS = ("name", "public_key", "roles", "not_before", "not_after", "cut", "trains_from", "trains_until")
CUT_KEYS = ("holes", "since", "content")

_EPOCH = datetime.fromtimestamp(0, UTC)


class SignedRoster(NamedTuple):
    """A roster with what it is bound to. operator: the operator's public key. run: its name."""

    operator: bytes
    run: str
    roster: Roster

    @classmethod
    def sign(cls, operator: Identity, run: str, roster: Roster) -> Self:
        """operator: the operator's own key."""
        return cls(operator.public_key, run, roster.signed(operator.sign, operator.public_key, run))

    @property
    def is_signed(self) -> bool:
        return self.roster.is_signed(self.operator, self.run, verify)

    def spelled(self) -> str:
        """The text of the file; equal for equal rosters."""
        head = {
            "seedflood_roster": FILE_VERSION,
            "operator": self.operator.hex(),
            "run": self.run,
            "serial": self.roster.serial,
        }
        lines = [f"  {json.dumps(key)}: {json.dumps(value)}" for key, value in head.items()]
        entries = ",\n".join(f"    {json.dumps(_spell(entry))}" for entry in self.roster.entries)
        lines.append(f'  "entries": [\n{entries}\n  ]' if entries else '  "entries": []')
        lines.append(f'  "signature": "{self.roster.signature.hex()}"')
        return "{\n" + ",\n".join(lines) + "\n}\n"


def read_roster(path: Path) -> SignedRoster:
    """Reads and verifies a roster. Raises ConfigError with one sentence."""
    try:
        with path.open("rb") as file:
            data = file.read(FILE_BYTES_MAX + 1)
    except FileNotFoundError:
        raise ConfigError(f"the roster {path} does not exist; copy the operator's roster.json there.") from None
    except OSError as error:
        raise ConfigError(f"the roster {path} cannot be read: {error.strerror}.") from None
    if len(data) > FILE_BYTES_MAX:
        raise ConfigError(f"the roster {path} has more than {FILE_BYTES_MAX} bytes, so it is none.")
    return verify_roster(data, f"the roster {path}")


def verify_roster(data: bytes, what: str) -> SignedRoster:
    """The roster in the text of a file, if its operator has signed it. what: how to name it. Raises ConfigError with
    one sentence."""
    try:
        found = parse_roster(data)
    except ValueError as error:
        raise ConfigError(f"{what} cannot be used: {error}.") from None
    if not found.is_signed:
        raise ConfigError(
            f"{what} is not signed by its operator: it was changed by hand or damaged; copy it again, or change it by "
            "`seedflood roster`."
        )
    return found


def write_roster(path: Path, roster: SignedRoster) -> None:
    """Writes it, whole or not at all. Raises ConfigError."""
    try:
        durable.write(path, roster.spelled().encode(), mode=0o644)
    except OSError as error:
        raise ConfigError(f"the roster {path} cannot be written: {error.strerror}.") from None


def parse_roster(data: bytes) -> SignedRoster:
    """The roster in the text of a file; its signature is not verified. Raises ValueError with a sentence."""
    try:
        table = json.loads(data)
    except RecursionError:
        raise ValueError("it is no JSON") from None
    except ValueError as error:
        raise ValueError(f"it is no JSON ({str(error)[:80]})") from None
    _check_keys(table, KEYS, KEYS, "the file")
    if table["seedflood_roster"] != FILE_VERSION:
        raise ValueError('its "seedflood_roster" is not 1: another release of seedflood has written it')
    run, serial, entries = table["run"], table["serial"], table["entries"]
    if not isinstance(run, str) or len(run) > RUN_CHARACTERS_MAX or not run.isprintable():
        raise ValueError(f'"run" must be printable text of at most {RUN_CHARACTERS_MAX} characters')
    if type(serial) is not int:
        raise ValueError('"serial" must be a whole number')
    if not isinstance(entries, list) or len(entries) > ENTRIES_MAX:
        raise ValueError(f'"entries" must be a list of at most {ENTRIES_MAX} entries')
    operator, signature = parse_key(table["operator"], "operator"), _hex(table["signature"], 64, "signature")
    return SignedRoster(operator, run, Roster(serial, tuple(map(_read_entry, entries)), signature))


def parse_key(text: object, name: str) -> bytes:
    """A public key as it is shown: 64 hex digits. Raises ValueError."""
    return _hex(text, 32, name)


def parse_time(text: str) -> int:
    """A date or a time in ISO 8601, in UTC unless it says otherwise, in unix seconds. Raises ValueError."""
    try:
        moment = datetime.fromisoformat(text)
    except ValueError:
        raise ValueError(f'"{text[:40]}" is no time; write it like 2027-01-31 or 2027-01-31T12:00:00Z') from None
    return int(((moment if moment.tzinfo else moment.replace(tzinfo=UTC)) - _EPOCH).total_seconds())


def spell_time(seconds: int) -> str:
    return datetime.fromtimestamp(seconds, UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def _spell(entry: Entry) -> dict[str, Any]:
    table: dict[str, Any] = {"name": entry.name, "public_key": entry.public_key.hex(), "roles": list(entry.roles)}
    times = {"not_before": entry.not_before, "not_after": entry.not_after}
    table |= {key: spell_time(moment) for key, moment in times.items() if moment is not None}
    table |= {"cut": _spell_cut(entry.cut)} if entry.cut is not None else {}
    table |= {"trains_from": entry.trains_from} if entry.trains_from else {}
    return table | ({"trains_until": entry.trains_until} if entry.trains_until is not None else {})


def _spell_cut(cut: Cut) -> dict[str, Any]:
    holes = [[first, last if last < STEP_MAX else None] for first, last in cut.holes]
    return {"holes": holes, "since": cut.since, "content": cut.content.hex()}


def _read_entry(table: object) -> Entry:
    _check_keys(table, ENTRY_KEYS, ENTRY_KEYS[:3], "an entry")
    assert isinstance(table, dict)
    name, roles = table["name"], table["roles"]
    if not isinstance(name, str):
        raise ValueError('the "name" of an entry must be text')
    if not isinstance(roles, list) or not all(isinstance(role, str) for role in roles):
        raise ValueError(f'the "roles" of {name[:80]} must be a list of names of roles')
    times = []
    for key in ("not_before", "not_after"):
        moment = table.get(key)
        if moment is not None and not isinstance(moment, str):
            raise ValueError(f'the "{key}" of {name[:80]} must be a time such as "2027-01-31T12:00:00Z"')
        times.append(None if moment is None else parse_time(moment))
    cut = _read_cut(table["cut"]) if "cut" in table else None
    since, until = table.get("trains_from", 0), table.get("trains_until")
    if type(since) is not int or (until is not None and type(until) is not int):
        raise ValueError(f"the serials of {name[:80]} must be whole numbers")
    public_key = parse_key(table["public_key"], "public_key")
    return Entry(name, public_key, tuple(roles), times[0], times[1], cut, since, until)


def _read_cut(table: object) -> Cut:
    _check_keys(table, CUT_KEYS, CUT_KEYS, "a cut")
    assert isinstance(table, dict)
    holes, since = table["holes"], table["since"]
    if not isinstance(holes, list) or not all(isinstance(hole, list) and len(hole) == 2 for hole in holes):
        raise ValueError('the "holes" of a cut must be a list of pairs of steps')
    pairs = [(first, STEP_MAX if last is None else last) for first, last in holes]
    if any(type(step) is not int for step in (since, *(step for pair in pairs for step in pair))):
        raise ValueError("the steps of a cut must be whole numbers")
    return Cut(tuple(pairs), since, _hex(table["content"], CONTENT_BYTES, "content"))


def _check_keys(table: object, known: tuple[str, ...], needed: tuple[str, ...], what: str) -> None:
    if not isinstance(table, dict):
        raise ValueError(f"{what} must be a JSON object")
    if (missing := next((key for key in needed if key not in table), None)) is not None:
        raise ValueError(f'{what} has no "{missing}"')
    if (unknown := next((key for key in table if key not in known), None)) is not None:
        raise ValueError(f'{what} has an unknown key "{str(unknown)[:40]}"')


def _hex(text: object, count: int, name: str) -> bytes:
    if not isinstance(text, str) or re.fullmatch(f"[0-9a-fA-F]{{{2 * count}}}", text) is None:
        raise ValueError(f'"{name}" must be {2 * count} hex digits')
    return bytes.fromhex(text)
