"""A host is examined before its run: whole set-ups pass, and each that is broken is told with a remedy and a code."""

import fcntl
import json
import os
import shutil
import socket
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
import torch

from seedflood import cli
from seedflood.config import load_settings, spell
from seedflood.errors import ExitCode, ModelError
from seedflood.host.places import LOCK_FILE, make_folder
from seedflood.identity import Identity
from seedflood.offline import doctor
from seedflood.protocol.swarm.roster import Entry, Roster
from seedflood.roster_file import SignedRoster, write_roster
from seedflood.storage.journal import Journal
from seedflood.training import devices, models
from seedflood.training.models import ModelSize
from seedflood.training.seedflood import offloaded
from seedflood.transport import certificates

RUN = {"model": "embedded", "clients": 2, "steps": 100, "objective": {"task": "embedded"}, "train_examples": 64}
GASLOC = {"mode": "gasloc", "objective": {"task": "lm", "max_length": 32}, "train_examples": 512}
NODE = {"name": "alpha", "listen": "127.0.0.1:0", "device": "cpu", "threads": 1}


@pytest.fixture
def examine(tmp_path, monkeypatch, capsys):
    """Examines a host with these settings beside the usual ones: (exit code, levels by check, texts by check)."""

    def examine(run=(), node=(), text=""):
        path = tmp_path / "peers.toml"
        path.write_text(spell({"run": {**RUN, **dict(run)}, "node": {**NODE, **dict(node)}}) + text)
        monkeypatch.setattr("sys.argv", ["seedflood", "doctor", "--peers", str(path), "--json"])
        with pytest.raises(SystemExit) as ended:
            cli.main()
        found = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
        levels, texts = ({one["what"]: one[key] for one in found} for key in ("level", "text"))
        return ended.value.code or 0, levels, texts

    return examine


@pytest.fixture
def secured_port():
    """Of a server that asks for certificates, as a node does."""
    own = certificates.issue(Identity.generate(), time.time())
    secrets = grpc.ssl_server_credentials([(own.key_pem, own.chain_pem)], certificates.authority(), True)
    server = grpc.server(ThreadPoolExecutor(1))
    port = server.add_secure_port("127.0.0.1:0", secrets)
    server.start()
    yield port
    server.stop(None)


@pytest.mark.parametrize(
    "run",
    [
        {},
        {"seedflood": {"estimate": "gradient", "window": "bounded", "local_steps": 2}},
        GASLOC,
    ],
    ids=["two-sided", "gradient", "gasloc"],
)
def test_a_host_that_is_ready_passes_and_nothing_is_written(examine, tmp_path, run):
    code, levels, texts = examine(run, {"data": "embedded"} if "mode" in run else {})
    assert code == 0, texts
    assert set(levels.values()) <= {"ok", "note"}
    assert {
        "settings",
        "key",
        "clock",
        "port",
        "rows",
        "device",
        "memory",
        "disk",
        "time",
        "traffic",
        "waiting",
    } == set(levels)
    assert os.listdir(tmp_path) == ["peers.toml"]


def test_nothing_is_written_into_the_folder_that_came_with_the_key(examine, tmp_path):
    """Else the node would find a damaged journal at its first start."""
    state = make_folder(tmp_path / "seedflood-state")
    assert examine({}, {})[0] == 0
    assert os.listdir(state) == []


def test_a_setting_that_does_not_exist_is_all_that_is_told(examine):
    code, levels, texts = examine(node={"lisen": "127.0.0.1:7070"})
    assert (code, levels) == (ExitCode.CONFIG, {"settings": "bad"})
    assert 'did you mean "listen"' in texts["settings"]


def test_a_host_that_is_not_on_the_roster_is_told_how_to_get_there(examine, tmp_path):
    operator, other = Identity.generate(), Identity.generate()
    roster = SignedRoster.sign(operator, "run", Roster(1, (Entry("beta", other.public_key),)))
    write_roster(tmp_path / "roster.json", roster)
    closed = {"operator": operator.public_key.hex()}
    code, _, texts = examine(closed, {"roster": "roster.json"})
    assert code == ExitCode.CONFIG
    assert "copy the key" in texts.get("key", str(texts))
    key = Identity.load_or_create(tmp_path / "seedflood-state" / "identity.pem").public_key.hex()
    code, levels, texts = examine(closed, {"roster": "roster.json"})
    assert (code, levels["key"], levels["rows"]) == (ExitCode.CONFIG, "bad", "note")
    assert f"seedflood roster add FILE NAME {key}" in texts["key"]


def test_the_port_of_the_node_that_runs_here_is_in_its_place(examine, tmp_path, monkeypatch):
    monkeypatch.setattr(doctor, "_step", lambda settings: ())
    held = os.open(make_folder(tmp_path / "seedflood-state") / LOCK_FILE, os.O_RDWR | os.O_CREAT)
    fcntl.flock(held, fcntl.LOCK_EX)
    with socket.create_server(("127.0.0.1", 0)) as own:
        code, levels, texts = examine(node={"listen": f"127.0.0.1:{own.getsockname()[1]}"})
    os.close(held)
    assert (code, levels["port"], "the node of this host runs" in texts["port"]) == (0, "ok", True)


def test_a_port_that_is_used_is_told(examine):
    with socket.create_server(("127.0.0.1", 0)) as other:
        code, levels, texts = examine(node={"listen": f"127.0.0.1:{other.getsockname()[1]}"})
    assert (code, levels["port"]) == (ExitCode.UNAVAILABLE, "bad")
    assert "choose another port, in [node] listen" in texts["port"]


@pytest.mark.parametrize(
    ("address", "level", "code"),
    [("127.0.0.1:{port}", "ok", 0), ("127.0.0.1:1", "note", 0), ("nowhere.invalid:7070", "bad", ExitCode.TRY_AGAIN)],
)
def test_peers_are_tried(examine, secured_port, address, level, code):
    ended, levels, _ = examine(text=f'[[peers]]\naddress = "{address.format(port=secured_port)}"\n')
    assert (ended, levels["peer"]) == (code, level)


@pytest.mark.parametrize(
    ("does", "level", "code", "words"),
    [
        ("nothing", "bad", ExitCode.TRY_AGAIN, "the connection opens, but the TLS handshake does not end"),
        ("talks", "bad", ExitCode.TRY_AGAIN, "answers without TLS, so it is no seedflood"),
        ("closes", "note", 0, "takes the connection and closes it"),
    ],
)
def test_a_peer_that_takes_connections_and_does_not_finish_a_handshake_is_told(
    examine, monkeypatch, does, level, code, words
):
    """As behind a hole in the path, a wrong port, or a forwarder behind which nobody listens."""
    monkeypatch.setattr(doctor, "DIAL_SECONDS", 0.3)

    def serve():
        one, _ = there.accept()
        if does == "talks":
            one.sendall(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        one.close()

    with socket.create_server(("127.0.0.1", 0)) as there:
        if does != "nothing":
            threading.Thread(target=serve, daemon=True).start()
        address = f"127.0.0.1:{there.getsockname()[1]}"
        ended, levels, texts = examine(text=f'[[peers]]\naddress = "{address}"\n')
    assert (ended, levels["peer"]) == (code, level)
    assert words in texts["peer"]


@pytest.mark.parametrize(
    ("steps", "level", "said"), [(2, "ok", None), (120, "ok", "3 times"), (122, "note", "3.05 times")]
)
def test_it_says_how_often_a_run_measures_the_rows(examine, steps, level, said):
    _, levels, texts = examine({"steps": steps, "batch_size": 16, "train_examples": 640, "clients": 2})
    assert levels["rows"] == level
    assert ("each of them" in texts["rows"]) == (said is not None)
    assert said is None or f"measures each of them {said}" in texts["rows"]
    assert ("take fewer steps" in texts["rows"]) == (level == "note")


def test_rows_that_cannot_be_used_are_told(examine, tmp_path):
    (tmp_path / "rows.jsonl").write_text('{"text": "a"}\n{"text": "b"}\n')
    code, levels, texts = examine({"objective": {"task": "sst2"}}, {"data": "rows.jsonl"})
    assert (code, levels["rows"]) == (ExitCode.CONFIG, "bad")
    assert 'no column "sentence"' in texts["rows"]


def test_a_model_that_is_not_there_is_told(examine):
    code, levels, texts = examine({"model": "./none"})
    assert (code, levels["settings"]) == (ExitCode.CONFIG, "bad")
    assert "does not exist" in texts["settings"]


@pytest.mark.parametrize(
    ("run", "node", "is_of_run"),
    [({}, {}, False), ({}, {}, True), (GASLOC, {"data": "embedded"}, True), ({}, {"role": "relay"}, False)],
)
@pytest.mark.parametrize("is_open", [False, True])
def test_a_journal_of_another_run_or_model_is_told_and_left_as_it_is(examine, tmp_path, run, node, is_of_run, is_open):
    """A node may have been killed, or run."""
    code, levels, _ = examine(run, node)
    assert (code, "journal" in levels) == (0, False)
    state = make_folder(tmp_path / "seedflood-state")
    run_id = load_settings(tmp_path / "peers.toml").run.run_id() if is_of_run else bytes(32)
    with Journal.open(state / "journal.sqlite", run_id, bytes(32)) as journal:
        if not is_open:
            journal.close()
        before = {path: path.read_bytes() for path in state.iterdir()}
        code, levels, texts = examine(run, node)
        assert (code, levels["journal"]) == (ExitCode.CONFIG, "bad")
        assert ("other base model weights" if is_of_run else f"belongs to run {'0' * 16}") in texts["journal"]
        assert before == {path: path.read_bytes() for path in state.iterdir()}


def test_too_little_memory_space_or_time_is_told(examine, monkeypatch):
    monkeypatch.setattr(doctor, "_free_memory", lambda: 1_000_000)
    monkeypatch.setattr(doctor.shutil, "disk_usage", lambda _: shutil._ntuple_diskusage(1, 1, 1000))
    monkeypatch.setattr(doctor, "time", Clock)
    code, levels, texts = examine()
    assert code == ExitCode.CONFIG
    assert {"memory", "disk", "clock"} == {what for what, level in levels.items() if level == "bad"}
    assert "[node] micro_batch" in texts["memory"]
    assert "make room" in texts["disk"]
    assert "set it" in texts["clock"]


def test_a_model_that_cannot_even_be_loaded_is_told_without_loading_it(examine, monkeypatch):
    monkeypatch.setattr(doctor, "_free_memory", lambda: 400_000)
    monkeypatch.setattr(doctor, "_measure", None)
    code, levels, texts = examine()
    assert (code, levels["memory"]) == (ExitCode.CONFIG, "bad")
    assert texts["memory"].startswith("the weights take 468.7 kB, and 400.0 kB of host memory are free: ")


SHARE = "share it among several GPUs by torchrun (docs/how-to/hosts.md)"
SMALLER = "take a smaller [run] model."
PARAMETERS = 117_184
"""Of the embedded model."""


def set_to(*dtypes):
    return [f'set [node] dtype = "{one}"' for one in dtypes]


def measured(_settings):
    raise ModelError("measured")


@pytest.fixture
def small_gpu(monkeypatch):
    """As if there were one, with room for so many bytes of weights, in a host that has so many of memory. beside: bytes
    that lie there beside weights of few bits."""

    def make(room, host=10**9, beside=0):
        monkeypatch.setattr(devices, "find_device", torch.device)
        monkeypatch.setattr(devices, "usual_dtype", lambda _device: torch.bfloat16)
        monkeypatch.setattr(offloaded, "room_for_weights", lambda _device: room)
        monkeypatch.setattr(offloaded, "bytes_beside", lambda *_: beside)
        monkeypatch.setattr(doctor, "_free_memory", lambda: host)
        monkeypatch.setattr(doctor, "_measure", measured)

    return make


@pytest.mark.parametrize(
    ("node", "run", "room", "remedies"),
    [
        ({"dtype": "auto"}, {}, 200_000, [*set_to("int8", "nf4"), SHARE]),
        ({"dtype": "float32"}, {}, 300_000, [*set_to("bfloat16", "int8", "nf4"), SHARE]),
        ({"dtype": "float32", "audit": 0.1}, {"seedflood": {"window": "strict"}}, 300_000, [SHARE]),
        ({"dtype": "int8"}, {}, 100_000, [*set_to("nf4"), SHARE]),
        ({"dtype": "nf4"}, {}, 50_000, [SHARE]),
        ({}, {"steps": 100_000}, 200_000, [SHARE]),
    ],
)
def test_a_model_that_is_too_large_for_a_gpu_is_measured_and_told_with_what_would_make_it_fit(
    examine, small_gpu, node, run, room, remedies
):
    small_gpu(room)
    _, levels, texts = examine(run, {"device": "cuda:1", **node})
    assert (levels["memory"], texts["model"]) == ("note", "measured")
    said, _, named = texts["memory"].removesuffix(".").partition(", which takes time")
    assert said.startswith("the weights take ")
    assert said.endswith(f"has room for {room / 1000:.1f} kB: the rest lies in host memory, and each pass copies it")
    assert named == (f". To avoid that, {', or '.join(remedies)}" if remedies else "")


@pytest.mark.parametrize(("dtype", "room", "needed"), [("bfloat16", 10**9, 4), ("bfloat16", 10, 6), ("nf4", 10**9, 6)])
def test_what_cannot_be_loaded_onto_the_gpu_at_once_needs_more_host_memory(examine, small_gpu, dtype, room, needed):
    """Masters in float32, and what is not on the GPU yet."""
    for host in (needed * PARAMETERS - 1, needed * PARAMETERS):
        small_gpu(room, host)
        code, levels, texts = examine(node={"device": "cuda:1", "dtype": dtype})
        assert (levels.get("memory") == "bad") == (host < needed * PARAMETERS)
    small_gpu(10, host=5 * PARAMETERS)
    code, _, texts = examine(node={"device": "cuda:1", "dtype": "bfloat16"})
    said = "loading takes 703.1 kB of host memory, and 585.9 kB are free: take a host with more, or "
    assert (code, texts["memory"]) == (ExitCode.CONFIG, said + "a smaller [run] model.")


def test_experts_of_a_layer_that_do_not_fit_are_named(examine, small_gpu, monkeypatch):
    size = ModelSize(PARAMETERS, sides=1000, experts=PARAMETERS // 4)
    monkeypatch.setattr(models, "find_size", lambda _name: size)
    layer = 2 * size.experts
    small_gpu(layer - 1)
    code, _, texts = examine(node={"device": "cuda:1", "dtype": "bfloat16"})
    said = "the experts of one layer take 58.6 kB, and cuda:1 has room for 58.6 kB: take a device with more memory, or "
    assert (code, texts["memory"]) == (ExitCode.CONFIG, said + "a smaller model.")
    small_gpu(layer)
    assert examine(node={"device": "cuda:1", "dtype": "bfloat16"})[1]["memory"] == "note"
    for room, level in ((PARAMETERS + layer - 1, "note"), (PARAMETERS + layer, None)):  # as codes, and for a while
        small_gpu(room)
        assert examine(node={"device": "cuda:1", "dtype": "int8"})[1].get("memory") == level


def test_what_epochs_change_beside_few_bits_takes_room_too(examine, small_gpu):
    small_gpu(200_000, beside=100_000)
    _, levels, texts = examine(node={"device": "cuda:1", "dtype": "int8"})
    assert levels["memory"] == "note"
    assert texts["memory"].startswith("the weights take 217.2 kB in int8, ")
    assert texts["memory"].endswith(f'To avoid that, set [node] dtype = "nf4", or {SHARE}.')


def test_weights_in_half_precision_lie_beside_their_masters_on_a_processor(examine, monkeypatch):
    for host, level in ((6 * PARAMETERS - 1, "bad"), (6 * PARAMETERS, None)):
        monkeypatch.setattr(doctor, "_free_memory", lambda: host)  # noqa: B023
        monkeypatch.setattr(doctor, "_measure", measured)
        assert examine(node={"device": "cpu", "dtype": "bfloat16"})[1].get("memory") == level


def test_a_model_beside_itself_has_to_fit(examine, small_gpu, tmp_path):
    rows = tmp_path / "train.jsonl"
    rows.write_text('{"prompt": "1 + 1 = ", "answer": "2"}\n')
    node = {"device": "cuda:1", "dtype": "bfloat16", "data": str(rows)}
    run = {"seedflood": {"estimate": "gradient"}, "objective": {"task": "reward", "score": "exact", "kl": 0.1}}
    small_gpu(3 * PARAMETERS)
    code, levels, texts = examine(run, node)
    assert (code, levels["memory"]) == (ExitCode.CONFIG, "bad")
    assert texts["memory"].partition(": ")[2] == f"set kl = 0 in [run.objective], or {SMALLER}"
    small_gpu(4 * PARAMETERS)
    assert "memory" not in examine(run, node)[1]


def test_a_gpu_that_a_running_node_uses_is_not_judged(examine, small_gpu, tmp_path):
    state = tmp_path / "state"
    make_folder(state)
    small_gpu(1000)
    with (state / LOCK_FILE).open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        _, _, texts = examine(node={"device": "cuda:1", "state": str(state)})
    assert texts["model"] == "measured"


def test_an_export_is_tried_before_the_run_and_leaves_nothing(examine, tmp_path, monkeypatch):
    code, levels, texts = examine(node={"export": str(tmp_path / "new/out")})
    assert (code, levels["export"]) == (0, "ok"), texts
    assert os.listdir(tmp_path) == ["peers.toml"]
    monkeypatch.setattr(models.shutil, "disk_usage", lambda place: shutil._ntuple_diskusage(10**9, 0, 10**8 + 1))
    assert examine(node={"export": str(tmp_path / "out")})[1]["export"] == "ok"
    monkeypatch.setattr(models.AutoTokenizer, "from_pretrained", Broken.from_pretrained)
    code, levels, texts = examine(node={"export": str(tmp_path / "out")})
    assert (code, levels["export"]) == (ExitCode.CONFIG, "bad")
    assert "its files cannot be read again (no luck)" in texts["export"]


class Broken:
    """Tokenizers can be read from base models alone."""

    own = models.AutoTokenizer.from_pretrained

    @classmethod
    def from_pretrained(cls, place, **options):
        if ".out." in str(place):
            raise ValueError("no luck")
        return cls.own(place, **options)


class Clock:
    """It is 1970."""

    perf_counter, strftime, gmtime = time.perf_counter, time.strftime, time.gmtime

    @staticmethod
    def time():
        return 0.0


def test_a_peer_is_tried_by_the_proxy_that_links_take_and_by_no_other(examine, secured_port, monkeypatch):
    monkeypatch.setenv("http_proxy", "http://127.0.0.1:9")
    address = f"127.0.0.1:{secured_port}"
    peer = f'[[peers]]\naddress = "{address}"\n'
    relay = {"role": "relay", "proxy": "http://127.0.0.1:9"}
    assert examine(node=relay, text=peer)[2]["peer"] == f"{address} answers"  # this machine needs no proxy
    code, _, texts = examine(node=relay, text='[[peers]]\naddress = "peer.example:7070"\n')
    assert (code, texts["peer"]) == (75, "nobody listens at 127.0.0.1:9: correct [node] proxy, or take it out.")
