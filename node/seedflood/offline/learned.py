"""Evaluates any model, and rebuilds from its journal what a node has learned, whether it runs or not. No network is
needed.

A copy of the journal is read. In strict windows what a running node has received of a step is not applied before all of
it is there. So steps that are not complete are left out, and what is rebuilt is what all hosts had after the same
steps.
"""

import contextlib
import dataclasses
import itertools
import tempfile
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from seedflood.config import RunSettings, Settings
from seedflood.errors import ConfigError, JournalError
from seedflood.host.places import JOURNAL_FILE, read_result
from seedflood.identity import verify
from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.bundles import Bundle, Update, count_updates
from seedflood.protocol.seedflood.turns import Turns
from seedflood.storage.copying import copy_journal
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.training.evaluation import Evaluation, evaluate
from seedflood.training.files import read_file
from seedflood.training.loading import load_base, load_rows
from seedflood.training.models import BaseModel
from seedflood.training.rows import Splits
from seedflood.training.seedflood.trainer import Trainer
from seedflood.training.shards import Shard
from seedflood.training.tasks import task_of_rows

BATCH_BUNDLES = 1024
"""How many bundles are applied at once, so that they share what each call costs."""


@dataclass(frozen=True, slots=True)
class Replayed:
    """What a journal holds, and what it adds up to.

    bundles, updates: those that are in no sum of a closed epoch. wrong_signatures: bundles that are not signed by the
    member they name. digest: of what everything adds up to. result_digest: what the node printed at the end of its run;
    None if it has not reached the end.
    """

    bundles: int
    updates: int
    closed_epochs: int
    wrong_signatures: int
    digest: str
    result_digest: str | None

    @property
    def is_sound(self) -> bool:
        """Is everything there and signed, and is the digest the one that the node printed?"""
        return self.wrong_signatures == 0 and self.result_digest in (None, self.digest)

    def facts(self) -> dict[str, object]:
        return dataclasses.asdict(self) | {"is_sound": self.is_sound}


class Rebuilt(NamedTuple):
    """steps: what the node had learned in so many steps of the run."""

    trainer: Trainer
    steps: int


def evaluate_any(
    settings: Settings,
    *,
    has_state: bool,
    file: Path | None = None,
    adapter: Path | None = None,
    read_as: RunSettings | None = None,
) -> tuple[Evaluation, int | None]:
    """Evaluates a model as it is, with a LoRA adapter, or with what a node has learned (has_state): on the
    validation rows of the settings, or on all rows of a file, which are read by `read_as` if that is another run. Also
    returns after how many steps. Raises SeedfloodError."""
    if file is None and has_state:
        rebuilt = rebuild(settings)
        return rebuilt.trainer.evaluate(), rebuilt.steps
    table = None if file is None else read_file(file)
    (base, steps), run = load(settings, has_state=has_state, adapter=adapter), settings.run
    if table is None:
        task = load_rows(run, settings.node, base)
    else:
        rows, size = Splits(table, table), base.causal.vocabulary_size
        task = task_of_rows(read_as or run, base.tokenizer, rows, Shard(), size)
    return evaluate(base.causal, task), steps


def load(settings: Settings, *, has_state: bool, adapter: Path | None = None) -> tuple[BaseModel, int | None]:
    """The base model as it is, with a LoRA adapter, or with what a node has learned (has_state); and in how many steps
    it has. Raises SeedfloodError."""
    if not has_state:
        return load_base(settings.run, settings.node, adapter), None
    trainer, steps = rebuild(settings)
    return trainer.replica.base, steps


def rebuild(settings: Settings) -> Rebuilt:
    """Base model plus journal: the replica of a node that has stopped, or that runs. Raises SeedfloodError."""
    with _node(settings) as (trainer, journal):
        steps = read_result(settings.node.state).get("steps") or _complete_steps(settings.run, journal)
        _adopt_closed(trainer, journal)
        trainer.replica.replay([one for one in _updates(page) if one.step < steps] for page in _batches(journal))
    trainer.complete()
    return Rebuilt(trainer, steps)


def replay(settings: Settings) -> Replayed:
    """The same, but checks every signature and counts everything. Raises SeedfloodError."""
    count = updates = wrong = 0
    with _node(settings) as (trainer, journal):
        closed = _adopt_closed(trainer, journal)
        keys = {member.origin: member.public_key for member in journal.members()}
        run_id = settings.run.run_id()

        def checked() -> Iterator[list[Update]]:
            nonlocal count, updates, wrong
            for bundles in _batches(journal):
                count += len(bundles)
                updates += count_updates(bundles)
                wrong += sum(not _is_signed(bundle, run_id, keys) for bundle in bundles)
                yield _updates(bundles)

        trainer.replica.replay(checked())
    return Replayed(
        bundles=count,
        updates=updates,
        closed_epochs=closed,
        wrong_signatures=wrong,
        digest=trainer.digest().hex(),
        result_digest=_result_digest(settings.node.state),
    )


def _complete_steps(run: RunSettings, journal: BundleJournal) -> int:
    """How many steps are there with all that counts. In strict windows no host is more than `delay` rounds and its
    present one, or two turns, ahead of another, so who is has left. With `participants` the last two turns may be left
    out. In bounded windows everything counts."""
    settings = run.seedflood
    lasts = [journal.last_step(member.origin) for member in journal.members()]
    foremost = max(lasts, default=-1)
    if settings.window == "strict":
        turns = Turns(settings.turn_rounds(run.clients), settings.local_steps)
        reach = (settings.delay + 1) * settings.local_steps + turns.spread
        return min((last for last in lasts if last >= foremost - reach), default=-1) + 1
    return foremost + 1


@contextlib.contextmanager
def _node(settings: Settings) -> Iterator[tuple[Trainer, BundleJournal]]:
    """A trainer with the base model, and a copy of the node's journal. Raises SeedfloodError."""
    path = settings.node.state / JOURNAL_FILE
    if settings.run.mode != "seedflood":
        kept = settings.node.export
        advice = "set [node] export and start the node; it writes a model when its run ends, or has ended"
        if kept is not None and kept.exists():
            advice = f"name the model that it has ended with, --model {kept}"
        mode = settings.run.mode
        raise ConfigError(f'the journal of a node with mode = "{mode}" does not hold what it has learned: {advice}.')
    if not path.exists():
        raise ConfigError(
            f"{path} does not exist: this node has learned nothing in run {settings.run.name}. Name the state folder "
            "of a node that ran, with [node] state."
        )
    trainer = Trainer(settings.run, settings.node)
    run_id, period = settings.run.run_id(), settings.run.seedflood.refresh_period
    with tempfile.TemporaryDirectory(prefix="seedflood-") as folder:
        copy = copy_journal(path, Path(folder))
        try:
            opened = BundleJournal.open(copy, run_id, trainer.base_digest, refresh_period=period)
        except ConfigError as error:
            raise ConfigError(str(error).replace(str(copy), str(path))) from None
        with opened as journal:
            if journal.damaged is not None:
                raise JournalError(
                    f"the journal {path} was damaged, so it does not hold what was learned; start the node, and it "
                    "pulls that from its neighbours"
                )
            yield trainer, journal


def _adopt_closed(trainer: Trainer, journal: BundleJournal) -> int:
    """Applies the sums of closed epochs; returns how many there are."""
    count = 0
    for closed in journal.closed_epochs():
        trainer.replica.adopt(closed.epoch, closed.coefficients, ())
        count += 1
    return count


def _batches(journal: BundleJournal) -> Iterator[list[Bundle]]:
    bundles = journal.replay()
    while batch := list(itertools.islice(bundles, BATCH_BUNDLES)):
        yield batch


def _updates(bundles: Iterable[Bundle]) -> list[Update]:
    return [update for bundle in bundles for update in bundle.updates()]


def _is_signed(bundle: Bundle, run_id: bytes, keys: dict[OriginId, bytes]) -> bool:
    """Did its origin sign this bundle? No, if no statement has the origin's key."""
    key = keys.get(bundle.origin)
    return key is not None and verify(key, bundle.signed_bytes(run_id, key), bundle.signature)


def _result_digest(state: Path) -> str | None:
    digest = read_result(state).get("digest")
    return digest if isinstance(digest, str) else None
