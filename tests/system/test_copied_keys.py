"""Two processes with copies of one key: the one that was started first ends, and everyone else goes on."""

import json
import shutil
import signal

import pytest
from processes import Host, Hosts

from seedflood.errors import ExitCode
from seedflood.host.places import KEY_FILE

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(600)]

STEPS = 200_000
"""More than anybody gets to: the test ends the run."""


def dial(host: Host, *peers: Host) -> None:
    """These are the peers in its file from now on."""
    text = (host.folder / "peers.toml").read_text().partition("[[peers]]")[0]
    for peer in peers:
        text += f"[[peers]]\naddress = {json.dumps(peer.settings.node.listen)}\n"
    (host.folder / "peers.toml").write_text(text)


def copy_key(source: Host, target: Host) -> None:
    folder = target.settings.node.state
    folder.mkdir()
    shutil.copy(source.settings.node.state / KEY_FILE, folder / KEY_FILE)


@pytest.mark.parametrize("is_dialled", [False, True], ids=["dials", "is dialled"])
def test_of_two_processes_with_one_key_the_older_ends_and_the_others_go_on(hosts: Hosts, is_dialled: bool):
    """The older has one link, with a host that takes the newer in its place: nobody else would tell it."""
    older, door, third, newer = hosts.make(4, [], {"steps": STEPS, "clients": 3, "window": "bounded"})
    dial(older, *([] if is_dialled else [door]))
    dial(door, third, *([older] if is_dialled else []))
    dial(newer, door)
    for host in (older, door, third):
        host.start()
    door.wait_for("progress", step=20)
    copy_key(older, newer)
    newer.start()
    assert older.end() == ExitCode.TRY_AGAIN
    assert "was started later than this one" in older.last_words
    assert not any("Traceback" in str(line) for line in older.events)
    dial(newer, door, third)  # it has lost its past, and need not wait once it has met everyone
    newer.signal(signal.SIGHUP)
    newer.wait_for("caught up")
    begun = newer.wait_for("progress", step=1)["step"]
    for host in (newer, door, third):
        host.listen()
        host.wait_for("progress", step=begun + 20)
    assert not third.has_said("another host speaks with our key")
    for host in (newer, door, third):
        host.signal(signal.SIGTERM)
        assert host.end() == ExitCode.OK
