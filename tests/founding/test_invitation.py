"""Invitations over real sockets: who has the code joins, once, and nobody else; the wrong side is told nothing."""

import asyncio
import json
import socket
import ssl
import struct
from dataclasses import replace

import pytest

from seedflood.config import load_settings
from seedflood.errors import BindError, ConfigError, NotRunningError, PeerError, UsageError
from seedflood.founding import enrolling, invitation
from seedflood.founding.enrolling import Desk, invite_host, join_run
from seedflood.founding.invitation import Code, join
from seedflood.founding.plan import explain, found, parse_hosts
from seedflood.identity import Identity
from seedflood.roster_file import read_roster


@pytest.fixture
def run(tmp_path):
    found(parse_hosts(["alpha=10.0.0.1:7070", "beta"]), {}, tmp_path / "run")
    return tmp_path / "run"


def desk_of(run):
    return Desk(run / "roster.json", run / "operator.key", run / "newcomer.toml")


class Open:
    """An invitation that waits: its code, and how it ends."""

    def __init__(self, run, seconds=20.0):
        self._run, self._seconds = run, seconds

    async def __aenter__(self):
        shown = asyncio.get_running_loop().create_future()
        self.end = asyncio.create_task(
            invite_host(desk_of(self._run), "delta", ("train",), "127.0.0.1:0", self._seconds, shown.set_result)
        )
        await asyncio.wait({self.end, shown}, return_when=asyncio.FIRST_COMPLETED)
        self.code = shown.result() if shown.done() else ""
        return self

    async def __aexit__(self, *_):
        self.end.cancel()
        await asyncio.gather(self.end, return_exceptions=True)


async def test_a_host_joins_by_its_code(run, tmp_path):
    async with Open(run) as open_one:
        assert "\n" not in open_one.code
        assert await join_run(open_one.code, tmp_path / "delta", "0.0.0.0:7070") == "delta"
        key = await open_one.end
    own = Identity.load_or_create(tmp_path / "delta" / "seedflood-state" / "identity.pem")
    assert own.public_key == key
    assert own.is_fresh
    settings = load_settings(tmp_path / "delta" / "peers.toml")
    assert settings.run == load_settings(run / "alpha" / "peers.toml").run
    assert (settings.node.name, settings.node.listen, settings.node.shard) == ("delta", "0.0.0.0:7070", None)
    alpha = Identity.load_or_create(run / "alpha" / "seedflood-state" / "identity.pem")
    assert settings.pins == {"10.0.0.1:7070": alpha.public_key}
    signed = read_roster(run / "roster.json")
    assert (signed.roster.serial, signed.roster.named("delta").public_key) == (2, key)
    assert read_roster(tmp_path / "delta" / "roster.json") == signed
    made = {path.name for path in (tmp_path / "delta").rglob("*")}
    assert made == {"seedflood-state", "identity.pem", "identity.pem.fresh", "peers.toml", "roster.json"}


async def test_a_wrong_secret_gets_nothing_and_ends_nothing(run, tmp_path):
    async with Open(run) as open_one:
        code = Code.parse(open_one.code)
        for _ in range(3):
            wrong = replace(code, secret=bytes(invitation.SECRET_BYTES)).spelled()
            with pytest.raises(PeerError, match="the code is wrong"):
                await join_run(wrong, tmp_path / "mallory", "")
        assert not (tmp_path / "mallory" / "peers.toml").exists()
        assert read_roster(run / "roster.json").roster.serial == 1
        await join_run(open_one.code, tmp_path / "delta", "")
        await open_one.end


async def test_nothing_is_said_to_somebody_else_at_the_address(run, tmp_path):
    async with Open(run) as theirs, Open(run) as ours:
        elsewhere = replace(Code.parse(ours.code), address=Code.parse(theirs.code).address)
        with pytest.raises(PeerError, match="nothing was sent to it"):
            await join_run(elsewhere.spelled(), tmp_path / "delta", "")
        assert read_roster(run / "roster.json").roster.serial == 1


async def test_a_host_whose_line_broke_uses_the_code_again_and_nobody_else_does(run, tmp_path):
    def breaks(grant):
        raise RuntimeError("the power failed")

    one, other = Identity.generate(), Identity.generate()
    async with Open(run) as open_one:
        code = Code.parse(open_one.code)
        with pytest.raises(RuntimeError, match="power"):
            await join(code, one, "", breaks)
        assert read_roster(run / "roster.json").roster.serial == 2
        with pytest.raises(PeerError, match="used by another host"):
            await join(code, other, "", lambda grant: None)
        grants = []
        await join(code, one, "", grants.append)
        assert await open_one.end == one.public_key
    assert len(grants) == 1
    assert read_roster(run / "roster.json").roster.serial == 2


async def raw(code, *lines):
    """Says these lines to the inviting side and returns what it answers."""
    host, _, port = Code.parse(code).address.rpartition(":")
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    reader, writer = await asyncio.open_connection(host, int(port), ssl=context)
    try:
        for line in lines:
            writer.write(line)
        await writer.drain()
        return await reader.read()
    except ConnectionError:
        return b""
    finally:
        writer.close()


async def test_nobody_puts_the_key_of_another_onto_the_roster(run):
    async with Open(run) as open_one:
        victim = Identity.generate()
        secret = Code.parse(open_one.code).secret.hex()
        request = {"secret": secret, "public_key": victim.public_key.hex(), "signature": "00" * 64, "listen": ""}
        assert b"not signed by the key" in await raw(open_one.code, json.dumps(request).encode() + b"\n{}\n")
        assert read_roster(run / "roster.json").roster.serial == 1


@pytest.mark.parametrize(
    "line", [b"\n", b"{}\n", b"[]\n", b"\xff\n", b"[" * 5000 + b"\n", b'{"secret": 7}\n', b"a" * (5 << 20)]
)
async def test_what_is_no_request_changes_nothing(run, tmp_path, line):
    async with Open(run) as open_one:
        await raw(open_one.code, line, b"{}\n")
        assert read_roster(run / "roster.json").roster.serial == 1
        await join_run(open_one.code, tmp_path / "delta", "")
        await open_one.end


@pytest.mark.parametrize("says", ["nothing", "TLS", "half a line"])
async def test_silent_connections_of_a_stranger_do_not_keep_a_host_out(run, tmp_path, says):
    context = ssl.create_default_context()
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    async with Open(run) as open_one:
        host, _, port = Code.parse(open_one.code).address.rpartition(":")
        silent = []
        for _ in range(invitation.CONNECTIONS_MAX + 8):
            _, writer = await asyncio.open_connection(host, int(port), ssl=None if says == "nothing" else context)
            if says == "half a line":
                writer.write(b"{")
            silent.append(writer)
        assert await join_run(open_one.code, tmp_path / "delta", "") == "delta"
        await open_one.end
        for writer in silent:
            writer.transport.abort()


async def test_connections_that_are_reset_at_once_and_garbage_are_no_traceback(run, tmp_path, caplog):
    async with Open(run) as open_one:
        host, _, port = Code.parse(open_one.code).address.rpartition(":")
        for content in (b"", b"GET / HTTP/1.1\r\n\r\n", bytes(100), b"\x16\x03\x01\xff\xff" + bytes(3000)):
            with socket.create_connection((host, int(port))) as one:
                one.sendall(content)
                one.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))  # closed by a reset
        assert await join_run(open_one.code, tmp_path / "delta", "") == "delta"
        await open_one.end
    assert [record for record in caplog.records if record.name == "asyncio"] == []


async def test_an_invitation_that_nobody_uses_ends(run):
    async with Open(run, 0.05) as open_one:
        with pytest.raises(NotRunningError, match="nobody has used the code"):
            await open_one.end
    assert read_roster(run / "roster.json").roster.serial == 1


async def test_an_invitation_that_is_over_is_told(run, tmp_path):
    async with Open(run) as open_one:
        await join_run(open_one.code, tmp_path / "delta", "")
        await open_one.end
        with pytest.raises(NotRunningError, match="is it still open"):
            await join_run(open_one.code, tmp_path / "epsilon", "")


async def test_what_does_not_belong_together_is_told_before_anybody_comes(run, tmp_path):
    found(parse_hosts(["alpha"]), {}, tmp_path / "other")
    with pytest.raises(ConfigError, match="is not the key that has signed"):
        Desk(run / "roster.json", tmp_path / "other" / "operator.key", run / "newcomer.toml")
    with pytest.raises(ConfigError, match="another run's"):
        Desk(run / "roster.json", run / "operator.key", tmp_path / "other" / "newcomer.toml")
    with pytest.raises(ConfigError, match="does not exist"):
        Desk(run / "roster.json", run / "none.key", run / "newcomer.toml")
    with pytest.raises(UsageError, match="the name beta"):
        await invite_host(desk_of(run), "beta", ("train",), "127.0.0.1:0", 1.0, print)
    with pytest.raises(UsageError, match="host:port"):
        await invite_host(desk_of(run), "delta", ("train",), "127.0.0.1", 1.0, print)
    with pytest.raises(BindError, match="cannot listen"):
        await invite_host(desk_of(run), "delta", ("train",), "192.0.2.1:7070", 1.0, print)


async def test_nobody_lets_code_run_on_another_host(run, tmp_path):
    path = run / "newcomer.toml"
    path.write_text(path.read_text().replace("[node]\n", "[node]\nallow_code = true\n", 1))
    with pytest.raises(ConfigError, match="take allow_code out of "):
        desk_of(run)


async def test_code_is_not_allowed_by_who_invites(run, tmp_path, monkeypatch):
    monkeypatch.setattr(enrolling, "explain", lambda layer: explain({**layer, "node": {"allow_code": True}}))
    async with Open(run) as open_one:
        with pytest.raises(PeerError, match="allow_code = true, which only this host may say"):
            await join_run(open_one.code, tmp_path / "delta", "")
    assert not (tmp_path / "delta" / "peers.toml").exists()


@pytest.mark.parametrize("code", ["", "a:1", "a:1/b/c", "nowhere/aa/bb", "a:1/" + "a" * 26 + "/" + "!" * 26])
async def test_what_is_no_code_is_told(tmp_path, code):
    with pytest.raises(UsageError, match="no code of an invitation"):
        await join_run(code, tmp_path, "")


async def test_a_host_that_has_settings_keeps_them(run, tmp_path):
    (tmp_path / "peers.toml").write_text("")
    async with Open(run) as open_one:
        with pytest.raises(UsageError, match="is there already"):
            await join_run(open_one.code, tmp_path, "")


def test_a_command_that_ends_says_nothing_of_those_who_are_still_connected(run, caplog):
    async def leave_one_behind():
        async with Open(run) as open_one:
            host, _, port = Code.parse(open_one.code).address.rpartition(":")
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
            return await asyncio.open_connection(host, int(port), ssl=context)

    asyncio.run(leave_one_behind())
    assert [record for record in caplog.records if record.name == "asyncio"] == []
