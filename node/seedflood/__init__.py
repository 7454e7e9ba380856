"""seedflood: hosts fine-tune one language model together with messages of a few bytes.

`seedflood-node` runs a host. A script with a loss of its own takes part by `seedflood.join` (docs/how-to/library.md).
"""

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from seedflood.library.callback import Callback as Callback
    from seedflood.library.participant import Participant as Participant
    from seedflood.library.participant import join as join

__all__ = ["VERSION", "Callback", "Participant", "join"]

VERSION = "0.1.0"

_IN_LIBRARY = {"join": "participant", "Participant": "participant", "Callback": "callback"}


def __getattr__(name: str) -> Any:
    """What needs torch is imported when it is asked for: a relay has none."""
    if name not in _IN_LIBRARY:
        raise AttributeError(f"module 'seedflood' has no attribute {name!r}")
    from importlib import import_module

    return getattr(import_module(f"seedflood.library.{_IN_LIBRARY[name]}"), name)


def __dir__() -> list[str]:
    return __all__
