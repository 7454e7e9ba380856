"""The closed run of README.md and docs/how-to/hosts.md, followed to the letter by network namespaces: three hosts, and
a fourth that is invited."""

import queue
import re
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
import recipe
from ledgers import finish
from networks import PORT, Network, inside
from processes import Host, Hosts

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]

NAMES = ("alpha", "beta", "gamma", "delta")


@pytest.fixture
def spaces(network: Network) -> dict[str, str]:
    """alpha can be reached by name; the others cannot reach each other."""
    addresses, found = {}, {}
    for name in NAMES:
        address, found[name] = network.attach(0)
        addresses[name] = address.removesuffix(f":{PORT}")
    for name in NAMES:
        network.name(found[name], {"alpha.example.org": addresses["alpha"]})
        for other in {*NAMES[1:]} - {name, "alpha"} if name != "alpha" else ():
            network.hide(found[name], addresses[other])
    return found


def install(folder: Path) -> None:
    folder.mkdir(exist_ok=True)
    (folder / ".venv").symlink_to(sys.prefix)


def run(space: str, folder: Path, command: str) -> str:
    words = [*inside(space), "bash", "-ec", command]
    ran = subprocess.run(words, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    assert ran.returncode == 0, f"{command}: {ran.stderr}"
    return ran.stdout


def test_three_hosts_and_one_that_is_invited_end_with_one_digest(
    spaces: dict[str, str], hosts: Hosts, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    monkeypatch.setenv(recipe.STEPS, "200")
    init, start, invite, join = recipe.closed_run()
    run_folder = tmp_path / "run"
    install(tmp_path)
    run(spaces["alpha"], tmp_path, init)
    for folder in (*(run_folder / name for name in NAMES[:3]), tmp_path / "delta"):
        install(folder)

    started = ("bash", "-c", f"exec {start}")
    nodes = {name: Host(run_folder / name, spaces[name], started) for name in NAMES[:3]}
    hosts.hosts += nodes.values()
    for node in nodes.values():
        node.start()
    for node in nodes.values():
        node.wait_for("progress", step=1)
    nodes["beta"].signal(signal.SIGSTOP)  # windows are strict, so the run does not end before delta is there

    words = [*inside(spaces["alpha"]), "bash", "-c", invite]
    with subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as waiting:
        code = first_line(waiting)
        run(spaces["delta"], tmp_path / "delta", join.replace("CODE", code))
        said = waiting.communicate(timeout=60)[1]
        assert (waiting.returncode, "delta is on the roster" in said) == (0, True), said

    nodes["delta"] = Host(tmp_path / "delta", spaces["delta"], started)
    hosts.hosts.append(nodes["delta"])
    nodes["delta"].start()
    nodes["delta"].wait_for("link up")
    nodes["beta"].signal(signal.SIGCONT)
    nodes["delta"].wait_for("ready")
    results = finish(nodes.values())
    linked = {result["name"]: {link["peer"] for link in result["links"]} for result in results}  # type: ignore[attr-defined]
    assert linked == {"alpha": {"beta", "gamma", "delta"}, **{name: {"alpha"} for name in NAMES[1:]}}
    assert not any("not encrypted" in str(event) for node in nodes.values() for event in node.events)


def first_line(process: "subprocess.Popen[str]") -> str:
    lines: queue.Queue[str] = queue.Queue()
    assert process.stdout is not None
    threading.Thread(target=lambda: lines.put(process.stdout.readline()), daemon=True).start()  # type: ignore[union-attr]
    line = lines.get(timeout=60).strip()
    assert re.fullmatch(r"\S+", line), line
    return line
