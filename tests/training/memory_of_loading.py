"""Prints how much memory a process has taken for a model, to what its weights take. Its argument is the model."""

import gc
import sys
from pathlib import Path

from seedflood.training.models import import_families, load_model


def anonymous_bytes() -> int:
    """Memory of this process that no file backs."""
    text = Path("/proc/self/status").read_text().partition("RssAnon:")[2]
    return int(text.split()[0]) * 1024


import_families()
before = anonymous_bytes()
base = load_model(sys.argv[1], dtype="float32")
gc.collect()
print((anonymous_bytes() - before) / sum(one.nbytes for one in base.model.parameters()))
