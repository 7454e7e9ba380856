"""`seedflood evaluate | generate | export | replay`: what a node has learned, whether it runs or not, and models."""

import os
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

import typer

from seedflood.cli.options import (
    DATA_HELP,
    TASK_HELP,
    JsonOption,
    PeersOption,
    SetOption,
    facts_read,
    parse_overrides,
    say,
    show_facts,
    with_guess,
)
from seedflood.config import (
    EMBEDDED,
    READ_BY,
    ObjectiveSettings,
    Settings,
    check_folders,
    divide_data,
    load_settings,
    merge,
)
from seedflood.errors import ConfigError, DataError, DivergenceError, UsageError
from seedflood.training.card import named_objective

AdapterOption = Annotated[
    Path | None, typer.Option("--adapter", metavar="FOLDER", help="Of --model: with this LoRA adapter (export, PEFT).")
]

SILENT_SECONDS = 5.0
"""How long a command may work before it says what it does."""


@contextmanager
def announced(what: str, seconds: float = SILENT_SECONDS) -> Iterator[threading.Timer]:
    """Says on stderr what is done within, if it takes longer than this."""
    timer = threading.Timer(seconds, say, (f"{what} ...",), {"err": True})
    timer.daemon = True
    timer.start()
    try:
        yield timer
    finally:
        timer.cancel()


def evaluate(
    peers: Annotated[Path | None, typer.Option(help="Evaluate what the node of this peers.toml has learned.")] = None,
    model: Annotated[str | None, typer.Option(help="Evaluate a model: folder, hub name or embedded.")] = None,
    adapter: AdapterOption = None,
    task: Annotated[
        str | None,
        typer.Option(help=f"Default: of the run; with --model by its card, or by the rows. {TASK_HELP}"),
    ] = None,
    data: Annotated[
        str | None,
        typer.Option(help=f"{DATA_HELP}. All rows of a single file, or of a single split (ROWS#test), count."),
    ] = None,
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Evaluates any model, or what a node has learned, on the validation rows or on a file of your own.

    Prints accuracy and loss, and for plain texts the perplexity.

    Examples:

        seedflood evaluate --model ./opt-125m --task sst2 --data ./sst2

        seedflood evaluate --model ./opt-125m --adapter ./adapter --task sst2

        seedflood evaluate --peers peers.toml --data ./test.jsonl
    """
    flags = parse_overrides(overrides)
    file = Path(data) if data is not None and Path(data).is_file() else None
    if model == EMBEDDED and task != "prompted":
        flags = merge({"run": {"objective": {"task": task or EMBEDDED}}}, flags)
    elif model is not None:
        flags = _with_card(flags, task, data, adapter or Path(model))
    elif file is not None:
        flags = with_guess(flags, task, None)
    if data is not None and file is None:
        place, splits = divide_data(data)
        flags.setdefault("node", {})["data"] = f"{place}#{splits[0]},{splits[0]}" if len(splits) == 1 else data
    of_run, has_state = flags.get("run", {}), peers is not None
    if has_state and file is not None:  # its rows may be read otherwise than those of the run
        flags = {**flags, "run": {key: value for key, value in of_run.items() if key != "objective"}}
    settings = _settings_of(peers, model, flags, adapter)
    read_as = _settings_of(peers, model, {**flags, "run": of_run}, adapter)
    if file is not None and read_as.run.objective.task == "own":  # what its own rows are, scripts alone know
        of_run = with_guess({"run": of_run}, None, data)["run"]
        read_as = _settings_of(peers, model, {**flags, "run": of_run}, adapter)
    if file is None:
        check_folders(settings)

    from seedflood.offline.learned import evaluate_any

    with announced(f"evaluating {model or settings.node.name}"):
        result, steps = evaluate_any(settings, has_state=has_state, file=file, adapter=adapter, read_as=read_as.run)
    of_adapter = {} if adapter is None else {"adapter": str(adapter)}
    rows = {} if data is None else {"data": data, **_how_read(read_as.run.objective)}
    read = of_adapter | rows | ({} if steps is None else {"steps": steps})
    facts = {**facts_read(settings, has_state=has_state), **read, **result.rounded(), **result.counts()}
    show_facts(facts, as_json=as_json)


def _with_card(flags: dict[str, Any], task: str | None, data: str | None, folder: Path) -> dict[str, Any]:
    """The overrides of a run, and with them how the rows are read: as somebody says, else as the card of the model in
    the folder does, if they can be, else as is guessed."""
    given = flags.get("run", {}).get("objective", {})
    of_card = named_objective(folder) if task is None and not given.keys() & READ_BY else {}
    if data is None and task is None and "task" not in {**of_card, **given}:
        raise UsageError("name rows with --data, or with --task a task that has its own, as sst2.")
    if of_card:
        with suppress(ConfigError, DataError):
            return with_guess(merge({"run": {"objective": of_card}}, flags), None, data)
    return with_guess(flags, task, data if task in (None, "prompted", "reward") else None)


def _how_read(objective: ObjectiveSettings) -> dict[str, Any]:
    """What was set, or guessed, of the rows: figures of the same rows differ by it."""
    settings = {"task": objective.task, "template": objective.template, "label_column": objective.label_column}
    words = objective.label_words and ", ".join(objective.label_words)
    return {name: value for name, value in (settings | {"label_words": words}).items() if value is not None}


def generate(
    prompt: Annotated[str | None, typer.Argument(help="What to write on from; without it, stdin is read.")] = None,
    peers: Annotated[Path | None, typer.Option(help="Take what the node of this peers.toml has learned.")] = None,
    model: Annotated[str | None, typer.Option(help="Take a model: folder, hub name or embedded.")] = None,
    adapter: AdapterOption = None,
    max_new_tokens: Annotated[int, typer.Option(min=1, help="How many tokens at most.")] = 128,
    temperature: Annotated[float, typer.Option(min=0.0, help="Of the draws; 0 takes the most likely token.")] = 0.0,
    seed: Annotated[int | None, typer.Option(help="Of the draws; without it, each time another.")] = None,
    chat: Annotated[bool, typer.Option("--chat", help="Wrap the prompt in the model's chat template.")] = False,
    overrides: SetOption = None,
) -> None:
    """Writes text on from a prompt, with any model, or with what a node has learned, also while it runs.

    The text goes to stdout while it is made. After how many steps of the run it was written stands on stderr.

    Examples:

        seedflood generate --model ./opt-125m-sst2 "a gripping film . it was"

        seedflood generate --peers peers.toml --temperature 0.8 < prompt.txt
    """
    settings = _settings_of(peers, model, parse_overrides(overrides), adapter)
    text = _read_prompt(prompt)
    check_folders(settings)

    from seedflood.offline.learned import load
    from seedflood.training.generation import Wish, write_on

    with announced(f"loading {model or settings.node.name}"):
        base, steps = load(settings, has_state=model is None, adapter=adapter)
    if steps is not None:
        say(f"{settings.node.name} after {steps} of {settings.run.steps} steps:", err=True)
    wish = Wish(max_new_tokens, temperature, seed, chat)
    write_on(base, text, wish, partial(say, nl=False))
    say()


def export(
    output: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a Hugging Face model with its tokenizer here.")
    ] = None,
    adapter: Annotated[
        Path | None, typer.Option(metavar="FOLDER", help="Write a LoRA adapter here, which PEFT loads.")
    ] = None,
    rank: Annotated[
        int | None, typer.Option(min=1, max=512, help="Greatest rank of the adapter (512, or what is exact).")
    ] = None,
    linear_only: Annotated[
        bool, typer.Option("--linear-only", help="Adapter without norms, biases and embeddings, as vLLM wants it.")
    ] = False,
    dtype: Annotated[Literal["float32", "bfloat16"], typer.Option(help="Numbers of the model.")] = "float32",
    peers: PeersOption = Path("peers.toml"),
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Writes what a node has learned as a model, or as a LoRA adapter of its base model.

    Base model and journal in, folder out; the node may run, and does not notice. The adapter is exact unless `left_out`
    is above 0: that is the part of the change which a smaller rank, or --linear-only, leaves out.

    Examples:

        seedflood export --peers peers.toml --output ./opt-125m-sst2

        seedflood export --peers peers.toml --adapter ./sst2-adapter
    """
    if (output is None) == (adapter is None):
        raise UsageError("name either --output, for a model, or --adapter.")
    if adapter is None and (rank is not None or linear_only):
        raise UsageError("--rank and --linear-only are of an adapter; write one with --adapter FOLDER.")
    if adapter is not None and dtype != "float32":
        raise UsageError("--dtype is of a model: an adapter is written in float32, for it is small.")
    settings = load_settings(peers, parse_overrides(overrides))
    check_folders(settings)

    from seedflood.offline.exporting import export_adapter, export_model

    with announced(f"rebuilding what {settings.node.name} has learned from its journal"):
        if output is not None:
            made = export_model(settings, output, dtype)
        else:
            assert adapter is not None
            made = export_adapter(settings, adapter, rank=rank, is_linear_only=linear_only)
    facts = {**facts_read(settings), **made}
    show_facts(facts, as_json=as_json)


def replay(
    peers: PeersOption = Path("peers.toml"),
    overrides: SetOption = None,
    as_json: JsonOption = False,
) -> None:
    """Rebuilds what a node has learned from base model and journal alone, and checks it.

    The checksum of every record and every signature must be right, and the digest must be the one that the node printed
    at its end. Exits with 70 if not.

    Example:

        seedflood replay --peers peers.toml
    """
    settings = load_settings(peers, parse_overrides(overrides))
    check_folders(settings)

    from seedflood.offline.learned import replay as replay_journal

    with announced(f"replaying the journal of {settings.node.name}"):
        replayed = replay_journal(settings)
    facts = {**facts_read(settings), **replayed.facts()}
    show_facts(facts, as_json=as_json)
    if not replayed.is_sound:
        raise DivergenceError(f"the journal in {settings.node.state} is not what the node applied; see above.")


def _settings_of(peers: Path | None, model: str | None, flags: dict[str, Any], adapter: Path | None) -> Settings:
    """Of a model, or of a node. Raises ConfigError or UsageError."""
    if (peers is None) == (model is None):
        raise UsageError("name either --peers or --model: what a node has learned, or any model.")
    if adapter is not None and model is None:
        raise UsageError("--adapter goes with --model: name the base model that the adapter is of.")
    if peers is None:
        return load_settings(None, merge(flags, {"run": {"model": model}}))
    return load_settings(peers, flags)


def _read_prompt(prompt: str | None) -> str:
    """The argument, or stdin without its last line break. Raises UsageError."""
    if prompt is None and sys.stdin.isatty():
        raise UsageError("give a prompt as an argument, or on stdin.")
    given = os.fsencode(prompt) if prompt is not None else typer.get_binary_stream("stdin").read().removesuffix(b"\n")
    try:
        return given.decode()
    except UnicodeDecodeError:
        raise UsageError("the prompt is no text in UTF-8.") from None
