"""Texts that are written before their round: by whom, for which steps, and when they are not used."""

from itertools import islice

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from seedflood import embedded
from seedflood.config import NodeSettings, RunSettings
from seedflood.protocol.seedflood.bundles import Update
from seedflood.training.objectives.reward import Written
from seedflood.training.seedflood import trainer as module
from seedflood.training.seedflood.compression import decode_coefficients
from seedflood.training.seedflood.rewarded import Texts, write_texts
from seedflood.training.seedflood.trainer import Trainer

pytestmark = pytest.mark.usefixtures("drawn_once")

RUN = {
    "task": "reward",
    "estimate": "gradient",
    "max_new_tokens": 2,
    "batch_size": 2,
    "steps": 12,
    "refresh_period": 4,
    "learning_rate": 0.004,
    "ahead": 2,
    "score": "regex:^(even|the)",
}


@pytest.fixture(scope="module")
def rows(tmp_path_factory):
    """Beginnings of reviews, after which the model writes "but" or "even" (though) about as often."""
    texts = (row["text"].partition(" , ") for row in embedded.texts("train"))
    prompts = islice((f"{head} ," for head, _, rest in texts if rest.startswith(("but", "even"))), 24)
    path = tmp_path_factory.mktemp("rows") / "rows.jsonl"
    path.write_text("".join(f'{{"prompt": "{prompt}"}}\n' for prompt in prompts))
    return str(path)


@pytest.fixture
def make(rows):
    def make_trainer(node=None, **changes):
        settings = NodeSettings(**{"data": rows, "device": "cpu", "dtype": "float32", "threads": 1, **(node or {})})
        return Trainer(RunSettings.of(**{**RUN, **changes}), settings)

    return make_trainer


def advance(trainer, step, count=1):
    probes = trainer.measure(1, step, count).probes
    trainer.replica.apply([Update(1, at, told) for at, told in enumerate(probes, step)])
    return probes


def tokens(texts):
    return None if texts.written.batch is None else texts.written.batch.tokens_BT.tolist()


def test_texts_ahead_are_those_of_the_replica_that_stood_there_also_when_an_epoch_has_begun_since(make):
    trainer, older = make(refresh_period=2), make(ahead=0)
    told = [trainer.measure(1, 0, 1).probes, older.measure(1, 0, 1).probes]
    assert told[0] == told[1], "the first texts are never early"
    assert [trainer.write_ahead(1, 0) for _ in range(3)] == [True, True, False]
    for step in (0, 1):
        trainer.replica.apply([Update(1, step, *told[0])])
    trainer.replica.open_epoch(1)
    task = older.task
    expected = [write_texts(older.replica, task.objective, task.batch(1, step), (1, step)) for step in (1, 2)]
    assert [tokens(trainer._early[step]) for step in (1, 2)] == [tokens(one) for one in expected]
    now = [write_texts(trainer.replica, task.objective, task.batch(1, step), (1, step)) for step in (1, 2)]
    assert [tokens(one) for one in now] != [tokens(one) for one in expected], "the replica has learned since"
    assert trainer.measure(1, 2, 1).figures["texts_rounds_old"] == 2


@pytest.mark.parametrize("node", [{}, {"dtype": "bfloat16"}, {"dtype": "int8"}])
def test_early_texts_teach_a_replica_that_has_not_changed_what_new_ones_teach(make, node):
    """But for rounding, which comes in between with a cache."""
    early, new = make(node), make(node, ahead=0)
    assert early.write_ahead(1, -1)
    slopes = []
    for trainer in (early, new):
        told = trainer.measure(1, 0, 1).probes
        trainer.replica.apply([Update(1, 0, *told)])
        slopes.append(torch.from_numpy(decode_coefficients(trainer.compression, *told)).double())
    assert float(torch.nn.functional.cosine_similarity(*slopes, dim=0)) > 0.98


def test_texts_of_a_run_that_has_gone_back_are_not_used(make):
    trainer, other = make(), make(ahead=0)
    assert advance(trainer, 0) == advance(other, 0)
    trainer.write_ahead(1, 0)
    trainer._early[1] = trainer._early[1]._replace(halvings=trainer.replica.halvings + 1)
    measured = trainer.measure(1, 1, 1)
    assert measured.probes == other.measure(1, 1, 1).probes
    assert "texts_rounds_old" not in measured.figures


def test_a_replica_that_is_made_again_writes_its_own_texts(make):
    trainer = make()
    told = advance(trainer, 0)
    trainer.write_ahead(1, 0)
    trainer.rebuild([], [[Update(1, 0, *told)]])
    assert "texts_rounds_old" not in trainer.measure(1, 1, 1).figures


def test_the_seconds_of_a_step_are_also_those_in_which_its_texts_were_written_before(make):
    trainer = make()
    trainer.write_ahead(1, 0)
    trainer._early[1] = trainer._early[1]._replace(seconds=1000.0)
    assert trainer.measure(1, 1, 1).seconds > 1000


def test_who_measures_again_what_another_origin_has_measured_does_not_take_its_own_texts(make):
    trainer = make()
    trainer.write_ahead(1, 0)
    assert "texts_rounds_old" not in trainer.measure_again(2, trainer.rows, 1, 1).figures


def test_origins_of_one_process_have_texts_of_their_own(make):
    trainer = make()
    trainer.write_ahead(1, 0)
    assert "texts_rounds_old" not in trainer.beside(trainer.node).measure(2, 1, 1).figures


@pytest.fixture(scope="module")
def counting(rows):
    """A trainer that writes nothing: of its texts only is known when they were written."""
    return Trainer(RunSettings.of(**RUN), NodeSettings(data=rows, device="cpu", threads=1))


@given(st.integers(0, 3), st.lists(st.tuples(st.integers(0, 2), st.integers(0, 9)), max_size=8))
def test_no_text_is_ever_used_that_is_older_than_it_may_be_and_only_so_many_are_kept(counting, ahead, course):
    """course: of each round, how many before it were slept through, and how much is written after it."""
    run = counting.run
    objective = run.objective.model_copy(update={"ahead": ahead})
    counting.run = run.model_copy(update={"objective": objective, "steps": 10})
    now, counting._early = 0, {}

    def note(replica, objective, prompts, place, rounds=0):
        return Texts(Written(None, 0.0, float(now), 0.0, 0.0, "", ""), rounds, 0, 0.0)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(module, "write_texts", note)
        step = -1
        for skipped, pieces in course:
            step += 1 + skipped
            if step >= 10:
                break
            early = counting._early.get(step)
            assert early is None or 1 <= step - early.written.reward == early.rounds <= ahead
            now = step
            written = [counting.write_ahead(1, step) for _ in range(pieces)]
            assert sum(written) <= ahead
            assert all(later < 10 for later in counting._early)
            assert len(counting._early) <= ahead
    counting.run = run
