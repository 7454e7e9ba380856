"""What others say, made safe for a terminal: a text may hold escapes that rename the window, clear it or fill the
clipboard, and marks that show letters in another order.

Rows, models, peers and scores say what they like. So everything that a person reads goes through `visible`: the log on
a terminal, each `Screen`, and what commands say (`cli/options.say`). JSON has an escape of its own for such characters.
"""

import re
from collections.abc import Iterable

from rich.console import Console, ConsoleOptions, RenderableType
from rich.segment import Segment

_UNSAFE = re.compile(
    "[\x00-\x08\x0b\x0c\x0e-\x1f\x7f-\x9f]"  # controls, but for tabs and ends of lines
    "|\r(?!\n)"
    "|[\u2028-\u202e\u2066-\u2069]"  # other ends of lines, and orders of letters
    "|[\ud800-\udfff]"  # no characters
)


def visible(text: str) -> str:
    """The text, with each character spelled (`\\x1b`) that would do something else than being read."""
    return _UNSAFE.sub(lambda found: found[0].encode("unicode_escape").decode(), text)


class Screen(Console):
    """A console whose texts do nothing. What rich itself says to the terminal is no text."""

    def render(self, renderable: RenderableType, options: ConsoleOptions | None = None) -> Iterable[Segment]:
        for segment in super().render(renderable, options):
            yield segment if segment.control else segment._replace(text=visible(segment.text))
