"""What needs a model but no network: evaluating any model, and rebuilding what a stopped node has learned."""

from seedflood.config import Settings
from seedflood.errors import ConfigError
from seedflood.process import JOURNAL_FILE
from seedflood.storage.journal import Journal
from seedflood.training.evaluation import Evaluation, evaluate
from seedflood.training.trainer import Trainer, load_base, load_rows


def evaluate_model(settings: Settings) -> Evaluation:
    """A model as it is. Raises ModelError or DataError."""
    base = load_base(settings.run, settings.node)
    return evaluate(base.model, load_rows(settings.run, settings.node, base))


def rebuild(settings: Settings) -> Trainer:
    """Base model plus journal: the replica of a node that is not running. Raises SeedfloodError."""
    path = settings.node.state / JOURNAL_FILE
    if not path.exists():
        raise ConfigError(f"{path} does not exist; name the state folder of a node that ran, with [node] state.")
    trainer = Trainer(settings.run, settings.node)
    with Journal.open(path, settings.run.run_id(), trainer.base_digest) as journal:
        for bundle in journal.replay():
            trainer.apply(bundle.updates())
    trainer.complete()
    return trainer
