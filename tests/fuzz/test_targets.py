"""Whatever comes from outside is read or refused: the kept corpora, and what Hypothesis makes of them.

`make fuzz` looks further, and with coverage. What it finds becomes an example here (`corpus/TARGET`).
"""

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from targets import TARGETS, corpus

TRIES = {"settings": 20, "journal": 40}
"""Of targets that write files; the others are quick."""


@pytest.mark.parametrize("name", TARGETS)
def test_what_is_kept_is_read_or_refused(name: str) -> None:
    examples = corpus(name)
    assert examples
    for example in examples:
        TARGETS[name](example)


@pytest.mark.parametrize("name", TARGETS)
def test_what_resembles_it_is_read_or_refused(name: str) -> None:
    @settings(max_examples=TRIES.get(name, 300), deadline=None, suppress_health_check=[HealthCheck.too_slow])
    @given(mutated(corpus(name)))
    def try_it(data: bytes) -> None:
        TARGETS[name](data)

    try_it()


def mutated(examples: list[bytes]) -> st.SearchStrategy[bytes]:
    """Pieces of examples in any order, and other bytes between them."""
    piece = st.tuples(st.sampled_from(examples), st.integers(0, 4096), st.integers(0, 4096)).map(
        lambda cut: cut[0][cut[1] % (len(cut[0]) + 1) :][: cut[2]]
    )
    whole = st.sampled_from(examples)
    return st.lists(st.one_of(whole, piece, st.binary(max_size=8)), max_size=4).map(b"".join)
