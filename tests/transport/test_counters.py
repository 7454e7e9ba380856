"""Counters of links live as long as there is room, whatever names peers claim."""

from seedflood.transport.counters import NAMES_MAX, OTHERS, LinkCounters, LinkTotals


def test_names_that_are_claimed_do_not_gather_and_no_count_is_lost() -> None:
    totals = LinkTotals()
    totals.open("stays", ()).frames_sent += 5
    for k in range(3 * NAMES_MAX):
        totals.open(f"n{k}", {"stays"}).frames_sent += 1
    stats = totals.stats()
    assert len(stats) <= NAMES_MAX + 1
    assert stats["stays"].frames_sent == 5
    assert sum(one.frames_sent for one in stats.values()) == 3 * NAMES_MAX + 5
    assert stats[OTHERS].frames_sent > NAMES_MAX


def test_a_peer_that_links_again_goes_on_with_its_counters() -> None:
    totals = LinkTotals()
    totals.open("a", ()).links_opened += 1
    totals.open("a", ()).links_opened += 1
    assert totals.stats() == {"a": LinkCounters(links_opened=2)}


def test_reasons_that_are_made_up_are_counted_together() -> None:
    totals = LinkTotals()
    kinds = len(totals.faults)
    for reason in ("signature", "signature", "x" * 40, "y"):
        totals.note(reason)
    assert totals.faults["signature"] == 2
    assert totals.faults["other"] == 2
    assert len(totals.faults) == kinds
