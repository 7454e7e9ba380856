"""seedflood: hosts fine-tune one language model together with messages of a few bytes."""

VERSION = "0.1.0"
