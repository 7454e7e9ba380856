"""What follows a prompt is learned, token by token, and the token that ends a text."""

import pytest
import torch
from marked_texts import tokenizer_of
from reference import VOCABULARY, make_task, tiny_base, tiny_model, tiny_settings, tiny_tokenizer
from tokenizers import processors
from torch.nn import functional
from transformers import AutoTokenizer

from seedflood.cluster.display import understood
from seedflood.errors import DataError
from seedflood.training.causal import CausalModel
from seedflood.training.encoding import TextEncoder
from seedflood.training.evaluation import evaluate
from seedflood.training.formats import CompletionFormat, choose_format
from seedflood.training.objectives.batches import MarkedBatch
from seedflood.training.objectives.language_modelling import LanguageModelling
from seedflood.training.rows import Row, rows_in_memory
from seedflood.training.seedflood.replica import Replica

ROWS = [{"prompt": f"a film {'a b c d e '[: 2 * n]}", "completion": f"was {word}"} for n in range(5) for word in "abcd"]


def encoder_of(merges=(), length_max=99, form=None):
    return TextEncoder(tokenizer_of(None, merges), form or CompletionFormat(), length_max)


def shown(encoder, **columns):
    (example,) = encoder.encode(rows_in_memory([columns], "rows"))
    return encoder.show(example)


def test_what_follows_the_prompt_is_learned_and_the_end_of_the_text():
    assert shown(encoder_of(), prompt="2+2= ", completion="4") == "2+2= ⟦4</s>⟧"


def test_of_a_tokenizer_without_an_end_of_texts_it_is_told_that_a_model_learns_none():
    encoder = encoder_of()
    assert not encoder.is_endless
    encoder.tokenizer.eos_token = None
    task = make_task(tiny_settings(task="completion"), encoder.tokenizer, CompletionFormat(), ROWS, ROWS)
    assert "will not learn to end a text" in understood(task.describe())


def test_a_token_on_both_sides_of_the_border_is_learned():
    assert shown(encoder_of([" 4"]), prompt="2+2= ", completion="4") == "2+2=⟦ 4</s>⟧"


def test_words_of_several_bytes_stay_whole():
    assert shown(encoder_of(), prompt="sag: ", completion="schön 😀") == "sag: ⟦schön 😀</s>⟧"


def test_a_space_at_the_border_belongs_to_its_side(shared):
    encoder = TextEncoder(AutoTokenizer.from_pretrained(shared / "models/tiny-opt"), CompletionFormat(), 99)
    assert shown(encoder, prompt="it was", completion=" good ").endswith("it was⟦ good </s>⟧")
    assert "it was⟦  good" in shown(encoder, prompt="it was", completion="  good")


def test_a_space_that_a_tokenizer_places_nowhere_belongs_to_its_side():
    encoder = encoder_of()
    encoder.tokenizer.backend_tokenizer.post_processor = processors.ByteLevel(trim_offsets=True)
    assert shown(encoder, prompt="it was ", completion="good ") == "it was ⟦good </s>⟧"
    assert shown(encoder, prompt="it was", completion=" good ") == "it was⟦ good </s>⟧"


def test_the_prompt_may_be_a_template_and_the_answer_in_any_column():
    form = choose_format(
        tiny_settings(task="completion", template="{question}\nA:", label_column="answer").objective, {}
    )
    assert shown(encoder_of(form=form), question="2+2?", answer=" 4") == "2+2?\nA:⟦ 4</s>⟧"


def test_nothing_in_one_of_several_columns_of_the_prompt_counts_as_empty():
    form = CompletionFormat("{instruction}\n{input}\n", "output")
    assert shown(encoder_of(form=form), instruction="add", input=None, output="3") == "add\n\n⟦3</s>⟧"
    with pytest.raises(DataError, match='nothing in column "output"'):
        shown(encoder_of(form=form), instruction="add", input="1 and 2", output=None)


@pytest.mark.parametrize(
    ("length", "text"),
    [(12, "a question⟦b</s>⟧"), (9, "uestion⟦b</s>⟧"), (8, "estion⟦b</s>⟧")],
)
def test_a_long_prompt_loses_its_beginning(length, text):
    encoder = encoder_of(length_max=length)
    (example,) = encoder.encode(rows_in_memory([{"prompt": "a question", "completion": "b"}], "rows"))
    assert encoder.show(example) == text
    assert example.is_cut is (length < 12)


def test_a_long_answer_loses_its_end():
    assert shown(encoder_of(length_max=8), prompt="ab", completion="c" * 20) == "b⟦ccccccc⟧"


def test_the_token_that_begins_every_text_is_kept_and_not_learned(shared):
    tokenizer = AutoTokenizer.from_pretrained(shared / "models/tiny-opt")
    beginning = processors.TemplateProcessing("</s> $A", special_tokens=[("</s>", tokenizer.bos_token_id)])
    tokenizer.backend_tokenizer.post_processor = beginning
    encoder = TextEncoder(tokenizer, CompletionFormat(), 12)
    for prompt in ("it", "it is " * 20):
        (example,) = encoder.encode(rows_in_memory([{"prompt": prompt, "completion": " good"}], "rows"))
        assert example.tokens[0] == tokenizer.bos_token_id
        assert not example.is_trained[0]
        assert len(example.tokens) <= 12


def test_a_row_without_an_answer_is_refused_before_anything_is_trained():
    with pytest.raises(DataError, match='rows, line 1: nothing in column "completion"'):
        encoder_of().check(Row({"prompt": "a", "completion": " "}, "rows", 1))


def test_a_row_of_other_columns_is_told_with_what_it_has():
    with pytest.raises(DataError, match=r'no column "prompt" \(columns: question, answer\)'):
        encoder_of().check(Row({"question": "a", "answer": "b"}, "rows", 1))


TOKENS_BT = torch.randint(VOCABULARY, (3, 9), generator=torch.Generator().manual_seed(1))
IS_TRAINED_BT = torch.tensor(
    [[0, 0, 1, 1, 0, 1, 0, 0, 0], [1, 1, 0, 0, 0, 0, 0, 0, 0], [0] * 8 + [1]], dtype=torch.bool
)
BATCH = MarkedBatch(TOKENS_BT, torch.tensor([6, 3, 9]), IS_TRAINED_BT)


def test_the_loss_is_that_of_the_marked_tokens_alone():
    module, objective = tiny_model("llama"), LanguageModelling()
    with torch.no_grad():
        score = objective.measure(CausalModel(module), BATCH)
        logits = module(input_ids=TOKENS_BT).logits
    places = [(0, 2), (0, 3), (0, 5), (1, 1), (2, 8)]
    expected = sum(float(functional.cross_entropy(logits[row, at - 1], TOKENS_BT[row, at])) for row, at in places)
    assert float(score.minimised_sums) == pytest.approx(expected, rel=1e-5)
    assert int(score.count_P[0]) == objective.count(BATCH) == len(places)


def test_a_batch_in_pieces_keeps_its_marks():
    model, objective = CausalModel(tiny_model("opt")), LanguageModelling()
    whole = objective.measure(model, BATCH)
    parts = [objective.measure(model, piece) for piece in BATCH.split(1)]
    for name, sum_P in whole.sums.items():
        torch.testing.assert_close(sum(part.sums[name] for part in parts), sum_P, rtol=1e-5, atol=1e-5)
    assert sum(int(part.count_P[0]) for part in parts) == int(whole.count_P[0])


def task_of(**changes):
    settings = tiny_settings(task="completion", batch_size=4, **changes)
    form = choose_format(settings.objective, {})
    return settings, make_task(settings, tiny_tokenizer(), form, ROWS, ROWS[:5])


@pytest.mark.parametrize("family", ["opt", "llama", "gemma3"])
@pytest.mark.parametrize("estimate", ["two-sided", "gradient"])
def test_every_estimate_learns_it(family, estimate):
    settings, task = task_of(estimate=estimate)
    replica = Replica(tiny_base(family), settings)
    batch = task.batch(0, 0)
    if estimate == "gradient":
        slopes = replica.measure_gradient(0, task.objective, batch)
        assert slopes.loss == pytest.approx(replica.measure_gradient(0, task.objective, batch, micro_batch=1).loss)
    else:
        assert replica.measure(0, 7, task.objective, batch).is_finite
    assert set(evaluate(replica.causal, task).figures) == {"perplexity", "loss", "accuracy"}


def test_the_live_model_measures_what_the_plain_one_does():
    settings, task = task_of(estimate="gradient")
    plain, batch = tiny_base("gpt2"), task.batch(0, 0)
    loss = task.objective.measure(plain.causal, batch).values()[0]
    replica = Replica(tiny_base("gpt2"), settings)
    assert replica.measure_gradient(0, task.objective, batch).loss == pytest.approx(loss, rel=1e-5)
    assert evaluate(replica.causal, task).loss == pytest.approx(evaluate(plain.causal, task).loss, rel=1e-5)


def test_numbers_are_texts_and_what_was_said_before_is_written_line_by_line():
    form = CompletionFormat("{system}\n{history}{instruction}\n{input}\n", "output")
    told = shown(encoder_of(form=form), instruction="add", history=[["a", "b"]], system="s", output=4)
    assert told == "s\na\nb\nadd\n\n⟦4</s>⟧"


@pytest.mark.parametrize("end", ["</s>", "</s>\n"])
def test_an_end_that_an_answer_brings_is_learned_once(end):
    assert shown(encoder_of(), prompt="2+2= ", completion="4" + end) == "2+2= ⟦4</s>⟧"


def test_a_beginning_that_a_prompt_brings_stands_there_once():
    encoder = encoder_of()
    start = encoder.tokenizer.bos_token_id
    encoder.tokenizer.backend_tokenizer.post_processor = processors.TemplateProcessing(
        "<s> $A", special_tokens=[("<s>", start)]
    )
    assert shown(encoder, prompt="<s>2+2= ", completion="4") == "<s>2+2= ⟦4</s>⟧"


def test_a_completion_that_is_marked_is_left_out_and_counted():
    rows = [*ROWS, {**ROWS[0], "train": False}, {**ROWS[1], "more": 1}]
    told = make_task(tiny_settings(task="completion"), tiny_tokenizer(), CompletionFormat(), rows, ROWS).describe()
    assert (told["rows"], told["unused"]) == (len(ROWS) + 1, ["more"])
    assert "; rows left out, as blank or marked not to be learned: 1" in understood(told)


def test_an_answer_that_is_nothing_but_the_end_of_a_text_is_refused(shared):
    tokenizer = AutoTokenizer.from_pretrained(shared / "models/tiny-opt")
    for encoder in (encoder_of(), TextEncoder(tokenizer, CompletionFormat(), 99)):
        with pytest.raises(DataError, match="line 1: has nothing to learn"):
            encoder.encode(
                rows_in_memory([{"prompt": "a question", "completion": encoder.tokenizer.eos_token}], "rows")
            )
