"""Why a node waits, in words."""

from typing import get_args

import pytest

from seedflood.operations.reasons import describe_blocker, explain
from seedflood.protocol.seedflood.blockers import BlockerKind
from seedflood.protocol.view import Blocker


@pytest.mark.parametrize("kind", get_args(BlockerKind))
def test_every_kind_has_words(kind):
    said = explain(Blocker(kind, 7, "beta", None, 0.0))
    assert said
    assert "{" not in said


@pytest.mark.parametrize("kind", ["window", "last words"])
def test_a_step_that_lacks_is_named(kind):
    assert explain(Blocker(kind, 7, "beta", 12, 0.0)).startswith("step 12 of beta has not come")


def test_it_says_what_an_operator_can_do_about_a_host_that_is_gone():
    blocker = Blocker("last words", 7, "beta", 12, 3.0)
    assert "roster remove" not in describe_blocker(blocker, now=5.5)["reason"]
    assert "`seedflood roster remove --node`" in describe_blocker(blocker, now=5.5, is_closed=True)["reason"]


def test_it_says_for_how_long():
    said = describe_blocker(Blocker("window", 7, "beta", 12, 3.0), now=5.5)
    assert said == {
        "kind": "window",
        "name": "beta",
        "origin": "0000000000000007",
        "step": 12,
        "seconds": 2.5,
        "reason": "step 12 of beta has not come",
    }
    assert describe_blocker(Blocker("no link", None, "any neighbour", None, 6.0), now=5.5)["seconds"] == 0.0
