"""Through how many modules an update goes that has just come: what a newcomer has to read to follow it.

The window of its round is open, as it nearly always is: then the update is also counted for that window.
"""

import sys

import pytest
from nodes import linked, publish
from origins import B, C

MODULES_MAX = {"strict": 25, "bounded": 28}
"""Of `protocol/`, with the shared ones and those of the swarm. They may only get smaller."""


@pytest.mark.parametrize("window", MODULES_MAX)
def test_an_update_that_comes_crosses_no_more_modules_than_it_did(window):
    node = linked(B, C, clients=3, window=window)
    publish(node)
    assert node.seedflood.windows.oldest is not None
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
    assert len(crossed) <= MODULES_MAX[window], sorted(crossed)
