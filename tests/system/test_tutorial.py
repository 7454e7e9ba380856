"""docs/tutorial.md, followed to the letter by two network namespaces.

Five things differ from what a reader does: `make setup` is not repeated, commands are forked (`forks`), `scp` copies to
the other folder of this machine, the two train for fewer steps, and bob is killed where the page says that its lid is
closed.
"""

import os
import re
import subprocess
from pathlib import Path

import pytest
from forks import programs
from ledgers import check_replays, finish
from networks import PORT, Network, inside
from processes import Host, Hosts
from recipe import STEPS

pytestmark = [pytest.mark.system, pytest.mark.timeout(600)]

PAGE = Path(__file__).parents[2] / "docs" / "tutorial.md"
BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
COPY = """#!/bin/sh
test "$3" = bob.example.org:seedflood/ && exec cp -r "$2" ../bob/
"""


def steps() -> dict[str, list[str]]:
    """The commands below each heading, block by block."""
    _, *sections = re.split(r"^## ", PAGE.read_text(), flags=re.MULTILINE)
    return {section.partition("\n")[0]: [one.strip() for one in BLOCK.findall(section)] for section in sections}


class Place:
    """A machine of the tutorial: a clone, and a network namespace."""

    def __init__(self, folder: Path, space: str) -> None:
        folder.mkdir()
        (folder / ".venv").mkdir()
        (folder / ".venv" / "bin").symlink_to(programs())
        self.folder = folder
        self.space = space

    def run(self, command: str) -> str:
        path = f"{self.folder.parent / 'bin'}:{os.environ['PATH']}"
        ran = subprocess.run(
            [*inside(self.space), "bash", "-ec", command],
            cwd=self.folder,
            env={**os.environ, "PATH": path, "OMP_NUM_THREADS": "1"},
            capture_output=True,
            text=True,
            timeout=240,
            check=False,
        )
        assert ran.returncode == 0, f"{command}: {ran.stdout}{ran.stderr}"
        return ran.stdout + ran.stderr


@pytest.fixture
def places(network: Network, tmp_path: Path) -> tuple[Place, Place]:
    """Of ada and bob. Both know ada by name; nobody can dial bob, which listens nowhere."""
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "scp").write_text(COPY)
    (tmp_path / "bin" / "scp").chmod(0o755)
    (address, space), (_, other) = network.attach(0), network.attach(0)
    for one in (space, other):
        network.name(one, {"ada.example.org": address.removesuffix(f":{PORT}")})
    return Place(tmp_path / "ada", space), Place(tmp_path / "bob", other)


def test_the_tutorial_does_what_it_says(places: tuple[Place, Place], hosts: Hosts, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setenv(STEPS, "200")
    ada, bob = places
    blocks = steps()
    rows, other_rows = blocks["2. Rows"]
    assert ada.run(rows).count('"completion"') == 2
    bob.run(other_rows)

    (trial,) = blocks["3. Try it on one machine"]
    tried = ada.run(trial)
    assert "task completion" in tried
    assert "⟦" in tried
    assert "All replicas are equal: one digest." in tried

    (make,) = blocks["4. Make the run"]
    ada.run(make)
    (check,) = blocks["5. Check both hosts"]
    for place in places:
        place.run(check)

    start, look = blocks["6. Start"]
    nodes = [Host(place.folder, place.space, ("bash", "-c", f"exec {start}")) for place in places]
    hosts.hosts += nodes
    for node in nodes:
        node.start()
    for node in nodes:
        node.wait_for("progress", step=1)
    nodes[1].kill()
    nodes[0].wait_for("member silent")
    shown = ada.run(look)  # now: as long as bob is away the run does not end, however slow this machine is
    assert re.search(r"^ *state +ready", shown, re.MULTILINE), shown
    assert re.search(r"^ *page +http://127\.0\.0\.1:\d+", shown, re.MULTILINE), shown
    nodes[1].start()
    finish(nodes)
    check_replays(nodes)

    (use,) = blocks["8. Use the model"]
    for place in places:
        said = place.run(use)
        accuracy = re.search(r"^ *accuracy +([\d.]+)", said, re.MULTILINE)
        assert accuracy is not None, said
        assert float(accuracy[1]) > 0.8


def test_every_command_of_the_tutorial_is_followed():
    assert {name: len(found) for name, found in steps().items() if found} == {
        "1. Install": 1,
        "2. Rows": 2,
        "3. Try it on one machine": 1,
        "4. Make the run": 1,
        "5. Check both hosts": 1,
        "6. Start": 2,
        "8. Use the model": 1,
    }
