"""A row on its way to a batch: what is learned of it as text, then as tokens.

A format renders a row (`Rendered`), an encoder makes its tokens (`Example`), and an objective pads several of these to
a batch.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

Span = tuple[int, int]
"""Characters from the first to before the second."""


@dataclass(frozen=True, slots=True)
class Rendered:
    """A row as text, and what is learned of it."""

    text: str
    spans: tuple[Span, ...] | None = None
    """The characters that are learned, in their order and apart from each other. None: all. Empty: none, as in a prompt
    whose answer is not part of the text."""
    label: int = -1
    """The index of the right label; -1 where there are none."""
    columns: Mapping[str, Any] = field(default_factory=dict)
    """Of the row, for an objective that needs more of it than its text."""
    remarks: tuple[str, ...] = ()
    """What people should know of the row, as sentences with `{}` for a number of rows."""
    has_own_beginning: bool = False
    """Does the text bring its special tokens itself?"""


@dataclass(frozen=True, slots=True)
class Example:
    """A row as tokens. is_trained: of each token, whether it is learned. is_cut: the row had more tokens than it may
    have. source: what the tokens were made of."""

    tokens: tuple[int, ...]
    is_trained: tuple[bool, ...] = ()
    is_cut: bool = False
    source: Rendered = Rendered("")
