"""Prompts that a model is to answer by itself, as tokens, with what a score needs to know of their rows."""

from collections.abc import Sequence
from typing import Any

from seedflood.errors import ModelError
from seedflood.training.chat import ask, end_tokens
from seedflood.training.encoding import MARKS, Encoder, begins_twice
from seedflood.training.formats import OPTIONAL, RewardFormat
from seedflood.training.hub import first_line
from seedflood.training.messages import read_message
from seedflood.training.objectives.objective import Example
from seedflood.training.objectives.reward import PromptExample, Reward, Writer
from seedflood.training.rewards.scores import columns_of, make_scorer
from seedflood.training.rows import Row


class RewardEncoder(Encoder):
    """Prompts by a template, or chats in which the assistant speaks next. Raises ModelError for chats if the tokenizer
    has no chat template."""

    form: RewardFormat

    def __init__(self, tokenizer: Any, form: RewardFormat, length_max: int) -> None:
        super().__init__(tokenizer, form, length_max)
        said = form.said
        self.length_max -= said.max_new_tokens
        if self.length_max < 1:
            raise ModelError(
                f"The model has {tokenizer.model_max_length} positions, and max_new_tokens = {said.max_new_tokens} "
                "leaves none for a prompt: set it lower, with --set run.objective.max_new_tokens="
                f"{tokenizer.model_max_length // 2}."
            )
        self.label_column = form.label_column if "answer" in columns_of(said.score) else None
        self._has_template = bool(tokenizer.chat_template)
        self.objective = Reward(make_scorer(said.score, said.score_sha256), self._writer(), said.kl)

    def show(self, example: Example) -> str:
        assert isinstance(example, PromptExample), "an example of another task"
        return example.prompt + str((example.columns or {}).get("answer", "")).join(MARKS)

    def _writer(self) -> Writer:
        said, tokenizer = self.form.said, self.tokenizer

        ends = {*end_tokens(tokenizer), tokenizer.eos_token_id}

        def decode(tokens: Sequence[int]) -> str:
            """Without the token that ended the text, which need not be a special one."""
            said = tokens[:-1] if tokens and tokens[-1] in ends else tokens
            return str(tokenizer.decode(said, skip_special_tokens=True))

        return Writer(decode, ends, self.pad_token, said.group, said.max_new_tokens, said.temperature)

    def check(self, row: Row) -> None:
        super().check(row)
        if self.form.messages(row) is not None and not self._has_template:
            raise ModelError(
                "The tokenizer of this model has no chat template, which prompts of messages need: choose a model that "
                "was made for chats, or write the prompts as text."
            )

    def _examples(self, rows: Sequence[Row]) -> list[Example]:
        return [self._example(row) for row in rows]

    def _example(self, row: Row) -> PromptExample:
        messages, tokenizer = self.form.messages(row), self.tokenizer
        prompt = (
            self._chat(row, messages)
            if messages
            else self.form.template.format_map(row.texts(self.form.columns, OPTIONAL))
        )
        tokens: list[int] = tokenizer(prompt, add_special_tokens=messages is None, verbose=False)["input_ids"]
        tokens = tokens[begins_twice(tokenizer, tokens) :]
        if messages is None and len(tokens) > 1 and tokens[-1] == tokenizer.eos_token_id:
            tokens = tokens[:-1]  # some tokenizers end every text
        is_cut = len(tokens) > self.length_max
        begin = tokens[:1] if is_cut and tokens[0] == tokenizer.bos_token_id else []
        kept = (*begin, *tokens[len(tokens) - self.length_max + len(begin) :]) if is_cut else tokens
        known = {**row.columns, "answer": row.columns.get(self.form.label_column)}
        return PromptExample(tuple(kept), is_cut=is_cut, prompt=prompt, columns=known)

    def _chat(self, row: Row, messages: list[Any]) -> str:
        read = [read_message(row, one) for one in messages]
        try:
            return ask(self.tokenizer, read)
        except Exception as error:  # templates raise what they like
            raise row.error(
                f"the chat template of this model refuses the prompt ({first_line(error)}): correct or remove the row."
            ) from error
