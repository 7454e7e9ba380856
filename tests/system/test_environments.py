"""Daemons and commands run in environments that are made for something else: proxies of the web, a bare locale, and
folders whose names are no plain words."""

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ledgers import finish
from processes import Host, Hosts

pytestmark = [pytest.mark.system, pytest.mark.timeout(300)]

NOBODY = "http://127.0.0.1:9"
NAMES = "http_proxy", "https_proxy", "grpc_proxy", "all_proxy", "HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY"
STRANGE = dict.fromkeys(NAMES, NOBODY) | {"LANG": "C", "LC_ALL": "C", "COLUMNS": "100"}
FOLDER = "Läufe von Zoë, 二"
NODE = (sys.executable, "-c", "from seedflood.cli import node_main; node_main()", "--peers", "peers.toml")


@pytest.fixture
def environment(monkeypatch: pytest.MonkeyPatch) -> dict[str, str]:
    for name, value in STRANGE.items():
        monkeypatch.setenv(name, value)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    monkeypatch.delenv("PYTHONUTF8", raising=False)
    return dict(os.environ)


@pytest.fixture
def hosts(tmp_path: Path) -> Iterator[Hosts]:
    folder = tmp_path / FOLDER
    folder.mkdir()
    made = Hosts(folder)
    yield made
    made.close()


def said(*words: object) -> str:
    return said_raw(*words).decode()


def said_raw(*words: object) -> bytes:
    """By a process of its own: how text is encoded is settled when Python starts."""
    program = (sys.executable, "-c", "from seedflood.cli import main; main()")
    ran = subprocess.run([*program, *map(str, words)], capture_output=True, timeout=240, check=False)
    assert ran.returncode == 0, ran.stderr.decode(errors="replace")[-2000:]
    return ran.stdout


def test_a_cluster_runs_whatever_proxies_and_locale_the_environment_names(environment: dict[str, str], tmp_path: Path):
    folder, model = tmp_path / FOLDER, tmp_path / f"{FOLDER} model"
    told = said("local", "--nodes", 2, "--steps", 5, "--folder", folder, "--export", model, "--json")
    assert json.loads(told)["digests_equal"]
    assert (model / "config.json").is_file()


def test_daemons_link_and_answer_commands_whatever_proxies_and_locale_the_environment_names(
    environment: dict[str, str], hosts: Hosts
):
    made = hosts.make(2, [(0, 1)], {"steps": 5}, {"http": "127.0.0.1:0", "then": "serve"})
    real = [Host(one.folder, command=NODE) for one in made]
    try:
        for one in real:
            one.start()
        for one in real:
            one.wait_for("finished")
        peers = real[0].folder / "peers.toml"
        assert "h1" in said("peers", "--peers", peers)
        assert "h0" in said("status", "--peers", peers)
        assert FOLDER in json.loads(said("config", "show", "--peers", peers))["node"]["state"]
        for one in real:
            one.process.terminate()
        finish(real)
    finally:
        for one in real:
            one.close()


@pytest.mark.parametrize("encoding", ["ascii", "latin-1:strict", "cp1252"])
def test_text_that_the_encoding_of_stdout_does_not_have_is_spelled(encoding, monkeypatch, tmp_path):
    monkeypatch.setenv("PYTHONIOENCODING", encoding)
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "peers.toml").write_text('[run]\nname = "x"\n')
    assert b"is valid" in said_raw("config", "check", "--peers", folder / "peers.toml")


def test_paths_that_python_is_told_not_to_spell_are_one_sentence(tmp_path):
    folder = tmp_path / FOLDER
    folder.mkdir()
    (folder / "peers.toml").write_text('[node]\nexport = "ü"\n', encoding="utf-8")
    program = (sys.executable, "-c", "from seedflood.cli import main; main()", "config", "check")
    bare = {"LC_ALL": "C", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"}
    ran = subprocess.run(
        program, capture_output=True, timeout=240, check=False, cwd=folder, env=dict(os.environ) | bare
    )
    assert ran.returncode == 78
    assert "PYTHONUTF8" in ran.stderr.decode("ascii")
