"""Settings that are shipped: they load, and deploy/peers.toml explains every one there is."""

import re
from operator import attrgetter
from pathlib import Path

import pytest

from seedflood.config import SECTIONS, Settings, load_settings

REPOSITORY = Path(__file__).parents[2]
EXPLAINED = REPOSITORY / "deploy" / "peers.toml"
KEY = re.compile(r"^(?:# )?(?P<key>[a-z_]+) = (?P<rest>.*)$")


def keys_of(section: str) -> set[str]:
    """Keys that stand under a section of deploy/peers.toml, commented or not."""
    found, current = set(), ""
    for line in EXPLAINED.read_text().splitlines():
        if line.startswith("["):
            current = line.strip("[]")
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
        if (match := KEY.match(line))
        and "#" not in match["rest"]
        and match["key"] not in ("name", "address", "insecure")
    ]
    assert bare == []


def test_what_is_commented_out_can_be_taken_in(tmp_path):
    lines = [re.sub(r"^# (?=[a-z_]+ = )", "", line) for line in EXPLAINED.read_text().splitlines()]
    (tmp_path / "peers.toml").write_text("\n".join(lines))
    taken = load_settings(tmp_path / "peers.toml")
    assert taken.model_fields_set == set(Settings.model_fields)
    for section in set(SECTIONS) - {"peers"}:
        assert attrgetter(section)(taken).model_fields_set == set(SECTIONS[section].model_fields)


@pytest.mark.parametrize("path", ["deploy/peers.toml", "docker/peers.toml", "deploy/kubernetes/base/peers.toml"])
def test_what_is_shipped_can_be_used(path):
    load_settings(REPOSITORY / path)
