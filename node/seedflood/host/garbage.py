"""Settings of Python's garbage collector for a daemon: many objects that live for ever, and many tuples without cycles.

With Python's defaults it runs a dozen times while one large frame is decoded, which takes twice as long then. Now and
then it also searches all objects of PyTorch and the model, on the event loop; and a fifth of the time until a daemon is
ready goes into searching modules while they are imported, which are never garbage.
"""

import gc

YOUNG_MAX = 50_000
"""New objects between two collections of the youngest generation: four large frames of updates, or 5 MB if all were
garbage."""


def defer() -> None:
    """No collection until `settle`: for the time in which PyTorch, transformers and a model are loaded."""
    gc.disable()


def exclude() -> None:
    """Excludes all objects that exist now from collection: what is imported lives as long as the process. In a process
    that was forked, its pages stay shared, too: a collection would write to 120 MB of them."""
    gc.freeze()


def settle() -> None:
    """Collects what loading a model has left, excludes what it has made, and makes collections of later objects
    rarer."""
    gc.collect()
    exclude()
    collect_rarely()
    gc.enable()


def collect_rarely() -> None:
    """Makes collections of new objects rarer, and leaves out nothing that exists."""
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
