"""Whether the Hugging Face hub has something: one quick question, before libraries that retry for minutes."""

import os
from typing import Literal

from huggingface_hub import HfApi
from huggingface_hub.errors import RepositoryNotFoundError

QUESTION_SECONDS_MAX = 10.0


def find_fault(kind: Literal["model", "dataset"], name: str) -> str | None:
    """Asks the hub for a model or data set of this name. Returns None if it is there, else in a few words why it cannot
    be had."""
    if os.environ.get("HF_HUB_OFFLINE", "0").upper() in ("1", "ON", "YES", "TRUE"):
        return "HF_HUB_OFFLINE is set"
    api = HfApi()
    try:
        api.repo_info(name, repo_type=kind, timeout=QUESTION_SECONDS_MAX)
    except RepositoryNotFoundError:
        return f"the hub has no such {kind}, or it is private"
    except Exception as error:  # Errors of the HTTP library in use, of the hub, of the name.
        return first_line(error)
    return None


def first_line(error: Exception) -> str:
    """The first line of an error's message, or the name of its class."""
    lines = str(error).strip().splitlines()
    return lines[0] if lines else type(error).__name__
