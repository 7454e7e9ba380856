from hypothesis import given
from hypothesis import strategies as st

from seedflood.transport.texts import plain


@given(st.text())
def test_whatever_somebody_says_is_one_short_line(text: str) -> None:
    said = plain(text, 40)
    assert len(said) <= 40
    assert said.isprintable()
    assert said.splitlines() in ([], [said])


def test_what_can_be_seen_is_told_as_it_is() -> None:
    assert plain("bye \u2014 gr\u00fc\u00dfe\n\x1b[2J", 100) == "bye \u2014 gr\u00fc\u00dfe??[2J"
