"""The recipe of docs/how-to/hosts.md for several hosts, followed to the letter by three network namespaces.

Only the installation is not repeated: `.venv` is the environment that these tests run in.
"""

import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import recipe
from ledgers import finish
from networks import PORT, Network, inside
from processes import Host, Hosts

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]


class Place:
    """A host of the recipe: a folder with its peers.toml and `.venv`, in a network namespace of its own."""

    def __init__(self, folder: Path, settings: str, network: Network) -> None:
        folder.mkdir()
        (folder / "peers.toml").write_text(settings)
        (folder / ".venv").symlink_to(sys.prefix)
        address, self.space = network.attach(0)
        self.address = address.removesuffix(f":{PORT}")
        self.folder = folder

    def run(self, commands: str) -> str:
        words = [*inside(self.space), "bash", "-ec", commands]
        ran = subprocess.run(words, cwd=self.folder, capture_output=True, text=True, timeout=120, check=False)
        assert ran.returncode == 0, f"{commands}: {ran.stderr}"
        return ran.stdout


@pytest.fixture
def places(network: Network, tmp_path: Path) -> dict[str, Place]:
    """alpha can be reached by name; beta and gamma cannot reach each other."""
    files = recipe.settings_files()
    made = {name: Place(tmp_path / name, text, network) for name, text in files.items()}
    for place in made.values():
        network.name(place.space, {"alpha.example.org": made["alpha"].address})
    network.hide(made["beta"].space, made["gamma"].address)
    network.hide(made["gamma"].space, made["beta"].address)
    return made


def test_three_hosts_behind_one_open_port_end_with_one_digest(places: dict[str, Place], hosts: Hosts):
    checked = [place.run(recipe.command("Check")) for place in places.values()]
    assert len({re.search(r"id ([0-9a-f]+)", line)[1] for line in checked}) == 1  # type: ignore[index]

    start = ("bash", "-c", f"exec {recipe.command('Start')}")
    nodes = {name: Host(place.folder, place.space, start) for name, place in places.items()}
    hosts.hosts += nodes.values()
    for node in reversed(nodes.values()):  # in any order: alpha comes last
        node.start()
    for node in nodes.values():
        node.wait_for("progress", step=1)
    for place in places.values():
        shown = place.run(recipe.command("Look"))
        assert re.search(r"^ *state +ready", shown, re.MULTILINE), shown
        assert {name for name in places if re.search(rf"^ *{name} .* (self|linked|reachab)", shown, re.MULTILINE)} == {
            *places
        }, shown

    results = finish(nodes.values())
    steps = tomllib.loads(recipe.settings_files()["alpha"])["run"]["steps"]
    assert {result["steps"] for result in results} == {steps}
    linked = {result["name"]: {link["peer"] for link in result["links"]} for result in results}  # type: ignore[attr-defined]
    assert linked == {"alpha": {"beta", "gamma"}, "beta": {"alpha"}, "gamma": {"alpha"}}


def test_only_one_host_of_the_recipe_listens():
    listening = {name: tomllib.loads(text)["node"]["listen"] for name, text in recipe.settings_files().items()}
    assert listening == {"alpha": f"0.0.0.0:{PORT}", "beta": "", "gamma": ""}
