"""Files of the flat `[run]`: one sentence for whoever has one, and the file written anew."""

import os
import tomllib

import pytest

from seedflood.config import RunSettings, load_settings, merge, migrate_file, spell
from seedflood.config.migrate import MOVED, migrate
from seedflood.errors import ConfigError

FLAT = {
    "name": "old",
    "mode": "seedflood",
    "model": "embedded",
    "seed": 2,
    "clients": 3,
    "steps": 40,
    "batch_size": 4,
    "train_examples": 64,
    "label_skew": 0.5,
    "task": "prompted",
    "template": "{a} # [run]\n= 'x'",
    "label_words": ["bad", "good"],
    "label_column": "y",
    "text_column": "z",
    "max_length": 64,
    "window": "strict",
    "delay": 1,
    "local_steps": 2,
    "estimate": "gradient",
    "tell": "slopes",
    "bits": 8,
    "slopes": 8,
    "optimizer": "momentum",
    "weight_decay": 0.1,
    "warmup_steps": 2,
    "schedule": "constant",
    "rank": 4,
    "refresh_period": 20,
    "basis": "normal",
    "epsilon": 0.01,
    "learning_rate": 0.5,
}
"""All keys that the flat table had, with a value each."""

LATER = {"operator", "nonce", "clip", "auditable", "quorum"}
"""Keys that came when `[run]` was no longer flat."""


def test_every_key_of_the_flat_table_is_migrated(tmp_path):
    path = tmp_path / "peers.toml"
    path.write_text(spell({"run": FLAT}))
    migrate_file(path)
    shown = load_settings(path).run.model_dump(mode="json")
    tables = {"objective", "seedflood"}
    found = {key: value for key, value in shown.items() if key not in tables}
    flat = merge(found, *(shown[table] for table in tables))
    assert {key: value for key, value in flat.items() if key not in LATER} == FLAT


def test_what_moved_is_where_it_is_said_to_be():
    for key, table in MOVED.items():
        assert RunSettings.table_of(key) == table


@pytest.mark.parametrize("key", MOVED)
def test_a_key_of_the_flat_table_is_one_sentence_that_says_what_to_do(tmp_path, monkeypatch, key):
    path = tmp_path / "peers.toml"
    path.write_text(spell({"run": {key: FLAT[key]}}))
    with pytest.raises(ConfigError) as fault:
        load_settings(path)
    sentence = f'{path}: [run] {key} moved to [{MOVED[key]}]; "seedflood config migrate {path}" writes the file anew.'
    assert str(fault.value) == sentence
    monkeypatch.setenv(f"SEEDFLOOD__RUN__{key.upper()}", "1")
    with pytest.raises(ConfigError) as fault:
        load_settings(None)
    wanted = f"SEEDFLOOD__{MOVED[key].replace('.', '__')}__{key}".upper()
    assert f"{key} moved to [{MOVED[key]}]; write {wanted}." in str(fault.value)


def test_a_whole_flat_table_in_the_environment_is_told_too(monkeypatch):
    monkeypatch.setenv("SEEDFLOOD__RUN", '{"steps": 3, "rank": 8}')
    with pytest.raises(ConfigError, match=r'rank moved to \[run\.seedflood\]; write {"seedflood": {"rank": 8}}'):
        load_settings(None)


OLD = """\
# A run.

# --- For all. ---
[run]  # equal everywhere
name = "a"      # for people
# Fewer hurt.
# Much.
rank = 16       # columns
                #   of each basis
# seed = 1      # of all
# delay = 0     # rounds on their way
label_words = [ # two
  "bad",

  "good" ]
steps = 100

# --- This host. ---
[node]
name = "alpha"
"""

NEW = """\
# A run.

# --- For all. ---
[run]  # equal everywhere
name = "a"      # for people
# seed = 1      # of all
steps = 100

[run.objective]
label_words = [ # two
  "bad",

  "good" ]

[run.seedflood]
# Fewer hurt.
# Much.
rank = 16       # columns
                #   of each basis
# delay = 0     # rounds on their way

# --- This host. ---
[node]
name = "alpha"
"""


def test_comments_go_with_their_keys_and_nothing_else_changes():
    assert migrate(OLD) == NEW


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("[run]\nrank = 8", "[run]\n\n[run.seedflood]\nrank = 8"),
        ('[run]\n"rank" = 8\nsteps = 3', '[run]\nsteps = 3\n\n[run.seedflood]\n"rank" = 8\n'),
        ("[run]\nrank = 8\n[node]\n", "[run]\n\n[run.seedflood]\nrank = 8\n\n[node]\n"),
        ("[run]\r\nrank = 8\r\nsteps = 9\r\n", "[run]\r\nsteps = 9\r\n\n[run.seedflood]\nrank = 8\r\n"),
        ("[run]\nrank = 8\n\n[run.seedflood]\nbits = 8\n", "[run]\n\n[run.seedflood]\nrank = 8\nbits = 8\n"),
        ("[run.seedflood]\nbits = 8\n[run]\nrank = 8\n", "[run.seedflood]\nrank = 8\nbits = 8\n[run]\n"),
        ("[run]\nrank = 8\n[run.seedflood]", "[run]\n\n[run.seedflood]\nrank = 8\n"),
    ],
)
def test_files_are_written_in_many_ways(old, new):
    assert migrate(old) == new


@pytest.mark.parametrize("text", [NEW, "", "# nothing\n", "[node]\nrank = 3\n", "[run]\nsteps = 3\n# rank is 8\n"])
def test_what_needs_no_change_is_left_alone(text):
    assert migrate(text) == text


@pytest.mark.parametrize("text", [OLD, spell({"run": FLAT})])
def test_migrating_twice_is_migrating_once(text):
    assert migrate(migrate(text)) == migrate(text)


@pytest.mark.parametrize(
    "text", ["run.rank = 8\n", "run = { rank = 8 }\n", "[run]\nseedflood = { bits = 8 }\nrank = 8\n"]
)
def test_a_spelling_that_cannot_be_moved_by_lines_is_left_to_the_operator(text):
    with pytest.raises(ConfigError, match=r"by hand: rank to \[run\.seedflood\]"):
        migrate(text)


@pytest.mark.parametrize(
    ("text", "table"),
    [
        ("[[run]]\nrank = 8\n", "run"),
        ("run = 3\n", "run"),
        ("[run]\nseedflood = 3\nrank = 8\n", "run.seedflood"),
        ("[run]\nrank = 8\n[[run.seedflood]]\nbits = 8\n", "run.seedflood"),
    ],
)
def test_what_must_be_a_table_and_is_none_is_one_sentence(text, table):
    with pytest.raises(ConfigError) as fault:
        migrate(text)
    assert str(fault.value) == f"peers.toml: [{table}] must be a table."


def test_a_key_that_stands_in_both_tables_is_not_chosen_for_the_operator():
    with pytest.raises(ConfigError, match="take one of them out"):
        migrate("[run]\nrank = 8\n[run.seedflood]\nrank = 4\n")


def test_the_old_file_is_kept_with_its_mode(tmp_path):
    path = tmp_path / "peers.toml"
    path.write_text(OLD)
    path.chmod(0o640)
    kept = migrate_file(path)
    assert kept == tmp_path / "peers.toml.old"
    assert (kept.read_text(), path.read_text()) == (OLD, NEW)
    assert [os.stat(one).st_mode & 0o777 for one in (kept, path)] == [0o640, 0o640]
    assert sorted(one.name for one in tmp_path.iterdir()) == ["peers.toml", "peers.toml.old"]
    assert migrate_file(path) is None
    assert kept.read_text() == OLD


def test_another_file_of_that_name_is_not_overwritten(tmp_path):
    path = tmp_path / "peers.toml"
    path.write_text(OLD)
    (tmp_path / "peers.toml.old").write_text("precious")
    with pytest.raises(ConfigError, match="move it away first"):
        migrate_file(path)
    assert path.read_text() == OLD


def test_of_a_link_the_file_itself_is_written(tmp_path):
    (tmp_path / "etc").mkdir()
    place, link = tmp_path / "etc" / "seedflood.toml", tmp_path / "peers.toml"
    place.write_text(OLD)
    link.symlink_to(place)
    assert migrate_file(link) == tmp_path / "etc" / "seedflood.toml.old"
    assert link.is_symlink()
    assert place.read_text() == NEW


@pytest.mark.parametrize("content", [None, b"[run\n", b"\xff"])
def test_what_cannot_be_read_is_named(tmp_path, content):
    path = tmp_path / "peers.toml"
    if content is not None:
        path.write_bytes(content)
    with pytest.raises(ConfigError, match=r"peers\.toml"):
        migrate_file(path)


def test_text_that_was_spelt_is_read_again():
    tables = {"run": {"steps": 3, "objective": {"task": 'a "b"\n', "label_words": ["é"]}}, "tls": {"insecure": True}}
    assert tomllib.loads(spell(tables)) == tables
