"""The Hugging Face hub: whether it has something, by one quick question, before libraries that retry for minutes; and
whose turn it is to fetch it."""

import fcntl
import logging
import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Literal

from huggingface_hub import HfApi, constants
from huggingface_hub.errors import RepositoryNotFoundError

QUESTION_SECONDS_MAX = 10.0

Kind = Literal["model", "dataset"]

_log = logging.getLogger(__name__)


@contextmanager
def reading(kind: Kind, name: str, *, fetches: bool = False) -> Iterator[None]:
    """Within, no other host of this machine fetches this; whoever `fetches` is alone with it. Waits for that.

    Of what is still being fetched, libraries take what is there: without `tokenizer_config.json` a tokenizer of another
    class, whose tokens are others. A cache in which nothing can be written is read as it is.
    """
    path = Path(constants.HF_HUB_CACHE) / ".locks" / f"seedflood--{kind}--{name.replace('/', '--')}"
    how = fcntl.LOCK_EX if fetches else fcntl.LOCK_SH
    with ExitStack() as stack:
        try:
            path.parent.mkdir(parents=True, exist_ok=True)
            lock = stack.enter_context(path.open("ab"))
            try:
                fcntl.flock(lock, how | fcntl.LOCK_NB)
            except BlockingIOError:
                _log.warning("waiting until another process of this machine has fetched or read the %s %s", kind, name)
                fcntl.flock(lock, how)
        except OSError as error:
            _log.debug("no turns at %s: %s", path, error)
        yield


def find_fault(kind: Kind, name: str) -> str | None:
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
