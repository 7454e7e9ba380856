"""Prompts that a model is to answer by itself, as tokens, with what a score needs to know of their rows."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from seedflood.errors import ModelError
from seedflood.training.chat import ask, end_tokens
from seedflood.training.encoding import MARKS, Encoder
from seedflood.training.formats import RewardFormat
from seedflood.training.hub import first_line
from seedflood.training.messages import read_message
from seedflood.training.objectives.example import Example, Rendered
from seedflood.training.objectives.reward import Reward, Writer
from seedflood.training.rewards.scores import make_scorer
from seedflood.training.rows import Row


class RewardEncoder(Encoder):
    """Prompts by a template, or chats in which the assistant speaks next. Raises ModelError for chats if the tokenizer
    has no chat template."""

    form: RewardFormat

    def __init__(self, tokenizer: Any, form: RewardFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        settings = form.settings
        self.length_max -= settings.max_new_tokens
        if self.length_max < 1:
            raise ModelError(
                f"The model has {tokenizer.model_max_length} positions, and max_new_tokens = {settings.max_new_tokens} "
                "leaves none for a prompt: set it lower, with --set run.objective.max_new_tokens="
                f"{tokenizer.model_max_length // 2}."
            )
        self.objective = Reward(make_scorer(settings.score, settings.score_sha256), self._writer(), settings.kl)

    def show(self, example: Example) -> str:
        return example.source.text + str(example.source.columns["answer"]).join(MARKS)

    def _writer(self) -> Writer:
        settings, tokenizer = self.form.settings, self.tokenizer

        ends = {*end_tokens(tokenizer), tokenizer.eos_token_id}

        def decode(tokens: Sequence[int]) -> str:
            """Without the token that ended the text, which need not be a special one."""
            text = tokens[:-1] if tokens and tokens[-1] in ends else tokens
            return str(tokenizer.decode(text, skip_special_tokens=True))

        return Writer(decode, ends, self.pad_token, settings.group, settings.max_new_tokens, settings.temperature)

    def check(self, row: Row) -> None:
        self.render(row)

    def render(self, row: Row) -> Rendered:
        rendered = super().render(row)
        messages = self.form.messages(row)
        if messages is None:
            return rendered
        return replace(rendered, text=self._chat(row, messages), has_own_beginning=True)

    def _chat(self, row: Row, messages: list[Any]) -> str:
        if not self.tokenizer.chat_template:
            raise ModelError(
                "The tokenizer of this model has no chat template, which prompts of messages need: choose a model that "
                "was made for chats, or write the prompts as text."
            )
        read = [read_message(row, one) for one in messages]
        try:
            return ask(self.tokenizer, read)
        except Exception as error:  # templates raise what they like
            raise row.error(
                f"the chat template of this model refuses the prompt ({first_line(error)}): correct or remove the row."
            ) from error
