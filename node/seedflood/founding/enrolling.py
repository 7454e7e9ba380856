"""Both ends of an invitation, from files to files."""

import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

from seedflood.config import check_address, combine, merge, read_layer
from seedflood.errors import ConfigError, PeerError, UsageError
from seedflood.founding.invitation import Code, Grant, Invitation, join
from seedflood.founding.plan import PEERS_FILE, STATE_FOLDER, explain, write_text
from seedflood.host.places import KEY_FILE, ROSTER_FILE
from seedflood.identity import Identity
from seedflood.protocol.swarm.roster import KEY_BYTES, Entry, Role
from seedflood.roster_file import SignedRoster, parse_roster, read_roster, write_roster


class Desk:
    """What an operator invites with: the roster, the key that signs it, and settings for new hosts."""

    def __init__(self, roster: Path, key: Path, settings: Path) -> None:
        """Raises ConfigError, if these do not belong together."""
        self._path = roster
        self._operator = Identity.load(key)
        self._settings = read_layer(settings, "name settings for a new host with --settings")
        signed = read_roster(roster)
        if signed.operator != self._operator.public_key:
            raise ConfigError(f"{key} is not the key that has signed {roster}; name the operator's with --key.")
        run = combine(self._settings, None, str(settings)).run
        if (run.operator, run.name) != (signed.operator.hex(), signed.run):
            raise ConfigError(f"[run] of {settings} has another operator or name than {roster}; it is another run's.")
        if "allow_code" in self._settings.get("node", {}):
            raise ConfigError(f"take allow_code out of [node] of {settings}: each host allows code itself.")

    def sign(self, entry: Entry) -> SignedRoster:
        """The roster as it is now, with one entry more. Raises SeedfloodError."""
        signed = read_roster(self._path)
        try:
            return SignedRoster.sign(self._operator, signed.run, signed.roster.adding(entry))
        except ValueError as error:
            raise UsageError(f"{error}.") from None

    def enrol(self, entry: Entry, listen: str) -> Grant:
        """Puts a host onto the roster, durably. Raises SeedfloodError."""
        signed = self.sign(entry)
        write_roster(self._path, signed)
        return Grant(explain(merge(self._settings, {"node": {"name": entry.name, "listen": listen}})), signed.spelled())


async def invite_host(
    desk: Desk, name: str, roles: tuple[Role, ...], listen: str, seconds: float, show: Callable[[str], None]
) -> bytes:
    """Waits until the new host has its files, and returns its public key. show: gets the code. Raises
    SeedfloodError."""
    try:
        check_address(listen)
        desk.sign(Entry(name, bytes(KEY_BYTES), roles))  # what cannot be signed is refused before anybody comes
    except ValueError as error:
        raise UsageError(f"{error}.") from None

    def enrol(public_key: bytes, where: str) -> Grant:
        return desk.enrol(Entry(name, public_key, roles), where)

    return await Invitation(enrol).wait(listen, seconds, show)


async def join_run(code: str, out: Path, listen: str) -> str:
    """Makes the files of this host in a folder, and returns the name that it has got. Raises SeedfloodError."""
    parsed = Code.parse(code)
    try:
        listen = check_address(listen) if listen else ""
    except ValueError as error:
        raise UsageError(f"--listen: {error}.") from None
    if (out / PEERS_FILE).exists():
        raise UsageError(f"{out / PEERS_FILE} is there already; name another folder with --out.")
    try:
        (out / STATE_FOLDER).mkdir(parents=True, exist_ok=True, mode=0o700)
    except OSError as error:
        raise ConfigError(f"cannot write in {out}: {error.strerror}.") from None
    identity = Identity.load_or_create(out / STATE_FOLDER / KEY_FILE)
    names: list[str] = []
    await join(parsed, identity, listen, lambda grant: names.append(_keep(grant, identity, out)))
    return names[-1]


def _keep(grant: Grant, identity: Identity, out: Path) -> str:
    """Checks what the inviting side has given, and writes it down. Raises SeedfloodError."""
    try:
        layer: dict[str, Any] = tomllib.loads(grant.settings)
        signed = parse_roster(grant.roster.encode())
    except ValueError as error:
        raise PeerError(f"the inviting side sent what cannot be used: {error}", reason="invitation") from None
    settings = combine(layer, None, "the settings of the inviting side")
    entry = signed.roster.of_key(identity.public_key)
    if not signed.is_signed or settings.run.operator != signed.operator.hex() or entry is None:
        raise PeerError("the inviting side sent a roster that this host is not on", reason="invitation")
    if settings.node.allow_code:
        raise PeerError("the inviting side sent allow_code = true, which only this host may say", reason="invitation")
    try:
        write_roster(out / ROSTER_FILE, signed)
        write_text(out / PEERS_FILE, grant.settings)
    except OSError as error:
        raise ConfigError(f"cannot write in {out}: {error.strerror}.") from None
    return entry.name
