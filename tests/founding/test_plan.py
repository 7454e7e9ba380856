"""The files of a closed run: ready to be copied, and everyone can be reached."""

import networkx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seedflood.config import check_settings, load_settings
from seedflood.errors import ConfigError, UsageError
from seedflood.founding.plan import DIALLED, PlannedHost, explain, found, parse_hosts, plan_dials
from seedflood.identity import Identity
from seedflood.roster_file import read_roster

TEXTS = ["alpha=10.0.0.1:7070", "beta=beta.example.org:7071", "gamma"]


def test_each_host_gets_what_it_needs_and_no_more(tmp_path):
    keys = found(parse_hosts(TEXTS), {}, tmp_path / "run")
    ids = set()
    ports = {"7070": "alpha", "7071": "beta"}
    for k, name in enumerate(keys):
        folder = tmp_path / "run" / name
        assert {path.name for path in folder.iterdir()} == {"peers.toml", "roster.json", "seedflood-state"}
        settings = load_settings(folder / "peers.toml")
        check_settings(settings)
        ids.add(settings.run.run_id())
        assert Identity.load_or_create(folder / "seedflood-state" / "identity.pem").public_key.hex() == keys[name]
        assert (settings.node.name, settings.node.shard) == (name, f"{k + 1}/3")
        for peer in settings.peers:
            assert peer.origin == keys[ports[peer.address.rpartition(":")[2]]]
    assert len(ids) == 1
    listening = {name: load_settings(tmp_path / "run" / name / "peers.toml").node.listen for name in keys}
    assert listening == {"alpha": "0.0.0.0:7070", "beta": "0.0.0.0:7071", "gamma": ""}


def test_hosts_of_one_machine_listen_there_alone():
    hosts = parse_hosts(["alpha=127.0.0.1:7070", "beta=localhost:7071", "gamma=10.0.0.3:7072"])
    assert [host.listen for host in hosts] == ["127.0.0.1:7070", "localhost:7071", "0.0.0.0:7072"]


def test_the_roster_is_the_operators_and_names_all_hosts(tmp_path):
    keys = found(parse_hosts(TEXTS), {}, tmp_path / "run")
    operator = Identity.load_or_create(tmp_path / "run" / "operator.key")
    signed = read_roster(tmp_path / "run" / "roster.json")
    run = load_settings(tmp_path / "run" / "alpha" / "peers.toml").run
    assert signed.operator == operator.public_key == bytes.fromhex(run.operator)
    assert signed.run == run.name
    assert {entry.name: entry.public_key.hex() for entry in signed.roster.entries} == keys
    assert (tmp_path / "run" / "operator.key").stat().st_mode & 0o777 == 0o600
    for name in keys:
        assert (tmp_path / "run" / name / "roster.json").read_bytes() == (tmp_path / "run/roster.json").read_bytes()


def test_a_relay_is_dialled_by_all_and_counts_as_nobody(tmp_path):
    found(parse_hosts(["ada", "bob"], ["server=10.0.0.3:7070"]), {}, tmp_path / "run")
    read = {name: load_settings(tmp_path / "run" / name / "peers.toml") for name in ("ada", "bob", "server")}
    assert {settings.run.clients for settings in read.values()} == {2}
    assert {name: (one.node.role, one.node.shard) for name, one in read.items()} == {
        "ada": ("train", "1/2"),
        "bob": ("train", "2/2"),
        "server": ("relay", None),
    }
    assert {name: len(one.peers) for name, one in read.items()} == {"ada": 1, "bob": 1, "server": 0}
    roster = read_roster(tmp_path / "run" / "roster.json").roster
    assert {entry.name: entry.roles for entry in roster.entries} == {
        "ada": ("train",),
        "bob": ("train",),
        "server": ("relay",),
    }


def test_a_relay_that_nobody_reaches_or_that_cannot_serve_the_run_is_refused(tmp_path):
    with pytest.raises(UsageError, match="a relay is there to be reached"):
        parse_hosts(["ada=h:1", "bob"], ["server"])
    with pytest.raises(ConfigError, match="has no relays"):
        found(parse_hosts(["ada", "bob"], ["server=h:1"]), {"mode": "gasloc"}, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_two_runs_with_the_same_settings_are_two_runs(tmp_path):
    for name in ("one", "two"):
        found([PlannedHost("alpha")], {}, tmp_path / name)
    one, two = (load_settings(tmp_path / name / "alpha" / "peers.toml").run for name in ("one", "two"))
    assert one.run_id() != two.run_id()


@pytest.mark.parametrize("mode", ["seedflood", "gasloc"])
def test_any_mode_can_be_chosen_and_any_setting_of_the_run(tmp_path, mode):
    found([PlannedHost("alpha")], {"mode": mode, "steps": 40, "seed": 7}, tmp_path / "run")
    settings = load_settings(tmp_path / "run" / "alpha" / "peers.toml")
    check_settings(settings)
    run = settings.run
    assert (run.mode, run.steps, run.seed, run.clients) == (mode, 40, 7, 1)


@pytest.mark.parametrize("run", [{"objective": {"task": "lm"}}, {"model": "./own", "objective": {"task": "prompted"}}])
def test_rows_of_a_task_that_has_none_are_asked_for(tmp_path, run):
    with pytest.raises(UsageError, match="needs rows: say with --data where each host has them"):
        found([PlannedHost("alpha")], run, tmp_path / "run")
    assert not (tmp_path / "run").exists()
    found([PlannedHost("alpha")], run, tmp_path / "run", "./rows")
    for name in ("alpha/peers.toml", "newcomer.toml"):
        assert load_settings(tmp_path / "run" / name).node.data == str((tmp_path / "run" / name).parent / "rows")


def test_hosts_on_one_machine_have_no_port_in_common(tmp_path):
    found(parse_hosts(["a=127.0.0.1:7070", "b=127.0.0.1:7071", "c"]), {}, tmp_path / "run")
    nodes = [load_settings(tmp_path / "run" / name).node for name in ("a/peers.toml", "b/peers.toml", "newcomer.toml")]
    ports = [address.rpartition(":")[2] for node in nodes for address in (node.listen, node.http) if address]
    taken = [port for port in ports if port != "0"]
    assert len(set(taken)) == len(taken)


@pytest.mark.parametrize("run", [{"mode": "none"}, {"stps": 3}, {"steps": 0}, {"mode": "gasloc", "steps": 41}])
def test_what_cannot_be_used_is_told_before_anything_is_made(tmp_path, run):
    with pytest.raises(ConfigError):
        found([PlannedHost("alpha")], run, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_keys_are_not_made_twice(tmp_path):
    found([PlannedHost("alpha")], {}, tmp_path / "run")
    before = (tmp_path / "run" / "operator.key").read_bytes()
    with pytest.raises(UsageError, match="not empty"):
        found([PlannedHost("alpha")], {}, tmp_path / "run")
    assert (tmp_path / "run" / "operator.key").read_bytes() == before


@pytest.mark.parametrize(
    ("texts", "words"),
    [
        (["a b"], "no name"),
        (["alpha="], "host:port"),
        (["alpha=nowhere"], "host:port"),
        (["alpha=h:1", "alpha=h:2"], "two hosts have the name alpha"),
        (["alpha=h:1", "beta=h:1"], "two hosts have the address h:1"),
        (["alpha", "beta"], "nobody can be reached"),
    ],
)
def test_hosts_that_cannot_be_linked_are_told(texts, words):
    with pytest.raises(UsageError, match=words):
        parse_hosts(texts)


@given(st.integers(1, 30), st.integers(0, 30))
def test_everyone_is_linked_and_only_hosts_that_can_be_reached_are_dialled(reachable, others):
    hosts = [PlannedHost(f"r{k}", f"h:{k + 1}") for k in range(reachable)] + [
        PlannedHost(f"o{k}") for k in range(others)
    ]
    dials = plan_dials(hosts)
    graph = networkx.Graph([(name, other.name) for name, found in dials.items() for other in found])
    graph.add_nodes_from(host.name for host in hosts)
    assert networkx.is_connected(graph)
    assert all(other.address is not None for found in dials.values() for other in found)
    assert not any(graph.has_edge(name, name) for name in graph)
    assert all(len(dials[host.name]) == min(DIALLED, reachable) for host in hosts if host.address is None)


def test_every_key_is_explained(tmp_path):
    found(parse_hosts(TEXTS), {}, tmp_path / "run")
    text = (tmp_path / "run" / "beta" / "peers.toml").read_text()
    lines = text.partition("[[peers]]")[0].splitlines()
    assert all(lines[k - 1].startswith("#") for k, line in enumerate(lines) if " = " in line and line[0] != "#")
    layer = {"run": {"name": "x"}, "peers": [{"address": "a:1"}, {"address": "b:1"}]}
    path = tmp_path / "peers.toml"
    path.write_text(explain(layer))
    settings = load_settings(path)
    assert (settings.run.name, [one.address for one in settings.peers]) == ("x", ["a:1", "b:1"])
