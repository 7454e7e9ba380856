"""Settings: layers, the run id, and one sentence for every fault."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.config import RunSettings, is_loopback, load_settings
from seedflood.errors import ConfigError, ExitCode


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "peers.toml"
        path.write_text(text)
        return path

    return write


def test_the_file_overrides_defaults_the_environment_the_file_and_flags_everything(write, monkeypatch):
    path = write("[run]\nsteps = 7\nrank = 8\nclients = 3\n")
    monkeypatch.setenv("SEEDFLOOD__RUN__RANK", "9")
    monkeypatch.setenv("SEEDFLOOD__RUN__CLIENTS", "5")
    run = load_settings(path, {"run": {"clients": 6}}).run
    assert (run.seed, run.steps, run.rank, run.clients) == (1, 7, 9, 6)


def test_a_layer_overrides_single_keys_not_sections(write):
    settings = load_settings(write('[node]\nname = "a"\nshard = "1/2"\n'), {"node": {"name": "b"}})
    assert (settings.node.name, settings.node.shard) == ("b", "1/2")


def test_settings_of_one_file_do_not_leak_into_the_next(write):
    load_settings(write("[run]\nsteps = 7\n"))
    assert load_settings(None).run.steps == 400


def test_equal_run_sections_give_equal_run_ids_whatever_the_host(write):
    a = load_settings(write('[run]\nsteps = 7\n[node]\nname = "a"\n')).run.run_id()
    b = load_settings(write('[node]\nname = "b"\n[run]\nsteps = 7\nrank = 32\n')).run.run_id()
    assert a == b


@given(st.integers(1, 1000), st.integers(1, 1000))
def test_run_ids_differ_with_any_setting(a, b):
    assert (RunSettings(steps=a).run_id() == RunSettings(steps=b).run_id()) == (a == b)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\nstep = 3\n", ["[run]", '"step"', 'did you mean "steps"']),
        ("[rnu]\nsteps = 3\n", ['"rnu"', 'did you mean "run"']),
        ('[run]\nsteps = "many"\n', ['"steps"', "integer"]),
        ("[run]\nsteps = 0\n", ['"steps"', "greater than or equal to 1"]),
        ('[run]\nwindow = "open"\n', ['"window"', "strict"]),
        ('[[peers]]\naddress = "nowhere"\n', ["nowhere", "host:port"]),
        ('[[peers]]\naddress = "host:99999"\n', ["host:99999", "host:port"]),
        ('[[peers]]\nname = "a"\n', ["[peers]", '"address"']),
        ('[node]\nshard = "5/4"\n', ["5/4", "2/16"]),
        ("[run]\nsteps = 7\nlocal_steps = 2\n", ["multiples", "local_steps"]),
        ('[node]\nlisten = "0.0.0.0:7070"\n', ["not encrypted", "insecure = true"]),
        ("[run\n", ["TOML", "line 1"]),
    ],
)
def test_a_fault_is_one_sentence_that_names_the_place_and_the_remedy(write, text, words):
    with pytest.raises(ConfigError) as fault:
        load_settings(write(text))
    sentence = str(fault.value)
    assert all(word in sentence for word in [*words, "peers.toml"])
    assert "\n" not in sentence
    assert fault.value.exit_code is ExitCode.CONFIG


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(tmp_path / "none.toml")


@pytest.mark.parametrize("variable", ["SEEDFLOOD__NODE__LISTN", "SEEDFLOOD__NOD__LISTEN"])
def test_an_unknown_variable_is_an_error_with_the_nearest_right_one(write, monkeypatch, variable):
    monkeypatch.setenv(variable, "127.0.0.1:1")
    with pytest.raises(ConfigError, match="did you mean"):
        load_settings(write(""))


def test_neighbours_can_come_from_the_environment(write, monkeypatch):
    monkeypatch.setenv("SEEDFLOOD__PEERS", '[{"name": "b", "address": "127.0.0.1:7"}]')
    assert [peer.address for peer in load_settings(write("")).peers] == ["127.0.0.1:7"]


@pytest.mark.parametrize(
    ("variable", "value"), [("SEEDFLOOD__PEERS", '[{"address": "a:1"}'), ("SEEDFLOOD__RUN", "steps=3")]
)
def test_a_section_in_the_environment_that_is_not_json_is_one_sentence(write, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable} .* must be JSON"):
        load_settings(write(""))


def test_plain_links_beyond_this_machine_must_be_allowed(write):
    text = '[[peers]]\naddress = "10.0.0.2:7070"\n'
    with pytest.raises(ConfigError, match="insecure"):
        load_settings(write(text))
    assert load_settings(write(text + "[tls]\ninsecure = true\n")).peers[0].address == "10.0.0.2:7070"


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("127.0.0.1:1", True),
        ("[::1]:1", True),
        ("localhost:1", True),
        ("10.0.0.1:1", False),
        ("127.example.org:1", False),
    ],
)
def test_loopback_addresses_are_known(address, expected):
    assert is_loopback(address) is expected


def test_a_gradient_has_defaults_of_its_own():
    forward, gradient = RunSettings(), RunSettings(estimate="gradient")
    assert (forward.rank, forward.optimizer, forward.schedule) == (32, "sgd", "linear")
    assert (gradient.rank, gradient.optimizer, gradient.schedule) == (8, "adam", "cosine")
    assert (gradient.tell, gradient.bits) == ("coefficients", 8)
    assert RunSettings(estimate="gradient", window="bounded").optimizer == "sgd"
    assert (forward.refresh_period, gradient.refresh_period) == (1000, 100)


@pytest.mark.parametrize("local_steps", range(1, 65))
def test_an_epoch_of_gradients_is_whole_rounds(local_steps):
    run = RunSettings(estimate="gradient", local_steps=local_steps, steps=local_steps)
    assert 100 <= run.refresh_period < 100 + local_steps


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"tell": "slopes"}, 'about gradients: set estimate = "gradient"'),
        ({"bits": 4}, 'set estimate = "gradient" and tell = "coefficients"'),
        ({"estimate": "gradient", "tell": "slopes", "bits": 4}, "bits are those of coefficients"),
        ({"estimate": "gradient", "slopes": 8}, 'set estimate = "gradient" and tell = "slopes"'),
        ({"optimizer": "adam", "window": "none"}, 'set window = "strict", or optimizer = "sgd"'),
        ({"optimizer": "momentum", "window": "bounded"}, "goes by steps, which must be complete"),
        ({"weight_decay": 0.1}, 'set optimizer = "momentum" or "adam"'),
        ({"warmup_steps": 400}, "must be fewer than steps"),
    ],
)
def test_settings_that_do_not_go_together_are_told_in_one_sentence(changes, sentence):
    with pytest.raises(ConfigError) as raised:
        load_settings(None, {"run": changes})
    assert sentence in str(raised.value)
    assert "\n" not in str(raised.value)


def test_what_saves_memory_of_a_gradient_is_no_part_of_the_run():
    thrifty = load_settings(None, {"node": {"micro_batch": 1, "gradient_checkpointing": True}})
    assert thrifty.run.run_id() == load_settings(None).run.run_id()
