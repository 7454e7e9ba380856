"""Python's garbage collector, told what a daemon is: much that lives for ever, and a stream of tuples without cycles.

Left to itself it looks for garbage a dozen times while one large frame is decoded, which doubles the time that takes,
and now and then through all that PyTorch and the model are made of, on the event loop.
"""

import gc

YOUNG_MAX = 50_000
"""Objects between two looks at the young ones: four large frames of updates, or 5 MB if it were all garbage."""


def settle() -> None:
    """What is alive now stays; the collector looks for cycles among what comes after, and less often. Called once more,
    when another run has begun, it lets go of what the last one has left."""
    gc.unfreeze()
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_MAX, *gc.get_threshold()[1:])
