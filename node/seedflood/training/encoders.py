"""Which encoder reads the rows of which format."""

from collections.abc import Callable
from typing import Any

from seedflood.training.chat import ChatEncoder
from seedflood.training.completions import CompletionEncoder
from seedflood.training.encoding import Encoder, PromptEncoder, TextEncoder
from seedflood.training.formats import ChatFormat, CompletionFormat, Format, PromptFormat, RewardFormat, TextFormat
from seedflood.training.rewarding import RewardEncoder

ENCODERS: dict[type[Format], Callable[[Any, Any, int], Encoder]] = {
    PromptFormat: PromptEncoder,
    TextFormat: TextEncoder,
    CompletionFormat: CompletionEncoder,
    ChatFormat: ChatEncoder,
    RewardFormat: RewardEncoder,
}
"""By kind of format: (tokenizer, format, length_max) -> encoder. Raises DataError or ConfigError."""
