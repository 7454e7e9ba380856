"""Journals of nodes that do not run: written by hand, with real signatures and the embedded model."""

import io
import json
import shutil
import tomllib
from dataclasses import replace
from itertools import islice
from pathlib import Path

import numpy
import pytest
import torch
from safetensors.torch import load_file

from seedflood import cli, embedded
from seedflood.cli.learned import announced
from seedflood.config import ObjectiveSettings, RunSettings, load_settings, spell
from seedflood.errors import ConfigError, ExitCode, JournalError
from seedflood.host.places import JOURNAL_FILE, RESULT_FILE
from seedflood.identity import Identity
from seedflood.offline.learned import rebuild, replay
from seedflood.protocol.frontier import Held
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.swarm.messages import Member
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.training.card import Learned, model_card
from seedflood.training.seedflood.compression import quantise
from seedflood.training.seedflood.trainer import Trainer

RUN = {"model": "embedded", "task": "embedded", "rank": 4, "refresh_period": 4, "steps": 12, "train_examples": 16}
STRICT = {**RUN, "window": "strict"}
GRADIENT = {**RUN, "estimate": "gradient"}
ORIGINS = [Identity.generate() for _ in range(2)]


@pytest.fixture(scope="module")
def run(request):
    return getattr(request, "param", RUN)


@pytest.fixture
def stopped(tmp_path, run):
    """Settings of a node that has stopped; its journal is to be filled."""
    return load_settings(
        None, {"run": RunSettings.place(run), "node": {"state": tmp_path, "device": "cpu", "threads": 1}}
    )


@pytest.fixture(scope="module")
def base(run):
    """Base model, to sum up and to name the journal."""
    settings = load_settings(None, {"run": RunSettings.place(run), "node": {"device": "cpu", "threads": 1}})
    return Trainer(settings.run, settings.node)


def signed(identity, unsigned, run_id):
    if isinstance(unsigned, Member):
        return replace(unsigned, signature=identity.sign(unsigned.signed_bytes(run_id)))
    return unsigned.with_signature(identity.sign(unsigned.signed_bytes(run_id, identity.public_key)))


def bundles_of(settings, base, steps=10):
    run_id, rng = settings.run.run_id(), numpy.random.default_rng(1)

    def tell(number, step):
        if settings.run.seedflood.estimate == "gradient":
            return quantise(base.compression, rng.normal(size=base.compression.values))[0]
        return 100 * number + step, 1 << 20

    return [
        signed(one, make_bundle(one.origin, step, (tell(number, step),)), run_id)
        for step in range(steps)
        for number, one in enumerate(ORIGINS)
    ]


def close_first_epoch(base, bundles):
    """What the journal would keep of it; `base` is as it was afterwards."""
    empty = base.replica.sum_epoch(0)
    base.replica.adopt(0, empty, [update for bundle in bundles if bundle.step < 4 for update in bundle.updates()])
    frontier = tuple(Held(origin, 4) for origin in sorted(one.origin for one in ORIGINS))
    closed = ClosedEpoch(0, frontier, base.replica.sum_epoch(0))
    base.replica.adopt(0, empty, ())
    return closed


def write(settings, base, bundles, closed=(), known=ORIGINS):
    run = settings.run
    members = [signed(one, Member(one.public_key, f"n{number}", 1), run.run_id()) for number, one in enumerate(known)]
    path = settings.node.state / JOURNAL_FILE
    with BundleJournal.open(
        path, run.run_id(), base.base_digest, refresh_period=run.seedflood.refresh_period
    ) as journal:
        journal.append(bundles, members, durable=True)
        for one in closed:
            journal.adopt(one)


@pytest.mark.parametrize("run", [RUN, GRADIENT], ids=["two-sided", "gradient"], indirect=True)
def test_a_replay_counts_verifies_and_adds_up(stopped, base):
    bundles = bundles_of(stopped, base)
    write(stopped, base, bundles)
    replayed = replay(stopped)
    assert (replayed.bundles, replayed.updates, replayed.closed_epochs) == (20, 20, 0)
    assert (replayed.wrong_signatures, replayed.result_digest, replayed.is_sound) == (0, None, True)
    assert replayed.digest == rebuild(stopped).trainer.digest().hex()


@pytest.mark.parametrize("run", [RUN, GRADIENT], ids=["two-sided", "gradient"], indirect=True)
def test_what_is_replayed_is_the_node_of_the_file_wherever_the_command_is_run_and_it_is_named(
    base, tmp_path, monkeypatch, capsys
):
    told = spell({"run": RunSettings.place(RUN), "node": {"device": "cpu", "threads": 1}})
    for name, steps in (("alpha", 3), ("gamma", 10)):
        path = tmp_path / name / "peers.toml"
        path.parent.mkdir()
        path.write_text(told.replace("[node]", f'[node]\nname = "{name}"'))
        settings = load_settings(path)
        settings.node.state.mkdir()
        write(settings, base, bundles_of(settings, base, steps))
    monkeypatch.chdir(tmp_path / "alpha")
    for command in (["replay"], ["export", "--output", str(tmp_path / "model")], ["evaluate"]):
        monkeypatch.setattr("sys.argv", ["seedflood", *command, "--peers", "../gamma/peers.toml", "--json"])
        with pytest.raises(SystemExit):
            cli.main()
        facts = json.loads(capsys.readouterr().out)
        assert (facts["node"], facts["state"]) == ("gamma", str(tmp_path / "gamma/seedflood-state"))
        assert (facts["model"], facts["data"]) == ("embedded", "embedded")
        assert facts.get("bundles", 20) == 20


def run_command(monkeypatch, capsys, *arguments):
    """(exit code, stdout, stderr)"""
    monkeypatch.setattr("sys.argv", ["seedflood", *arguments])
    with pytest.raises(SystemExit) as ended:
        cli.main()
    said = capsys.readouterr()
    return ended.value.code or 0, said.out, said.err


@pytest.fixture
def peers(base, tmp_path):
    """The file of a node that has stopped at the end of its run, and has learned much."""
    run = RunSettings.place({**RUN, "learning_rate": 0.02})
    path = tmp_path / "node" / "peers.toml"
    path.parent.mkdir()
    path.write_text(spell({"run": run, "node": {"device": "cpu", "threads": 1}}))
    settings = load_settings(path)
    settings.node.state.mkdir()
    write(settings, base, bundles_of(settings, base))
    (settings.node.state / RESULT_FILE).write_text(json.dumps({"result": {"loss_before": 0.7, "loss_after": 0.5}}))
    return str(path)


@pytest.mark.parametrize(("data", "rows"), [("#test", 40), ("#train,test", 40), ("/test.jsonl#test", 40), ("", 16)])
def test_a_split_that_is_named_is_evaluated_whole(monkeypatch, capsys, tmp_path, data, rows):
    for split, count in (("train", 64), ("test", 40)):
        texts = (json.dumps({"text": f"the film was good {place}"}) + "\n" for place in range(count))
        (tmp_path / f"{split}.jsonl").write_text("".join(texts))
    options = "--model", "embedded", "--task", "lm", "--data", f"{tmp_path}{data}"
    code, out, _ = run_command(monkeypatch, capsys, "evaluate", *options, "--json")
    facts = json.loads(out)
    assert (code, facts["rows"], facts["data"]) == (0, rows, f"{tmp_path}{data}")


@pytest.mark.parametrize("kind", ["output", "adapter"])
def test_what_is_exported_says_what_it_is_and_how_to_make_it_again(monkeypatch, capsys, peers, tmp_path, kind):
    folder = tmp_path / "exported"
    code, out, _ = run_command(monkeypatch, capsys, "export", "--peers", peers, f"--{kind}", str(folder), "--json")
    settings, card = load_settings(Path(peers)), (folder / "README.md").read_text()
    assert code == 0
    assert json.loads(out)["digest"] == replay(settings).digest
    assert f"| digest (equal on all hosts) | {replay(settings).digest} |" in card
    assert f"| run | {settings.run.run_id().hex()} |" in card
    assert "| training rows of this host | 16 |" in card
    assert "| loss after | 0.5 |" in card
    told = card.partition("```toml\n")[2].partition("```")[0]
    assert load_settings(None, tomllib.loads(told)).run.run_id() == settings.run.run_id()


def test_a_model_is_exported_in_half_precision_if_asked(monkeypatch, capsys, peers, tmp_path):
    for dtype in ("float32", "bfloat16"):
        folder = tmp_path / dtype
        run_command(monkeypatch, capsys, "export", "--peers", peers, "--output", str(folder), "--dtype", dtype)
    whole, half = (load_file(tmp_path / one / "model.safetensors") for one in ("float32", "bfloat16"))
    assert {str(one.dtype) for one in half.values()} == {"torch.bfloat16"}
    for name, weight in whole.items():
        torch.testing.assert_close(half[name], weight.to(torch.bfloat16), rtol=0, atol=0)
    assert json.loads((tmp_path / "bfloat16" / "config.json").read_text())["dtype"] == "bfloat16"


def test_what_a_narrow_adapter_lacks_is_told(monkeypatch, capsys, peers, tmp_path):
    facts = []
    for options in ([], ["--rank", "2"], ["--linear-only"]):
        asked = ["export", "--peers", peers, "--adapter", str(tmp_path / "adapter"), "--json", *options]
        facts.append(json.loads(run_command(monkeypatch, capsys, *asked)[1]))
    assert [one["rank"] for one in facts] == [12, 2, 12]
    assert [one["left_out"] > 0.01 for one in facts] == [False, True, True]
    assert ["norms and biases" in one.get("note", "") for one in facts] == [True, True, False]


@pytest.mark.parametrize(
    ("options", "code", "said"),
    [
        ([], ExitCode.USAGE, "name either --output"),
        (["--output", "a", "--adapter", "b"], ExitCode.USAGE, "name either --output"),
        (["--output", "a", "--rank", "3"], ExitCode.USAGE, "are of an adapter"),
        (["--adapter", "a", "--dtype", "bfloat16"], ExitCode.USAGE, "--dtype is of a model"),
        (["--adapter", "."], ExitCode.CONFIG, "choose a new folder"),
        (["--output", "."], ExitCode.CONFIG, "choose a new folder"),
        (["--adapter", "a", "--set", "node.state=none"], ExitCode.CONFIG, "does not exist"),
    ],
)
def test_an_export_that_cannot_be_is_one_sentence(monkeypatch, capsys, peers, tmp_path, options, code, said):
    monkeypatch.chdir(tmp_path)
    ended, out, err = run_command(monkeypatch, capsys, "export", "--peers", peers, *options)
    assert (ended, out) == (code, "")
    assert said in " ".join(err.split())
    assert len(err.splitlines()) == 1


def test_a_node_that_runs_is_exported_and_does_not_notice(monkeypatch, capsys, base, peers, tmp_path):
    settings = load_settings(Path(peers))
    path, run = settings.node.state / JOURNAL_FILE, settings.run
    period = run.seedflood.refresh_period
    with BundleJournal.open(path, run.run_id(), base.base_digest, refresh_period=period) as journal:
        before = sorted(settings.node.state.iterdir()), path.read_bytes()
        asked = ("export", "--peers", peers, "--adapter", str(tmp_path / "a"), "--json")
        code, out, _ = run_command(monkeypatch, capsys, *asked)
        assert (sorted(settings.node.state.iterdir()), path.read_bytes()) == before
        assert journal.append([make_bundle(1, 0, ((1, 1),), 0, bytes(64))], durable=True) == 1
    assert code == 0
    assert json.loads(out)["digest"] != bytes(32).hex()


@pytest.mark.parametrize(
    "run", [STRICT, {**STRICT, "estimate": "gradient"}], ids=["two-sided", "gradient"], indirect=True
)
def test_what_is_heard_of_a_step_that_is_not_complete_is_left_out(stopped, base):
    """Strict windows: the second host is one step behind. Two steps behind it can only have left."""
    bundles = bundles_of(stopped, base)
    write(stopped, base, bundles[:-1])  # the second host lacks step 9
    behind = rebuild(stopped)
    assert behind.steps == 9
    stopped.node.state.joinpath(JOURNAL_FILE).unlink()
    write(stopped, base, bundles[:-2])
    assert rebuild(stopped).trainer.digest() == behind.trainer.digest()
    stopped.node.state.joinpath(JOURNAL_FILE).unlink()
    write(stopped, base, [*bundles[:17], bundles[18]])  # it lacks steps 8 and 9
    assert rebuild(stopped).steps == 10


def test_a_run_that_has_ended_is_whole_though_a_host_left_shortly_before(stopped, base):
    write(stopped, base, bundles_of(stopped, base)[:-1])
    stopped.node.state.joinpath(RESULT_FILE).write_text(json.dumps({"result": {"steps": stopped.run.steps}}))
    assert rebuild(stopped).trainer.digest().hex() == replay(stopped).digest


def test_any_file_of_rows_is_evaluated_on_and_all_of_it(monkeypatch, capsys, peers, tmp_path):
    folder, adapter, file = str(tmp_path / "model"), str(tmp_path / "adapter"), tmp_path / "test.jsonl"
    run_command(monkeypatch, capsys, "export", "--peers", peers, "--output", folder)
    run_command(monkeypatch, capsys, "export", "--peers", peers, "--adapter", adapter)
    on_base = ["--model", "embedded", "--adapter", adapter]
    file.write_text("".join(json.dumps(row) + "\n" for row in islice(embedded.rows("validation"), 40)))
    figures = []
    for whose in (["--peers", peers], ["--model", folder, "--task", "embedded"], on_base, ["--model", "embedded"]):
        code, out, _ = run_command(monkeypatch, capsys, "evaluate", *whose, "--data", str(file), "--json")
        facts = json.loads(out)
        assert (code, facts["rows"], facts["data"]) == (0, 40, str(file))
        assert facts.get("adapter") == (adapter if whose is on_base else None)
        figures.append(facts["loss"])
    of_node, of_model, of_adapter, of_base = figures
    assert of_node == pytest.approx(of_model, abs=1e-5)
    assert of_node == pytest.approx(of_adapter, abs=1e-5)
    assert of_node != of_base


def test_the_task_of_a_file_is_guessed_by_its_columns_unless_it_is_said(monkeypatch, capsys, tmp_path):
    file = tmp_path / "test.csv"
    file.write_text("review,label\n" + "".join(f"the beer was {word},{word}\n" for word in ("cold", "warm") * 8))
    told = ["evaluate", "--model", str(embedded.MODEL_FOLDER), "--data", str(file), "--json"]
    code, out, _ = run_command(monkeypatch, capsys, *told)
    facts = json.loads(out)
    assert (code, facts["rows"]) == (0, 16)
    assert (facts["task"], facts["template"], facts["label_words"]) == ("prompted", "{review}\nLabel:", "cold, warm")
    prompted = ["evaluate", "--model", "embedded", "--task", "prompted", "--data", str(file), "--json"]
    assert run_command(monkeypatch, capsys, *prompted)[:2] == (
        code,
        out.replace(str(embedded.MODEL_FOLDER), "embedded"),
    )
    code, out, err = run_command(monkeypatch, capsys, *told, "--task", "sst2")
    assert (code, out) == (78, "")
    assert 'no column "sentence"' in err


@pytest.fixture
def learned_model(tmp_path):
    """With the card of a run that knew three words, and brackets in its prompts."""
    shutil.copytree(embedded.MODEL_FOLDER, tmp_path / "model")
    words = ("cold", "sour", "warm")
    run = RunSettings(
        objective=ObjectiveSettings(task="prompted", template="[INST] {review}[/INST]", label_words=words)
    )
    (tmp_path / "model/README.md").write_text(model_card(Learned(run, bytes(32), bytes(32), {}, {})))
    return tmp_path / "model"


@pytest.mark.parametrize("data", ["test.csv", "rows", "rows#test"])
@pytest.mark.parametrize(("column", "words"), [("review", "cold, sour, warm"), ("text", "cold, warm")])
def test_rows_are_read_as_the_card_of_a_model_says_if_they_can_be(
    monkeypatch, capsys, tmp_path, learned_model, data, column, words
):
    """Rows that lack a label would make it easier to be right."""
    (tmp_path / "rows").mkdir()
    monkeypatch.chdir(tmp_path)
    for name in ("test.csv", "rows/train.csv", "rows/test.csv", "rows/dev.csv"):
        rows = (f"the {name} beer {n} was {word},{word}\n" for n in range(4) for word in ("cold", "warm"))
        Path(name).write_text(f"{column},label\n" + "".join(rows))
    told = ["evaluate", "--model", str(learned_model), "--data", data, "--set", "run.objective.max_length=99"]
    code, out, _ = run_command(monkeypatch, capsys, *told, "--json")
    assert (code, json.loads(out)["label_words"], json.loads(out)["rows"]) == (0, words, 8)
    code, out, _ = run_command(monkeypatch, capsys, *told)
    assert (code, "[INST] {review}[/INST]" in out) == (0, column == "review")


def test_a_model_whose_card_tells_no_task_is_not_evaluated_on_what_nobody_named(monkeypatch, capsys, tmp_path):
    code, out, err = run_command(monkeypatch, capsys, "evaluate", "--model", str(embedded.MODEL_FOLDER))
    assert (code, out) == (ExitCode.USAGE, "")
    assert "name rows with --data, or with --task" in " ".join(err.split())
    shutil.copytree(embedded.MODEL_FOLDER, tmp_path / "model")
    run = RunSettings(objective=ObjectiveSettings(task="embedded"))
    (tmp_path / "model/README.md").write_text(model_card(Learned(run, bytes(32), bytes(32), {}, {})))
    code, out, _ = run_command(monkeypatch, capsys, "evaluate", "--model", str(tmp_path / "model"), "--json")
    assert (code, json.loads(out)["data"]) == (0, "embedded")


@pytest.mark.parametrize(
    ("text", "said"),
    [("", "has no rows"), ('{"label": 0}\n', "test.jsonl, line 1: no column"), ("{", "not valid JSON")],
)
def test_a_file_without_rows_of_the_task_is_one_sentence(monkeypatch, capsys, tmp_path, text, said):
    (tmp_path / "test.jsonl").write_text(text)
    monkeypatch.chdir(tmp_path)
    code, out, err = run_command(monkeypatch, capsys, "evaluate", "--model", "embedded", "--data", "test.jsonl")
    assert (code, out) == (ExitCode.CONFIG, "")
    assert said in " ".join(err.split())
    assert len(err.splitlines()) == 1


def test_a_node_and_the_model_and_the_adapter_that_it_exports_write_the_same(monkeypatch, capsys, peers, tmp_path):
    folder, adapter = str(tmp_path / "model"), str(tmp_path / "adapter")
    run_command(monkeypatch, capsys, "export", "--peers", peers, "--output", folder)
    run_command(monkeypatch, capsys, "export", "--peers", peers, "--adapter", adapter)
    base = ["--model", "embedded"]
    wish = ("--max-new-tokens", "40", "--temperature", "1", "--seed", "1")
    written = [
        run_command(monkeypatch, capsys, "generate", *whose, "the film was", *wish)
        for whose in (["--peers", peers], ["--model", folder], [*base, "--adapter", adapter], base)
    ]
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"the film was\n")))
    written.append(run_command(monkeypatch, capsys, "generate", "--peers", peers, *wish))
    assert {code for code, _, _ in written} == {0}
    of_node, of_model, of_adapter, of_base, of_stdin = (out for _, out, _ in written)
    assert of_node == of_model == of_adapter == of_stdin != of_base


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["a"], ExitCode.USAGE, "name either --peers"),
        (["a", "--model", "embedded", "--peers", "peers.toml"], ExitCode.USAGE, "name either --peers"),
        (["a", "--peers", "none.toml"], ExitCode.CONFIG, "none.toml does not exist"),
        (["a", "--model", "./none"], ExitCode.CONFIG, "none does not exist"),
        (["--model", "embedded"], ExitCode.USAGE, "no text in UTF-8"),
        (["a", "--peers", "peers.toml", "--adapter", "."], ExitCode.USAGE, "--adapter goes with --model"),
        (["a", "--model", "embedded", "--adapter", "."], ExitCode.CONFIG, "holds no adapter"),
        (["a", "--model", "embedded", "--chat"], ExitCode.USAGE, "no chat template"),
    ],
)
def test_a_text_that_cannot_be_written_on_is_one_sentence(monkeypatch, capsys, tmp_path, arguments, code, said):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(b"\xff")))
    ended, out, err = run_command(monkeypatch, capsys, "generate", *arguments)
    assert (ended, out) == (code, "")
    assert said in " ".join(err.split())
    assert len(err.splitlines()) == 1


def test_a_command_that_works_for_long_says_at_what(capsys):
    with announced("rebuilding it", seconds=0) as timer:
        timer.join()
    with announced("nothing that takes long"):
        pass
    assert capsys.readouterr().err == "rebuilding it ...\n"


def test_closed_epochs_stand_for_their_bundles(stopped, base):
    bundles = bundles_of(stopped, base)
    write(stopped, base, bundles)
    whole = replay(stopped)
    write(stopped, base, [], [close_first_epoch(base, bundles)])
    replayed = replay(stopped)
    assert (replayed.bundles, replayed.closed_epochs) == (12, 1)
    assert replayed.digest == whole.digest
    rebuilt = rebuild(stopped).trainer
    assert rebuilt.digest().hex() == whole.digest
    assert rebuilt.replica.epoch == 2


def test_bundles_that_nobody_signed_are_counted(stopped, base):
    bundles = bundles_of(stopped, base)
    altered = bundles[3]
    bundles[3] = make_bundle(altered.origin, altered.step, ((7, 8),), signature=altered.signature)
    write(stopped, base, bundles)
    replayed = replay(stopped)
    assert replayed.wrong_signatures == 1
    assert not replayed.is_sound


def test_bundles_of_an_origin_without_a_statement_are_counted(stopped, base):
    write(stopped, base, bundles_of(stopped, base), known=ORIGINS[:1])
    assert replay(stopped).wrong_signatures == 10


def test_a_journal_that_was_damaged_is_refused(stopped, base, tmp_path):
    write(stopped, base, bundles_of(stopped, base))
    path = tmp_path / JOURNAL_FILE
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 2])
    with pytest.raises(JournalError, match=r"was damaged, .* start the node"):
        replay(stopped)


@pytest.mark.parametrize("is_equal", [True, False])
def test_the_digest_is_compared_with_the_one_the_node_told(stopped, base, tmp_path, is_equal):
    write(stopped, base, bundles_of(stopped, base))
    told = replay(stopped).digest if is_equal else bytes(32).hex()
    (tmp_path / RESULT_FILE).write_text(json.dumps({"before": {}, "result": {"digest": told}}))
    facts = replay(stopped).facts()
    assert facts["result_digest"] == told
    assert facts["is_sound"] is is_equal


@pytest.mark.parametrize("text", ["", "[]", '{"before": {}, "result": null}', '{"result": {"digest": 5}}'])
def test_a_node_that_told_no_digest_is_compared_with_none(stopped, base, tmp_path, text):
    write(stopped, base, [])
    (tmp_path / RESULT_FILE).write_text(text)
    assert replay(stopped).result_digest is None


def test_a_journal_of_another_run_is_named_where_it_is(stopped, base):
    write(stopped, base, [])
    other = stopped.run.model_copy(update={"seed": 2})
    with pytest.raises(ConfigError, match=f"^{stopped.node.state / JOURNAL_FILE} belongs to run .*seedflood continue"):
        rebuild(stopped.model_copy(update={"run": other}))


def test_a_folder_without_a_journal_is_named(stopped):
    with pytest.raises(ConfigError, match="does not exist"):
        replay(stopped)


def test_a_journal_that_holds_nothing_learned_is_refused(tmp_path):
    run = RunSettings.place({"mode": "gasloc", "task": "lm"})
    with pytest.raises(ConfigError, match="export"):
        rebuild(load_settings(None, {"run": run, "node": {"state": tmp_path}}))
