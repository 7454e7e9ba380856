"""Through how many modules an update goes that has just come: what a newcomer has to read to follow it."""

import sys

from nodes import linked
from origins import B, C

MODULES_MAX = 23
"""Of `protocol/`, with the shared ones and those of the swarm. It may only get smaller."""


def test_an_update_that_comes_crosses_no_more_modules_than_it_did():
    node = linked(B, C, clients=3, window="bounded")
    crossed = set()

    def note(frame, event, _):
        name = frame.f_globals.get("__name__", "")
        if event == "call" and name.startswith("seedflood.protocol."):
            crossed.add(name)

    sys.setprofile(note)
    try:
        node.received(B.id, B.updates(0), 0.0)
        node.collect()
    finally:
        sys.setprofile(None)
    assert len(crossed) <= MODULES_MAX, sorted(crossed)
