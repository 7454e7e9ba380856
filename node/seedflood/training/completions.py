"""Completions: what follows a prompt is learned, the prompt is not."""

from typing import Any

from seedflood.training.formats import CompletionFormat
from seedflood.training.marking import Marked, MarkedEncoder
from seedflood.training.rows import Row


class CompletionEncoder(MarkedEncoder):
    """Prompts, each with what follows it and the token that ends a text. Both stand as they are in the row: nothing is
    put between them."""

    ends_with_text = True

    def __init__(self, tokenizer: Any, form: CompletionFormat, length_max: int) -> None:
        super().__init__(tokenizer, length_max)
        self.form, self.label_column, self.columns = form, form.label_column, form.columns

    def mark(self, row: Row) -> Marked:
        texts = row.texts(self.columns)
        prompt = self.form.template.format_map(texts)
        text = prompt + texts[self.form.label_column]
        return Marked(text, ((len(prompt), len(text)),))

    def _label(self, row: Row) -> int:
        if not (row.columns[self.form.label_column] or "").strip():
            raise row.error(f'nothing in column "{self.form.label_column}", which is learned: remove the row.')
        return -1
