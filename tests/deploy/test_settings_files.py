"""Settings that are shipped: they load, and deploy/peers.toml explains every one there is."""

import re
from operator import attrgetter
from pathlib import Path

import pytest

from seedflood.config import SECTIONS, RunSettings, Settings, load_settings

REPOSITORY = Path(__file__).parents[2]
EXPLAINED = REPOSITORY / "deploy" / "peers.toml"
KEY = re.compile(r"^(?:# )?(?P<key>[a-z_0-9]+) = (?P<rest>.*)$")


def keys_of(section: str) -> set[str]:
    """Keys that stand under a section of deploy/peers.toml, commented or not."""
    found, current = set(), ""
    for line in EXPLAINED.read_text().splitlines():
        if line.removeprefix("# ").startswith("["):  # a table of another mode than the file's is commented out
            current = line.removeprefix("# ").strip("[]")
        elif current == section and (match := KEY.match(line)):
            found.add(match["key"])
    return found


def own_keys(section: str) -> set[str]:
    """Without its tables, which are sections of their own."""
    return {key for key in SECTIONS[section].model_fields if f"{section}.{key}" not in SECTIONS}


def test_every_section_is_there():
    assert {section.partition(".")[0] for section in SECTIONS} == set(Settings.model_fields)


@pytest.mark.parametrize("section", SECTIONS)
def test_every_setting_is_explained_and_nothing_else(section):
    assert keys_of(section) == own_keys(section)


def test_every_line_explains_itself():
    bare = [
        match["key"]
        for line in EXPLAINED.read_text().splitlines()
        if (match := KEY.match(line)) and "#" not in match["rest"] and match["key"] not in ("name", "address")
    ]
    assert bare == []


@pytest.mark.parametrize("mode", RunSettings.algorithms())
def test_what_is_commented_out_can_be_taken_in(tmp_path, mode):
    lines = [re.sub(r"^# (?=[a-z_0-9]+ = |\[)", "", line) for line in EXPLAINED.read_text().splitlines()]
    tables = re.split(r"(?m)^(?=\[)", "\n".join(lines))
    others = {f"run.{name}" for name in RunSettings.algorithms()} - {f"run.{mode}"}
    text = "".join(table for table in tables if table[1:].partition("]")[0] not in others)
    text = text.replace('mode = "seedflood"', f'mode = "{mode}"')
    text = re.sub("(?m)^score_sha256 .*$", "", text)  # beside a score in a file alone
    text = re.sub("(?m)^participants .*$", "", text)  # not beside stop_after
    text = text.replace('window = "bounded"', 'window = "strict"')  # as stop_after and audit need it
    if mode == "gasloc":
        text = text.replace('task = "sst2"', 'task = "lm"')
    (tmp_path / "peers.toml").write_text(text)
    taken = load_settings(tmp_path / "peers.toml")
    assert taken.model_fields_set == set(Settings.model_fields)
    assert taken.run.mode == mode
    for section in set(SECTIONS) - {"peers"} - others:
        expected = set(SECTIONS[section].model_fields)
        expected -= {"score_sha256", "participants"}
        if section == "run":
            expected -= {name.removeprefix("run.") for name in others}
        assert attrgetter(section)(taken).model_fields_set == expected


@pytest.mark.parametrize("path", ["deploy/peers.toml", "docker/peers.toml", "deploy/kubernetes/base/peers.toml"])
def test_what_is_shipped_can_be_used(path):
    load_settings(REPOSITORY / path)


@pytest.mark.parametrize("folder", ["docker/gasloc", "deploy/kubernetes/gasloc"])
def test_what_is_shipped_for_pre_training_keeps_the_model_for_a_next_run(folder):
    settings = load_settings(REPOSITORY / folder / "peers.toml")
    assert settings.run.mode == "gasloc"
    assert settings.node.listen == "0.0.0.0:7070"
    assert settings.node.export is not None
