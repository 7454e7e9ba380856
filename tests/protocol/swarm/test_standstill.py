from seedflood.protocol.swarm.standstill import Standstill


def told(standstill, where, begin, end):
    """The seconds at which a line is due, of a node that stays where it is."""
    return [second for second in range(begin, end) if standstill.lasts(where, float(second))]


def test_a_node_that_waits_says_so_more_and_more_seldom():
    assert told(Standstill(), "step 3", 0, 4000) == [10, 30, 70, 150, 310, 630, 1230, 1830, 2430, 3030, 3630]


def test_a_node_that_moved_in_between_says_it_soon_again():
    standstill = Standstill()
    assert told(standstill, "step 3", 0, 100) == [10, 30, 70]
    assert told(standstill, "step 4", 100, 200) == [110, 130, 170]
