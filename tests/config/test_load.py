"""Settings: layers, and one sentence for every fault."""

import contextlib
import tomllib
from pathlib import Path

import pytest

from seedflood.config import (
    SECTIONS,
    check_export,
    check_folders,
    check_place,
    check_settings,
    divide_data,
    is_loopback,
    load_settings,
)
from seedflood.config.tables import spell
from seedflood.errors import ConfigError, ExitCode
from seedflood.offline.exporting import export_model
from seedflood.training.card import Learned, model_card


@pytest.fixture
def write(tmp_path: Path):
    def write(text: str) -> Path:
        path = tmp_path / "peers.toml"
        path.write_text(text)
        return path

    return write


def test_the_file_overrides_defaults_the_environment_the_file_and_flags_everything(write, monkeypatch):
    path = write("[run]\nsteps = 7\nclients = 3\n[run.seedflood]\nrank = 8\ndelay = 2\nwindow = 'bounded'\n")
    monkeypatch.setenv("SEEDFLOOD__RUN__SEEDFLOOD__RANK", "9")
    monkeypatch.setenv("SEEDFLOOD__RUN__SEEDFLOOD__DELAY", "5")
    monkeypatch.setenv("SEEDFLOOD__RUN__CLIENTS", "5")
    run = load_settings(path, {"run": {"clients": 6, "seedflood": {"delay": 3}}}).run
    assert (run.seed, run.steps, run.clients) == (1, 7, 6)
    assert (run.seedflood.rank, run.seedflood.delay, run.seedflood.window) == (9, 3, "bounded")


def test_a_layer_overrides_single_keys_not_sections(write):
    settings = load_settings(write('[node]\nname = "a"\nshard = "1/2"\n'), {"node": {"name": "b"}})
    assert (settings.node.name, settings.node.shard) == ("b", "1/2")


def test_a_file_of_windows_is_read(write):
    path = write("")
    path.write_bytes(b"\xef\xbb\xbf[run]\r\nsteps = 7\r\n")
    assert load_settings(path).run.steps == 7


def test_rows_may_be_named_from_the_home_of_the_user(write, monkeypatch, tmp_path):
    monkeypatch.setenv("HOME", str(tmp_path))
    assert divide_data("~/rows.csv#train,test") == (str(tmp_path / "rows.csv"), ("train", "test"))
    assert divide_data("~stranger/rows.csv")[0] == "~stranger/rows.csv"
    assert load_settings(write("[node]\ndata = '~stranger/rows.csv'\n")).node.data.endswith("/~stranger/rows.csv")


CLOSED = f'[run]\noperator = "{"ab" * 32}"\n[node]\nstate = "state"\n'


@pytest.mark.parametrize("key", ["state", "roster", "model_path", "export", "data", "then"])
def test_a_path_that_is_empty_is_not_this_folder(write, key):
    path = write('[node]\nname = "a"\n')
    with pytest.raises(ConfigError, match=rf'\[node\] "{key}": "" names nothing; leave this key out'):
        load_settings(path, {"node": {key: ""}})


@pytest.mark.parametrize("key", ["state", "roster", "model_path", "export", "data"])
def test_relative_paths_of_a_file_begin_where_the_file_is_and_those_of_flags_here(
    write, monkeypatch, tmp_path_factory, key
):
    path, here = write(f'[run]\noperator = "{"ab" * 32}"\n[node]\n{key} = "./told"\n'), tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    assert str(getattr(load_settings(path).node, key)) == str(path.parent / "told")
    assert str(getattr(load_settings(path, {"node": {key: "./mine"}}).node, key)) == str(here / "mine")
    assert str(getattr(load_settings(path, {"node": {key: "/mine"}}).node, key)) == "/mine"
    monkeypatch.setenv(f"SEEDFLOOD__NODE__{key.upper()}", "./ours")
    assert str(getattr(load_settings(path).node, key)) == str(here / "ours")


def test_a_file_that_names_no_state_has_it_beside_itself(write, monkeypatch, tmp_path_factory):
    path, here = write("[run]\nsteps = 3\n"), tmp_path_factory.mktemp("here")
    monkeypatch.chdir(here)
    assert load_settings(path).node.state == path.parent / "seedflood-state"
    assert load_settings(None).node.state == here / "seedflood-state"


@pytest.mark.parametrize("told", ["tiny", "./tiny"])
def test_a_relative_model_begins_where_the_file_is_and_is_no_other_run_for_it(write, monkeypatch, told):
    path = write(f'[run]\nmodel = "{told}"\n')
    here = path.parent / "elsewhere"
    (path.parent / "tiny").mkdir()
    (here / "tiny").mkdir(parents=True)
    monkeypatch.chdir(here)
    settings = load_settings(path)
    assert (settings.run.model, settings.node.model_path) == (told, path.parent / "tiny")
    assert load_settings(path, {"run": {"model": "./mine"}}).node.model_path == here / "mine"
    for name in ("embedded", "facebook/opt-125m"):
        assert load_settings(path, {"run": {"model": name}}).node.model_path is None
    assert load_settings(path, {"node": {"model_path": "/own"}}).node.model_path == Path("/own")


@pytest.mark.parametrize(
    ("key", "what"), [("data", "there is no file or folder {}"), ("model", "the folder {} does not exist")]
)
def test_a_folder_at_the_working_directory_does_not_stand_for_one_that_is_missing_beside_the_file(
    write, monkeypatch, tmp_path, key, what
):
    path = write(f'[{"node" if key == "data" else "run"}]\n{key} = "rows"\n')
    here = tmp_path / "here"
    (here / "rows").mkdir(parents=True)
    monkeypatch.chdir(here)
    with pytest.raises(ConfigError, match=what.format(path.parent / "rows")):
        check_folders(load_settings(path))


@pytest.mark.parametrize(
    ("text", "files", "words"),
    [
        (
            '[node]\ndata = "./rows.csv#train"\n',
            ["rows.tsv"],
            "there is no file or folder .*/rows.csv; correct .node. data",
        ),
        (
            '[run.objective]\ntask = "reward"\nscore = "/mine.py:best"\n',
            (),
            'score = "/mine.py:best" is code: set allow_code = true in .node. if this host may run it',
        ),
        ('[run]\nmodel = "tiny"\n', ["tiny/x"], "/tiny has no config.json; put it there, or correct model in .run."),
        ('[run.objective]\ntask = "lm"\n', [], '"lm" needs rows: .* or to "embedded" for some that come with the pack'),
        ('[run.objective]\ntask = "prompted"\n', [], '"prompted" needs rows: set .node. data .* data set of the hub.$'),
    ],
)
def test_what_is_missing_is_told_before_the_model_is_loaded(write, text, files, words):
    path = write(text)
    for name in files:
        (path.parent / name).parent.mkdir(exist_ok=True)
        (path.parent / name).touch()
    with pytest.raises(ConfigError, match=words):
        check_folders(load_settings(path))


def test_an_export_that_could_not_be_written_is_told_before_the_run_and_not_after_it(write):
    path = write("[run]\n")
    check_settings(load_settings(path, {"node": {"export": str(path.parent / "new/model")}}))
    assert [*path.parent.iterdir()] == [path]
    for folder in (path / "model", "/proc/none/model"):  # root seems to be allowed to write /proc
        with pytest.raises(ConfigError, match=r"cannot be written when the run has ended; correct \[node\] export"):
            check_settings(load_settings(path, {"node": {"export": str(folder)}}))


@pytest.mark.parametrize(("card", "is_free"), [(None, False), ("another", False), ("this", True)])
def test_an_export_takes_the_place_of_an_earlier_one_of_the_same_run_alone(write, card, is_free):
    path = write('[run.objective]\ntask = "embedded"\n[node]\nexport = "model"\n')
    settings, folder = load_settings(path), path.parent / "model"
    folder.mkdir()
    (folder / "config.json").touch()
    run = settings.run if card == "this" else settings.run.model_copy(update={"seed": 2})
    if card is not None:
        (folder / "README.md").write_text(model_card(Learned(run, bytes(32), bytes(32), {}, {})))
    with contextlib.nullcontext() if is_free else pytest.raises(ConfigError, match="earlier export of this run"):
        check_export(settings)


def test_an_export_does_not_take_the_place_of_what_somebody_has_put_beside_an_earlier_one(tmp_path):
    (tmp_path / "config.json").touch()
    for card, run in (("| run | ab |", "ab"), ("", None)):
        (tmp_path / "README.md").write_text(card)
        for name, is_free in (("tokenizer_config.json", run is not None), ("notes.txt", False)):
            (tmp_path / name).touch()
            with contextlib.nullcontext() if is_free else pytest.raises(ConfigError, match="choose a new folder"):
                check_place(tmp_path, run, "config.json")
            (tmp_path / name).unlink()


def test_settings_of_one_file_do_not_leak_into_the_next(write):
    load_settings(write("[run]\nsteps = 7\n"))
    assert load_settings(None).run.steps == 400


SETTINGS_MAX = 64

GASLOC = '[run]\nmode = "gasloc"\nobjective.task = "lm"\n'


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("[run]\nstep = 3\n", ["[run]", '"step"', 'did you mean "steps"']),
        ("[rnu]\nsteps = 3\n", ['"rnu"', 'did you mean "run"']),
        ('[run]\nsteps = "many"\n', ['"steps"', "integer"]),
        ("[run]\nsteps = 0\n", ['"steps"', "greater than or equal to 1"]),
        ('[run.seedflood]\nwindow = "open"\n', ['[run.seedflood] "window"', "strict"]),
        ("[run.objective]\nlabel_words = [1]\n", ['[run.objective] "label_words"', "string"]),
        ('[run]\ntsk = "sst2"\n', ['no key "tsk"', 'did you mean "task" of [run.objective]']),
        ("[run.seedflood]\nsteps = 3\n", ['[run.seedflood] has no key "steps"', "it belongs to [run]"]),
        ('[run.seedflood]\ntask = "lm"\n', ['no key "task"', "it belongs to [run.objective]"]),
        ("[seedflood]\nrank = 3\n", ["did you mean [run.seedflood]"]),
        ("[run]\nseedflood = 3\n", ["[run.seedflood]", "must be a table"]),
        ('[run]\nmode = "gossip"\n', ['"mode"', "seedflood, gasloc"]),
        ('[run]\nmode = "gasloc"\n', ['task = "lm"', "[run.objective]"]),
        ('[run]\nmode = "gasloc"\n[run.objective]\ntask = "own"\n', ["is for scripts", 'mode = "seedflood"']),
        (GASLOC + "steps = 30\n", ["steps (30)", "multiple", "local_steps (20)"]),
        (GASLOC + "[run.gasloc]\ndelay_steps = 21\n", ["delay_steps (21)", "at most", "local_steps (20)"]),
        (GASLOC + '[run.gasloc]\nmaching = "two"\n', ['no key "maching"', 'did you mean "matching"']),
        (GASLOC + "[run.gasloc]\neta = 0\n", ['[run.gasloc] "eta"', "greater than 0"]),
        (GASLOC + "[run.gasloc]\nrank = 4\n", ['no key "rank"', "it belongs to [run.seedflood]"]),
        ('[run.objective]\nlabel_words = "good"\n', ['[run.objective] "label_words"', "must be a list"]),
        ('[run.seedflood]\nwindow = "none"\n', ['[run.seedflood] "window"', "'strict' or 'bounded' (it is 'none')"]),
        ("[run.seedflood]\nlearning_rate = inf\n", ['[run.seedflood] "learning_rate"', "finite"]),
        ('[run.seedflood]\nclip = "median"\n', ['"clip": must be a number, "others" or "none"']),
        ("[run.seedflood]\nclip = -1\n", ['"clip"', "greater than or equal to"]),
        ('[run.seedflood]\nclip = "others"\n', ["compares gradients", 'estimate = "gradient"']),
        ("[run.seedflood]\nparticipants = 2\n", ["participants", 'window = "strict"']),
        (
            "[run.seedflood]\nwindow = 'strict'\nparticipants = 2\nstop_after = 1000\n",
            ["take stop_after out, or participants"],
        ),
        (
            '[run.seedflood]\nwindow = "strict"\nparticipants = 1\n[run.objective]\ntask = "reward"\nahead = 1\n',
            ["ahead = 0"],
        ),
        (
            "[run]\nclients = 9\n[run.seedflood]\nwindow = 'strict'\nparticipants = 2\nrefresh_period = 4\n",
            ["one of 5 rounds", "to 5 or"],
        ),
        ('[peers]\naddress = "10.0.0.2:7070"\n', ["[[peers]]"]),
        ('[[peers]]\naddress = "nowhere"\n', ["nowhere", "host:port"]),
        ('[[peers]]\naddress = "host:99999"\n', ["host:99999", "host:port"]),
        ("[[peers]]\n", ["[peers]", '"address"']),
        ('[[peers]]\nadress = "10.0.0.2:7070"\n', ['[peers] has no key "adress"', 'did you mean "address"']),
        ('[[peers]]\naddress = "::1:7070"\n', ['"::1:7070"', '"[fd00::2]:7070"']),
        ('[node]\nname = "a b"\n', ['[node] "name"', "letters, digits", "it is 'a b'"]),
        ('[node]\nthen = "second.toml"\n', ['[node] "then"', "'serve'", "(it is 'second.toml')"]),
        ('[node]\nlisten = "nowhere"\n', ['"nowhere"', "host:port"]),
        ('[node]\nlisten = "upnp:7070"\n', ['"upnp:7070" is no address', '"0.0.0.0:7070"', "in the router by hand"]),
        ('[node]\nshard = "5/4"\n', ["5/4", "2/16"]),
        ('[node]\ndevice = "gpu"\n', ['"gpu" is no device', '"cuda:1"', '"mps"', '"xpu"']),
        ('[node]\ndevice = "cpu:0"\n', ['"cpu:0" is no device']),
        ("[run]\nbatch_size = 100000000\n", ["batch_size", "65536"]),
        ("[run]\nsteps = 7\n[run.seedflood]\nlocal_steps = 2\n", ["multiples", "[run.seedflood]", "local_steps"]),
        ('[[peers]]\naddress = "b:1"\norigin = "5"\n', ['"origin"', "64 hex digits", "seedflood keygen"]),
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


@pytest.mark.parametrize("device", ["auto", "cpu", "cuda", "cuda:1", "mps", "mps:0", "xpu", "xpu:3"])
def test_a_host_may_name_any_accelerator(write, device):
    assert load_settings(write(f'[node]\ndevice = "{device}"\n')).node.device == device


def test_a_missing_file_is_named(tmp_path):
    with pytest.raises(ConfigError, match="does not exist"):
        load_settings(tmp_path / "none.toml")


@pytest.mark.parametrize("place", ["file", "option", "environment"])
def test_a_wrong_value_is_said_to_be_where_it_stands(tmp_path, monkeypatch, place):
    path = tmp_path / "peers.toml"
    path.write_text("[run]\nsteps = 0\n" if place == "file" else "[run]\nsteps = 5\n")
    if place == "environment":
        monkeypatch.setenv("SEEDFLOOD__RUN__STEPS", "x")
    with pytest.raises(ConfigError) as refused:
        load_settings(path, {"run": {"steps": 0} if place == "option" else {"clients": 3}})
    source = path if place == "file" else "an option or the environment"
    assert str(refused.value).startswith(f'{source}: [run] "steps"')


@pytest.mark.parametrize(
    "variable", ["SEEDFLOOD__NODE__LISTN", "SEEDFLOOD__NOD__LISTEN", "SEEDFLOOD__RUN__SEEDFLOOD__RNK"]
)
def test_an_unknown_variable_is_an_error_with_the_nearest_right_one(write, monkeypatch, variable):
    monkeypatch.setenv(variable, "127.0.0.1:1")
    with pytest.raises(ConfigError, match="did you mean"):
        load_settings(write(""))


def test_neighbours_can_come_from_the_environment(write, monkeypatch):
    monkeypatch.setenv("SEEDFLOOD__PEERS", '[{"address": "127.0.0.1:7"}]')
    assert [peer.address for peer in load_settings(write("")).peers] == ["127.0.0.1:7"]


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("SEEDFLOOD__PEERS", '[{"address": "a:1"}'),
        ("SEEDFLOOD__RUN", "steps=3"),
        ("SEEDFLOOD__RUN__SEEDFLOOD", "rank=3"),
    ],
)
def test_a_section_in_the_environment_that_is_not_json_is_one_sentence(write, monkeypatch, variable, value):
    monkeypatch.setenv(variable, value)
    with pytest.raises(ConfigError, match=f"{variable} .* must be JSON"):
        load_settings(write(""))


def test_a_whole_table_can_come_from_the_environment(write, monkeypatch):
    monkeypatch.setenv("SEEDFLOOD__RUN__SEEDFLOOD", '{"rank": 9, "delay": 1}')
    seedflood = load_settings(write("[run.seedflood]\nrank = 8\nlocal_steps = 2\n[run]\nsteps = 6\n")).run.seedflood
    assert (seedflood.rank, seedflood.delay, seedflood.local_steps) == (9, 1, 2)


def test_a_proxy_is_for_peers_beyond_this_machine(write):
    node = load_settings(write('[node]\nproxy = "http://proxy.example:3128/"\n')).node
    assert (node.proxy_of("beta.example:7070"), node.proxy_of("127.0.0.1:7070")) == ("proxy.example:3128", "")
    with pytest.raises(ConfigError, match=r'\[node\] "proxy": "https://proxy" is no address'):
        load_settings(write('[node]\nproxy = "https://proxy"\n'))


@pytest.mark.parametrize("address", ["[fe80::1%eth0]:7070", "_gateway:7070", "server.local:7070"])
def test_link_local_addresses_and_names_of_the_system_are_addresses(write, address):
    assert load_settings(write(f'[[peers]]\naddress = "{address}"\n')).peers[0].address == address


@pytest.mark.parametrize("tls", ["", "loopback = true"])
def test_a_file_of_before_that_secures_all_links_is_taken(write, tls):
    assert load_settings(write(f'[node]\nname = "a"\n[tls]\n{tls}\n')).node.name == "a"


@pytest.mark.parametrize("tls", ["loopback = false", "insecure = true"])
def test_a_file_that_asks_for_links_in_plain_text_is_refused_in_one_sentence(write, tls):
    with pytest.raises(
        ConfigError, match=r"peers.toml: \[tls\] is gone, because every link is secured[^\n]*take it out\.$"
    ):
        load_settings(write(f"[tls]\n{tls}\n"))


GONE = {
    "run": ["nonce"],
    "run.seedflood": ["warmup_steps", "weight_decay", "tell", "bits"],
    "run.gasloc": ["warmup_steps", "weight_decay", "schedule", "optimizer"],
    "node": ["when_finished", "log_level", "gradient_checkpointing"],
}
"""Keys that were settings before."""


@pytest.mark.parametrize(("table", "key"), [(table, key) for table, keys in GONE.items() for key in keys])
def test_a_setting_that_is_gone_is_refused_in_one_sentence(write, table, key):
    mode = GASLOC if table == "run.gasloc" else ""
    with pytest.raises(ConfigError, match=rf'\[{table}\] has no key "{key}"; [^\n]*[.?]$'):
        load_settings(write(f"{mode}[{table}]\n{key} = 1\n"))


def test_there_are_few_settings():
    """Each is one more thing to know, and to keep. What follows from others, or what nobody sets, is none."""
    keys = [key for table, model in SECTIONS.items() for key in model.model_fields if f"{table}.{key}" not in SECTIONS]
    assert len(keys) <= SETTINGS_MAX


def test_a_relay_is_for_updates(write):
    relay = '[node]\nrole = "relay"\n'
    with pytest.raises(ConfigError, match='has no relays, which pass on what mode = "seedflood" sends'):
        load_settings(write(GASLOC + relay))
    assert load_settings(write(relay + 'then = "serve"\n')).node.then == "serve"


def test_a_relay_needs_neither_model_nor_rows(write, tmp_path):
    run = f'[run]\nmodel = "{tmp_path}/none"\nobjective.task = "lm"\n'
    check_folders(load_settings(write(run + '[node]\nrole = "relay"\n')))
    with pytest.raises(ConfigError, match="none"):
        check_folders(load_settings(write(run)))


def test_pins_are_the_keys_of_some_peers(write):
    key = "0123456789abcdef" * 4
    text = f'[[peers]]\naddress = "b:1"\norigin = "{key}"\n[[peers]]\naddress = "c:1"\n'
    assert load_settings(write(text)).pins == {"b:1": bytes.fromhex(key)}


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


@pytest.mark.parametrize(
    ("changes", "sentence"),
    [
        ({"stop_after": 9, "refresh_period": 9}, 'set window = "strict", or take stop_after out'),
        ({"stop_after": 100, "window": "strict"}, "so a run of 400 cannot end sooner"),
    ],
)
def test_settings_that_do_not_go_together_are_told_in_one_sentence(changes, sentence):
    with pytest.raises(ConfigError) as raised:
        load_settings(None, {"run": {"seedflood": changes}})
    assert sentence in str(raised.value)
    assert "[run" in str(raised.value)
    assert "\n" not in str(raised.value)


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ("", r"\[node\] audit needs .* strict windows .* leave audit out"),
        ('[run]\nmode = "gasloc"\n[run.objective]\ntask = "lm"\n', 'audit is for mode = "seedflood": leave it out'),
    ],
)
def test_an_audit_that_cannot_know_what_was_applied_says_so(write, run, sentence):
    audit = "[node]\naudit = 0.03\n"
    with pytest.raises(ConfigError, match=sentence):
        load_settings(write(run + audit))
    assert load_settings(write('[run.seedflood]\nwindow = "strict"\n' + audit)).node.audit == 0.03


@pytest.mark.parametrize(
    ("run", "sentence"),
    [
        ("steps = 20000\n", "has 640 columns of epochs, more than 512: increase refresh_period"),
        ('mode = "gasloc"\n[run.objective]\ntask = "lm"\n', 'dtype = "int8" is for mode = "seedflood": leave it out'),
    ],
)
def test_quantised_weights_that_cannot_hold_the_run_are_told(write, run, sentence):
    dtype = '[node]\ndtype = "int8"\n'
    with pytest.raises(ConfigError, match=sentence):
        load_settings(write(f"{dtype}[run]\n{run}"))
    assert load_settings(write(dtype)).node.quantisation == "int8"


def test_a_roster_without_an_operator_says_what_is_missing(write):
    with pytest.raises(ConfigError, match=r"\[node\] roster is for a closed run: name .* \[run\] operator"):
        load_settings(write('[node]\nroster = "roster.json"\n'))
    assert load_settings(write(f'{CLOSED}roster = "roster.json"\n')).node.roster is not None


def test_the_base_model_is_no_place_for_an_export(write, tmp_path):
    path = write('[run]\nmodel = "base"\n[run.objective]\ntask = "embedded"\n[node]\nexport = "./base/../base"\n')
    (path.parent / "base").mkdir()
    (path.parent / "base" / "config.json").write_text("{}")
    settings = load_settings(path)
    with pytest.raises(ConfigError, match="is the base model, which the run needs as it is"):
        check_export(settings)
    with pytest.raises(ConfigError, match="export to another folder"):
        export_model(settings, path.parent / "base")
    assert (path.parent / "base" / "config.json").read_text() == "{}"


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf"), 1e-05, 0.1, 3, True, 'a "b"', ["a", "b"]])
def test_a_value_that_is_spelled_as_toml_is_read_as_it_was(value):
    assert repr(tomllib.loads(spell({"run": {"key": value}}))["run"]["key"]) == repr(value)
