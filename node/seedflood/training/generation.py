"""Text that a model writes on from a prompt, token after token, with a cache of keys and values."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import GenerationConfig, TextStreamer

from seedflood.errors import UsageError
from seedflood.training.chat import ChatEncoder, ask, end_tokens
from seedflood.training.encoding import Encoder, beginning_of
from seedflood.training.hub import first_line
from seedflood.training.models import BaseModel
from seedflood.training.objectives.reward import Reward
from seedflood.training.rows import Row
from seedflood.training.tasks import Task

Show = Callable[[str], None]
"""Is given each piece of text as soon as it is whole."""


SAMPLES, SAMPLE_TOKENS, SAMPLE_SECONDS = 3, 32, 10.0
"""How many texts are written before and after a run, and how long each may be."""


class Sample(NamedTuple):
    """A prompt of a validation row, what follows it there, and what a model has written in its place."""

    prompt: str
    wanted: str
    written: str


@dataclass(frozen=True, slots=True)
class Wish:
    """How to generate. tokens_max: of new tokens; the positions of the model may allow fewer. temperature: 0 takes the
    most likely token. seed: of the draws; None: another one each time. is_chat: the prompt is what a user says to the
    model, in the tokenizer's template, and its turn is written alone. seconds_max: None: as long as it takes."""

    tokens_max: int
    temperature: float = 0.0
    seed: int | None = None
    is_chat: bool = False
    seconds_max: float | None = None


def write_samples(base: BaseModel, task: Task) -> list[Sample]:
    """What a model writes after the prompts of the first validation rows; none in tasks without prompts and answers.
    Of rewarded texts with the reward."""
    if isinstance(objective := task.objective, Reward):
        asked = task.validation_examples[:SAMPLES]
        samples = []
        for example, answer in zip(asked, objective.answer(base.causal, asked), strict=True):
            prompt = example.source
            wanted = str(prompt.columns["answer"] or "")
            samples.append(Sample(prompt.text, wanted, f"{answer.text} [reward {answer.reward:g}]"))
        return samples
    examples = [one for one in task.validation_examples[:SAMPLES] if one.source.spans]
    wish = Wish(SAMPLE_TOKENS, is_chat=isinstance(task.encoder, ChatEncoder), seconds_max=SAMPLE_SECONDS)
    samples = []
    for row, example in zip(task.validation_rows, examples, strict=False):
        begin = example.is_trained.index(True)
        end = begin + (*example.is_trained[begin:], False).index(False)
        tokens = _asked_tokens(task.encoder, row, list(example.tokens[:begin]))
        pieces: list[str] = []
        if tokens:
            _continue(base, tokens, wish, pieces.append)
            wanted = base.tokenizer.decode(example.tokens[begin:end], skip_special_tokens=True)
            samples.append(Sample(base.tokenizer.decode(tokens), wanted, "".join(pieces)))
    return samples


def _asked_tokens(encoder: Encoder, row: Row, trained: list[int]) -> list[int]:
    """What a model is asked with for the first answer of a row. trained: what stands before it in the example, which is
    the same but for some chats: those are asked as a user would, however they are trained."""
    if not isinstance(encoder, ChatEncoder) or not trained:
        return trained
    asked = encoder.asked(row)
    tokens: list[int] = encoder.tokenizer(asked, add_special_tokens=False, verbose=False)["input_ids"]
    return tokens if len(tokens) < encoder.length_max else trained


def write_on(base: BaseModel, prompt: str, wish: Wish, show: Show) -> list[int]:
    """Shows what follows the prompt, up to the end of the text; returns its tokens. Raises UsageError for a prompt that
    this model cannot take."""
    tokens = _chat_tokens(base.tokenizer, prompt) if wish.is_chat else _tokens(base.tokenizer, prompt)
    return _continue(base, tokens, wish, show)


@torch.inference_mode()
def _continue(base: BaseModel, tokens: list[int], wish: Wish, show: Show) -> list[int]:
    room = wish.tokens_max
    if (positions := getattr(base.model.config, "max_position_embeddings", None)) is not None:
        room = min(room, positions - len(tokens))
    if room < 1:
        raise UsageError(f"the prompt has {len(tokens)} tokens, and the model has {positions} positions: shorten it.")
    if wish.seed is not None:
        torch.manual_seed(wish.seed)
    tokens_1T = torch.tensor([tokens], device=base.device)
    ends = _ends(base, wish)
    with _placed(base):
        written_1T = base.model.generate(
            input_ids=tokens_1T,
            attention_mask=torch.ones_like(tokens_1T),
            generation_config=_config(base, wish, room, ends),
            streamer=_Streamer(base.tokenizer, show, ends),
        )
    written: list[int] = written_1T[0, len(tokens) :].tolist()
    return written


@contextmanager
def _placed(base: BaseModel) -> Iterator[None]:
    """Within, the model has a parameter, by which transformers sees where the model is. Without weights of norms all of
    its matrices may be stored in another way, and then it has none of its own."""
    if next(base.model.parameters(), None) is not None:
        yield
        return
    base.model.register_parameter("place", nn.Parameter(torch.empty(0, device=base.device), requires_grad=False))
    try:
        yield
    finally:
        del base.model.place


class _Streamer(TextStreamer):
    """Shows neither the prompt nor the token that ends the text, which a tokenizer need not know as special."""

    def __init__(self, tokenizer: Any, show: Show, ends: list[int]) -> None:
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self._show = show
        self._ends = ends

    def put(self, value: Any) -> None:
        is_prompt = self.next_tokens_are_prompt
        if is_prompt or int(value.flatten()[-1]) not in self._ends:
            super().put(value)  # type: ignore[no-untyped-call]

    def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
        self._show(text)


def _ends(base: BaseModel, wish: Wish) -> list[int]:
    """Where texts end is the model's own, and turns of a chat end where the template ends them: models that were not
    made for chats end texts by another token."""
    tokenizer = base.tokenizer
    own = base.causal.ends or {tokenizer.eos_token_id} - {None}
    return sorted(own.union(end_tokens(tokenizer) if wish.is_chat else ()))


def _config(base: BaseModel, wish: Wish, room: int, ends: list[int]) -> GenerationConfig:
    """Plain sampling, whatever the folder of the model recommends."""
    tokenizer = base.tokenizer
    drawn = {"temperature": wish.temperature, "top_k": 0, "top_p": 1.0} if wish.temperature > 0 else {}
    return GenerationConfig(  # type: ignore[no-untyped-call]
        max_new_tokens=room,
        max_time=wish.seconds_max,
        do_sample=wish.temperature > 0,
        use_cache=True,
        eos_token_id=ends or None,
        pad_token_id=tokenizer.pad_token_id if tokenizer.pad_token_id is not None else next(iter(ends), None),
        **drawn,
    )


def _tokens(tokenizer: Any, prompt: str) -> list[int]:
    """Without the end of a text that some tokenizers append."""
    text: list[int] = tokenizer(prompt, add_special_tokens=False, verbose=False)["input_ids"]
    beginning = beginning_of(tokenizer)
    tokens = text if text[: len(beginning)] == beginning else beginning + text
    if not tokens:
        raise UsageError("the prompt is empty: give some text.")
    return tokens


def _chat_tokens(tokenizer: Any, prompt: str) -> list[int]:
    if tokenizer.chat_template is None:
        raise UsageError("the tokenizer of this model has no chat template: leave out --chat.")
    try:
        asked = ask(tokenizer, [{"role": "user", "content": prompt}])
    except Exception as error:  # Templates raise what they like.
        raise UsageError(
            f"the chat template of this model refuses the prompt ({first_line(error)}): leave out --chat."
        ) from error
    tokens: list[int] = tokenizer(asked, add_special_tokens=False)["input_ids"]
    return tokens
