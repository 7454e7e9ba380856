"""The unit under a real systemd, in a container, installed by the commands of docs/how-to/hosts.md."""

import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
import recipe
from containers import SECONDS_MAX, docker, run_command

pytestmark = [pytest.mark.docker, pytest.mark.timeout(600)]

REPOSITORY = Path(__file__).parents[2]
UNIT = "seedflood-node"

DOCKERFILE = """
FROM {image}
USER root
RUN apt-get update -qq && apt-get install -y -qq --no-install-recommends dbus systemd >/dev/null && userdel seedflood
"""
"""A host with systemd that has the node where docs/how-to/hosts.md installs it, and no user for it yet."""

BOOT = "umount /var/lib/seedflood && rmdir /var/lib/seedflood && exec /lib/systemd/systemd --show-status=true"

INIT = "/opt/seedflood/bin/seedflood init alpha=alpha.example.org:7070 --set run.steps=100000 --out run"
ROSTER = "/opt/seedflood/bin/seedflood roster"
KEY = "--key run/operator.key"


class Machine:
    """A container whose process 1 is systemd."""

    def __init__(self, image: str) -> None:
        self.name = f"seedflood-systemd-{os.getpid()}"
        self._journal: subprocess.Popen[bytes] | None = None
        capabilities = [f"--cap-add={one}" for one in ("SYS_ADMIN", "NET_ADMIN", "DAC_READ_SEARCH", "SYS_PTRACE")]
        docker(
            *("run", "--detach", "--tty", "--name", self.name, *capabilities, "--env", "container=docker"),
            *("--security-opt", "seccomp=unconfined", "--security-opt", "apparmor=unconfined", "--cgroupns", "host"),
            *("--volume", "/sys/fs/cgroup:/sys/fs/cgroup", "--tmpfs", "/run", "--tmpfs", "/tmp"),
            *("--workdir", "/", "--entrypoint", "sh", image, "-ec", BOOT),
        )

    def boot(self) -> None:
        """Waits until systemd is up, and listens to the journal of the unit from then on."""
        with subprocess.Popen(["docker", "logs", "--follow", self.name], stdout=subprocess.PIPE) as console:
            _read_until(console, "Reached target")
            console.kill()
        self.run("systemctl is-system-running --wait")
        command = ("journalctl", "--unit", UNIT, "--follow", "--lines", "all", "--output", "cat")
        self._journal = subprocess.Popen(["docker", "exec", self.name, *command], stdout=subprocess.PIPE)

    def wait_for(self, pattern: str) -> None:
        """The next line of the journal that matches; lines before the last one that was waited for do not count."""
        assert self._journal is not None
        _read_until(self._journal, pattern)

    def run(self, script: str) -> str:
        return docker("exec", "--workdir", "/root", self.name, "sh", "-ec", script)

    def show(self, fact: str) -> str:
        return self.run(f"systemctl show --property {fact} --value {UNIT}").strip()

    def close(self) -> None:
        docker("rm", "--force", "--volumes", self.name)
        if self._journal is not None:
            self._journal.communicate()


def _read_until(process: "subprocess.Popen[bytes]", pattern: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if re.search(pattern, line.decode(errors="replace")):
            return
    pytest.fail(f"nothing said {pattern!r}")


@pytest.fixture
def machine(image: str) -> Iterator[Machine]:
    tag = "seedflood:systemd"
    subprocess.run(
        ["docker", "build", "--quiet", "--network", "host", "--tag", tag, "-"],
        input=DOCKERFILE.format(image=image),
        text=True,
        timeout=SECONDS_MAX,
        check=True,
    )
    made = Machine(tag)
    try:
        made.boot()
        yield made
    finally:
        made.close()


def install(machine: Machine) -> None:
    """Follows docs/how-to/hosts.md with the files of a closed run."""
    machine.run(f"{INIT} && cp -r run/alpha/. .")
    machine.run("mkdir -p /etc/seedflood && echo SEEDFLOOD__NODE__THREADS=1 >/etc/seedflood/environment")
    run_command(["docker", "cp", str(REPOSITORY / "deploy"), f"{machine.name}:/root/deploy"])
    installed, look = ("python3 -m venv", "pip install"), "journalctl"
    steps = [line.removeprefix("sudo ") for line in recipe.script("As a service")]
    for step in steps:
        if not any(word in step for word in (*installed, look)):
            machine.run(step)


def test_the_unit_runs_watches_restarts_and_stops_a_node_of_a_closed_run(machine: Machine):
    install(machine)

    # `systemctl enable --now` came back, so the node has told that it listens.
    assert machine.show("ActiveState") == "active"
    machine.wait_for('"event": "progress"')
    assert re.search(r"state +ready", machine.run("/opt/seedflood/bin/seedflood status --node 127.0.0.1:7071"))
    user, mode = machine.run("stat --format '%u %a' /var/lib/seedflood/identity.pem").split()
    assert user != "0"
    assert mode == "600"
    status = machine.run(f"cat /proc/{machine.show('MainPID')}/status")
    said = dict(re.findall(r"^(\w+):\s+(\S+)", status, re.MULTILINE))
    assert (said["Uid"], said["CapEff"], said["NoNewPrivs"], said["Seccomp"]) == (user, "0" * 16, "1", "2")

    machine.run(f"{ROSTER} add roster.json beta {64 * 'b'} {KEY} && cp roster.json /etc/seedflood")
    machine.run(f"systemctl reload {UNIT}")
    machine.wait_for('"serial": 2.*"event": "roster"')
    machine.wait_for('"event": "reloaded"')

    killed = machine.show("MainPID")
    machine.run(f"kill -KILL {killed}")
    machine.wait_for("Scheduled restart job, restart counter is at 1")
    machine.wait_for('"journal_bundles": [1-9].*"event": "started"')
    machine.wait_for("Started seedflood-node")
    assert machine.show("MainPID") not in (killed, "0")

    machine.run(f"kill -STOP {machine.show('MainPID')}")  # a loop that hangs
    machine.wait_for("Watchdog timeout")
    machine.wait_for("Scheduled restart job, restart counter is at 2")
    machine.wait_for("Started seedflood-node")

    machine.run(f"systemctl stop {UNIT}")
    assert (machine.show("Result"), machine.show("ExecMainStatus")) == ("success", "0")

    machine.run(f"systemctl start {UNIT}")
    machine.run(f"{ROSTER} remove roster.json alpha --yes {KEY} && cp roster.json /etc/seedflood")
    machine.run(f"systemctl reload --no-block {UNIT}")  # the reload fails if the node ends before it is over
    machine.wait_for("Main process exited")
    assert_is_not_started_again(machine, code=77)

    machine.run("sed -i s/steps/stps/ /etc/seedflood/peers.toml")
    refused = subprocess.run(["docker", "exec", machine.name, "systemctl", "start", UNIT], check=False)
    assert refused.returncode != 0
    assert_is_not_started_again(machine, code=78)


def assert_is_not_started_again(machine: Machine, code: int) -> None:
    assert machine.show("ActiveState") == "failed"  # and not "activating", which is waiting for the next try
    assert machine.show("ExecMainStatus") == str(code)
