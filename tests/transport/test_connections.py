"""Which connections count as silent."""

from hypothesis import given
from hypothesis import strategies as st

from seedflood.transport.connections import KNOWN_SECONDS, Connections


class Port:
    """What happens at a port, one thing a second."""

    def __init__(self) -> None:
        self.now = 0.0
        self.begun = self.told = 0
        self.connections = Connections(lambda: self.begun)

    def begin(self) -> None:
        self.begun += 1

    def speak(self, peer: str) -> None:
        self.now += 1
        self.connections.spoke(peer, self.now)

    def look(self) -> int:
        found = self.connections.look(self.now)
        self.told += found
        return found


def test_nobody_is_silent_before_its_handshake_had_time():
    port = Port()
    port.begin()
    assert port.look() == 0
    assert port.look() == 1
    assert port.look() == 0


def test_who_opens_many_streams_is_one_connection():
    port = Port()
    for _ in range(2):
        port.begin()
    for _ in range(5):
        port.speak("a")
    port.look()
    assert port.look() == 1


def test_a_port_that_is_used_again_is_another_connection():
    port = Port()
    for _ in range(2):
        port.begin()
        port.speak("a")
        port.now += KNOWN_SECONDS + 1
        port.look()
    assert (port.look(), port.told) == (0, 0)


@given(st.lists(st.sampled_from(["speaks", "silent", "look"]), max_size=60))
def test_in_the_end_exactly_the_silent_ones_were_told_of(course):
    port = Port()
    for number, what in enumerate(course):
        if what == "look":
            port.look()
            continue
        port.begin()
        if what == "speaks":
            port.speak(str(number))
    port.look()
    port.look()
    assert port.told == course.count("silent")
