"""The promises of ARCHITECTURE.md by number: each is kept, and seen to be broken when its mechanism is switched off.

A scenario returns what the judges complain about. Everything on: nothing. The mechanism off: something.
"""

import re
from collections import Counter
from copy import deepcopy
from functools import partial
from pathlib import Path

import pytest
from worlds import make_world

from seedflood.errors import PeerError
from seedflood.host.backlog import Backlog
from seedflood.host.seedflood.driver import SeedfloodDriver
from seedflood.protocol.seedflood import bundles
from seedflood.protocol.seedflood.bundles import make_bundle
from seedflood.protocol.seedflood.catchup import CatchUp
from seedflood.protocol.seedflood.divergence import DivergenceDetector
from seedflood.protocol.seedflood.donors import Donors
from seedflood.protocol.seedflood.epochs import Closings
from seedflood.protocol.seedflood.equivocation import EquivocationSearch
from seedflood.protocol.seedflood.flood import Flood
from seedflood.protocol.seedflood.holdings import Holdings
from seedflood.protocol.seedflood.node import Node
from seedflood.protocol.seedflood.payload import Coefficients
from seedflood.protocol.seedflood.phase import Phase
from seedflood.protocol.swarm.liveness import SUSPICION_SECONDS_MAX, Liveness
from seedflood.protocol.swarm.membership import Membership
from seedflood.protocol.swarm.presence import Presence
from seedflood.protocol.swarm.rules import Patience
from seedflood.transport.codec import decode
from seedflood.wire import flood_pb2 as pb
from simulation.checks import find_stuck
from simulation.network import Weather
from simulation.notary import Notary
from simulation.seedflood import fullness
from simulation.seedflood.checks import find_mistakes, find_violations
from simulation.seedflood.journal import MemoryBundleJournal
from simulation.seedflood.liars import let_lie
from simulation.work import Pace


def judge(world, seconds=400):
    try:
        world.run(seconds)
    except AssertionError as error:
        return [str(error) or "an invariant broke"]
    stuck = find_stuck(world.hosts)
    return stuck + find_mistakes(world.hosts) if stuck else find_violations(world.hosts)


def started(*args, **settings):
    world = make_world(*args, **settings)
    world.start()
    return world


def lossy():
    return judge(started("path", 5, steps=20, weather=Weather(lose=0.1)))


def doubled():
    return judge(started("complete", 3, window="bounded", weather=Weather(duplicate=0.3)), 60)


def powerless():
    world = started("ring", 4, steps=12)
    world.run_until_step(4)
    for host in world.hosts:
        host.lose_power()
        world.start_later(host, 0.5)
    return judge(world)


def amnesic(*, is_disk_lost):
    """The last word of the host in the middle lives with one neighbour alone, and that is the one it meets last."""
    world = make_world("path", 3, steps=12, pace=Pace(0.5, 0.5), patience=Patience(start_seconds=60))
    world.start()
    left, middle, _ = world.hosts
    assert world.clock.run(lambda: middle.is_up and middle.node.step >= 4, 60)
    world.network.break_link(1, 2)
    world.network.partition({2})
    said = len(middle.published)
    assert world.clock.run(lambda: len(middle.published) > said and left.node.frontier.last(middle.origin) >= said, 20)
    if is_disk_lost:
        middle.lose_disk()
    else:
        middle.crash()
        del middle.journal.bundles[middle.origin, max(step for step in middle.published)]
    world.network.heal()
    world.network.partition({0})
    world.start_later(middle, 0.1, is_journal_damaged=not is_disk_lost)
    world.run_for(20)
    world.network.heal()
    return judge(world)


def put_back():
    """The host in the middle gets an old copy of its disk, and first meets one that knows some of what came after."""
    world = make_world("path", 3, steps=40, window="bounded", pace=Pace(0.5, 0.5), patience=Patience(start_seconds=60))
    world.start()
    left, middle, right = world.hosts
    assert world.clock.run(lambda: middle.is_up and middle.node.step >= 4, 60)
    old = deepcopy(middle.journal, {id(middle): middle})
    assert world.clock.run(lambda: right.node.frontier.last(middle.origin) >= 6, 60)
    world.network.partition({2})
    said = max(middle.published)
    assert world.clock.run(lambda: max(middle.published) >= said + 3, 60)
    assert world.clock.run(lambda: left.node.frontier.last(middle.origin) >= max(middle.published), 60)
    middle.crash()
    middle.journal = old
    world.network.heal()
    world.network.partition({0})
    world.start_later(middle, 0.1)
    world.run_for(20)
    world.network.heal()
    return judge(world)


def met_by_a_newcomer():
    """The host in the middle lost its disk, and is linked with one that has never heard of it before the other."""
    world = make_world("path", 3, steps=40, window="bounded", patience=Patience(start_seconds=1.0))
    newcomer, middle, former = world.hosts
    middle.start()
    former.start()
    world.run_until_step(15)
    assert world.clock.run(lambda: former.node.frontier.last(middle.origin) >= max(middle.published), 20)
    middle.lose_disk()
    world.network.partition({0, 1})
    newcomer.start()
    middle.start()
    world.run_for(20)
    world.network.heal()
    return judge(world)


def flipped():
    world = started("ring", 4, steps=20)
    world.run_until_step(10)
    world.hosts[1].corrupt()
    return judge(world)


def parted():
    world = started("grid", 9, steps=30, window="bounded")
    world.run_until_step(4, 60)
    world.network.partition({0, 1, 2, 3})
    world.run_for(3)
    world.network.heal()
    return judge(world, 60)


def orphaned():
    """A late comer's donor hangs in the middle of the pull, its link stays up; there is another one."""
    world = make_world("ring", 4, steps=400, window="bounded", patience=Patience(start_seconds=1.0))
    late, donor = world.hosts[0], world.hosts[1]
    for host in world.hosts[1:]:
        host.start()
    world.run_until_step(30)
    pulls = []
    pull = late.pull
    late.pull = lambda peer, frontier: pulls.append(peer) or pull(peer, frontier)
    late.start()
    assert world.clock.run(lambda: bool(pulls), 20)
    donor = next(host for host in world.hosts if host.origin == pulls[0])
    donor.pause()
    world.run_for(30)
    return ["the late comer still waits for its donor"] if late.node.phase is Phase.JOINING else []


def gated():
    """One of five is dead: for how long, all windows together, do the others wait for it?"""
    slow = Weather(delay_min=0.2, delay_max=0.3)
    world = started("ring", 5, steps=10_000, window="bounded", weather=slow, patience=Patience(start_seconds=5.0))
    world.run_for(30)
    world.hosts[0].crash()
    before = len(world.hosts[2].windows)
    world.run_for(120)
    dead = world.hosts[0].origin
    waited = sum(window.waited_seconds for window in world.hosts[2].windows[before:] if dead in window.missing)
    return [f"waited {waited:.1f} s for the dead"] if waited > SUSPICION_SECONDS_MAX + 5 else []


def growing():
    """How many bundles does a journal hold in the long run?"""
    world = started("ring", 4, steps=400, refresh_period=8, pace=Pace(0.01, 0.02))
    world.run_until_step(380)
    most = max(len(host.journal.bundles) for host in world.hosts)
    return [f"{most} bundles in a journal"] if most > 4 * 8 * 5 else []


def filled():
    """The disk becomes full right when the host writes what it is to say; then it is killed, and started with space."""
    world = started("ring", 4, steps=12)
    world.run_until_step(4)
    host = world.hosts[1]
    append = host.journal.append

    def fill(bundles, members, *, durable):
        host.journal.is_full |= any(bundle.origin == host.origin for bundle in bundles)
        return append(bundles, members, durable=durable)

    host.journal.append = fill
    world.run_for(2)
    host.crash()
    del host.journal.append
    host.journal.is_full = False
    world.start_later(host, 0.5)
    return judge(world)


def filled_at_a_compaction():
    """The disk becomes full when a sum is to take the place of bundles, and a liar then tells one more of them."""
    written, compact = [], MemoryBundleJournal.compact

    def noted(journal, closed):
        if journal._owner.index == fullness.VICTIM:
            written.append(journal._owner.writes + 1)
        return compact(journal, closed)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(MemoryBundleJournal, "compact", noted)
        fullness.simulate(fullness.Plan("strict"))
    return fullness.simulate(fullness.Plan("strict", written[0])).complaints


def left():
    world = started("complete", 4, steps=12)
    world.run_until_step(4)
    leaver, others = world.hosts[0], world.hosts[1:]
    leaver.leave()
    world.clock.run(lambda: all(host.is_done for host in others), 300)
    return find_stuck(others) or find_violations(others)


def left_amnesic():
    """A host lost its disk, and is told to go while it catches up; it comes back, and the strict run goes on."""
    world = started("ring", 4, steps=16)
    world.run_until_step(6)
    host = world.hosts[1]
    last = world.chronicle.last(host.origin).last
    assert world.clock.run(lambda: world.hosts[0].node.frontier.last(host.origin) >= last, 20)
    host.lose_disk()
    host.start()
    world.run_for(1.5)
    host.leave()
    world.run_for(1)
    host.crash()
    world.run_for(5)
    participants = {other.node.membership.taking_part for other in world.hosts if other.is_up}
    world.start_later(host, 0.1)
    return [f"{count} take part" for count in participants if count != 4] + judge(world)


def flooded():
    """Frames that anyone may send: does anything but PeerError come out?"""
    complaints = []
    frames = [
        pb.Frame(updates=pb.Updates(origins=[1, 2], bundles=make_bundle(1, 1, ((1, 1),)).data)),
        pb.Frame(updates=pb.Updates(origins=[1], bundles=make_bundle(1, 1, ((1, 1),) * 3).data[:-1])),
        pb.Frame(standing=pb.Standing(frontier=pb.Frontier(origins=[1, 1], marks=[1]))),
    ]
    for frame in frames:
        try:
            decode(frame.SerializeToString())
            complaints.append(f"{frame.WhichOneof('kind')} was believed")
        except PeerError:
            pass
        except Exception as error:
            complaints.append(repr(error))
    return complaints


def holds_last_word(host, other):
    last = host.chronicle.last(other.origin)
    return last is not None and host.node.frontier.holds(*last.span) and host.journal.is_durable(last)


def lied():
    """A liar speaks for others and answers pulls with sums of its own; a host that lost its disk meets it first."""
    world = started("ring", 5, steps=40, window="bounded", refresh_period=4, pace=Pace(0.3, 0.6))
    let_lie(world, [0], Counter(), ["forged", "sums"])
    for step in (12, 20, 28):
        world.run_until_step(step)
        assert world.clock.run(lambda: holds_last_word(world.hosts[2], world.hosts[1]), 20)
        world.hosts[1].lose_disk()
        world.network.isolate(1, but=0)
        world.start_later(world.hosts[1], 0.5)
        world.run_for(6)
        world.network.heal()
    world.run(400)
    return find_stuck(world.honest) or find_violations(world.honest)


def told_two_things():
    """A liar tells its neighbours two things of the same steps."""
    world = started("ring", 5, steps=40, window="bounded", refresh_period=4, pace=Pace(0.1, 0.2))
    let_lie(world, [0], Counter(), ["equivocations"])
    world.run(60)
    world.run_for(20)
    assert world.chronicle.two_tongued
    return find_stuck(world.honest) or find_violations(world.honest)


def started_twice():
    """A host is started a second time, elsewhere, with its key alone."""
    world = started("ring", 5, steps=40, window="bounded")
    world.run_until_step(5)
    world.copy_key(world.hosts[1]).start()
    world.run(120)
    return find_stuck(world.honest) or find_violations(world.honest)


def only_if_newest(membership, member):
    """The newest statement counts, whatever it says."""
    known = membership.get(member.origin)
    if not (known is None or member.age > known.age):
        return False
    if not member.has_spoken:
        membership._spoken.pop(member.origin, None)
        membership.taking_part = len(membership._spoken)
    return member.has_spoken


def nothing(*_, **__):
    return None


def take_all(holdings, peer, bundles):
    """Whatever comes is news, and passed on to nobody, for it would go round for ever."""
    for bundle in bundles:
        holdings.frontier.add(*bundle.span)
    holdings._keep(bundles)
    return list(bundles)


def pretending_to_compact(driver, closed, compact=SeedfloodDriver._compact):
    compact(driver, closed)
    return True


PROMISES = {
    "P1 everything reaches everyone": (lossy, [(Donors, "compare", nothing), (Flood, "offer", nothing)]),
    "P2 nothing is applied twice": (doubled, [(Holdings, "receive", take_all)]),
    "P3 a crash of all loses nothing": (powerless, [(MemoryBundleJournal, "_sync", nothing)]),
    "P4 a lost disk contradicts nothing": (
        lambda: amnesic(is_disk_lost=True),
        [(CatchUp, one, nothing) for one in ("learn_of_past", "remember", "notice_old_copy")],
    ),
    "P4 a lost disk contradicts nothing, whoever is met first": (
        met_by_a_newcomer,
        [(CatchUp, "remember", nothing)],
    ),
    "P4 an old copy of a disk contradicts nothing": (put_back, [(CatchUp, "notice_old_copy", nothing)]),
    "P4 a key in use twice contradicts nothing": (started_twice, [(Presence, "_learn_of_us", nothing)]),
    "P5 a replica that differs is found and made again": (
        flipped,
        [(DivergenceDetector, "doubt", nothing), (EquivocationSearch, "receive", nothing)],
    ),
    "P6 a partition heals by itself": (
        parted,
        [(Donors, "connect", lambda donors, peer, *_, **__: nothing()), (Donors, "compare", nothing)],
    ),
    "P7 a late join ends": (orphaned, [(Donors, "retry", nothing)]),
    "P8 the dead access nobody for long": (gated, [(Liveness, "review", lambda *_: [])]),
    "P9 memory is bounded": (growing, [(Closings, "agreed", lambda *_: [])]),
    "P10 a full disk makes nobody forget what it said": (
        filled,
        [(Backlog, "holds_back", lambda *_: False)],
    ),
    "P10 a full disk makes nobody take bundles for a sum": (
        filled_at_a_compaction,
        [(SeedfloodDriver, "_compact", pretending_to_compact)],
    ),
    "P11 a damaged journal contradicts nothing": (
        lambda: amnesic(is_disk_lost=False),
        [(CatchUp, "unreached", lambda *_: set())],
    ),
    "P12 no input ends the process": (flooded, [(bundles, "check", nothing)]),
    "P14 a liar moves no honest host": (lied, [(Notary, "verify", lambda *_: True)]),
    "P14 who tells two things is named by all": (told_two_things, [(EquivocationSearch, "differ", nothing)]),
    "P13 leaving is not crashing": (left, [(Node, "leave", lambda node, *_: node.seedflood.life.enter(Phase.LEFT))]),
    "P13 who goes before it remembers takes nothing back": (
        left_amnesic,
        [(Membership, "_is_last_word", only_if_newest)],
    ),
}


def test_every_promise_of_the_page_has_a_scenario():
    page = (Path(__file__).parents[2] / "ARCHITECTURE.md").read_text()
    assert set(re.findall(r"^\| (P\d+) \|", page, re.MULTILINE)) == {promise.split()[0] for promise in PROMISES}


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_is_kept(promise):
    scenario, _ = PROMISES[promise]
    assert scenario() == []


WAYS = {
    "pairs, a round ahead": {"delay": 1},
    "coefficients, three rounds ahead": {"compression": Coefficients((3, 4)), "delay": 3},
}


@pytest.mark.long
@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_is_kept_with_payloads_and_rounds_ahead(promise, way, monkeypatch):
    monkeypatch.setitem(globals(), "make_world", partial(make_world, **WAYS[way]))
    scenario, _ = PROMISES[promise]
    assert scenario() == []


@pytest.mark.parametrize("promise", PROMISES)
def test_a_promise_is_seen_to_be_broken_without_its_mechanism(promise, monkeypatch):
    scenario, mechanisms = PROMISES[promise]
    for owner, name, without in mechanisms:
        monkeypatch.setattr(owner, name, without)
    assert scenario() != []
