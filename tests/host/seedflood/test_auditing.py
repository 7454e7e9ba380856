"""The auditor of a host, with a real node and a real key: whom it draws, what it remembers, what it tells."""

import json
from types import SimpleNamespace

import pytest
from nodes import hear, linked
from origins import A, B, C, D

from seams import Disk
from seedflood.config import NodeSettings
from seedflood.host.seedflood.auditing import FINDINGS_FOLDER, UNAUDITED, WAITING_MAX, Auditor, unaudited
from seedflood.identity import Identity
from seedflood.protocol.origin import fingerprint
from seedflood.protocol.seedflood.bundles import Updates
from seedflood.protocol.seedflood.messages import ReplicaDigest
from seedflood.protocol.seedflood.outputs import Measure
from seedflood.protocol.seedflood.statement import Rows, Stated, pack
from seedflood.protocol.swarm.messages import Members

DIGEST = b"r" * 32
OURS, THEIRS = Rows(0, 4, DIGEST), Rows(2, 4, DIGEST)
FIRST = Measure(0, 1)


class Hub:
    """Hears what the operator is told."""

    def __init__(self):
        self.told = []

    def log(self, event, level="info", **facts):
        self.told.append((event, level, facts))


def says_rows(origin, rows):
    return origin.member(version=5, algorithm=pack(Stated(rows=rows)), first_step=0)


def agreed(**rules):
    """A node whose replica was seen to equal a neighbour's."""
    node = linked(B, C, D, steps=1000, **rules)
    frontier = node.applied.digest()
    node.answer(ReplicaDigest(frontier, b"s" * 32), 0.0)
    hear(node, B, ReplicaDigest(frontier, b"s" * 32))
    assert node.is_ready
    return node


@pytest.fixture
def disk():
    return Disk([])


@pytest.fixture
def make(tmp_path, disk):
    def make(node, share=1.0):
        settings, trainer = NodeSettings(state=tmp_path, audit=share), SimpleNamespace(rows=OURS)
        daemon = SimpleNamespace(identity=Identity.generate(), hub=Hub())
        return Auditor(settings, node, trainer, disk, daemon)

    return make


@pytest.mark.parametrize(
    ("rows", "is_known"),
    [(THEIRS, True), (OURS, True), (None, False), (Rows(2, 5, DIGEST), False), (Rows(2, 4, b"o" * 32), False)],
)
def test_only_hosts_whose_rows_are_known_here_are_audited(make, rows, is_known):
    node = agreed()
    assert make(node).choose(FIRST) is None
    hear(node, B, Members((says_rows(B, rows),)))
    assert make(node).choose(FIRST) == ((B.id, rows) if is_known else None)
    assert make(node, share=0.0).choose(FIRST) is None


def test_who_has_not_compared_its_replica_audits_nobody(make):
    alone = linked(B, steps=1000)
    hear(alone, B, Members((says_rows(B, THEIRS),)))
    assert make(alone).choose(FIRST) is None


def test_everybody_is_drawn_and_about_as_often_as_was_wanted(make):
    node = agreed()
    hear(node, B, Members(tuple(says_rows(origin, THEIRS) for origin in (B, C, D))))
    auditor = make(node, share=0.5)
    drawn = [auditor.choose(FIRST) for _ in range(600)]
    assert {target[0] for target in drawn if target} == {B.id, C.id, D.id}
    assert 200 < sum(target is not None for target in drawn) < 400  # five deviations and more are 8 in 10^16


def test_an_update_is_compared_whether_it_comes_before_or_after_it_was_measured_again(make, disk):
    node = agreed()
    auditor = make(node)
    early, late = B.bundle(3), B.bundle(4)
    disk.kept.append(early)
    auditor.received([early])
    auditor.measured(B.id, 3, early.probes)
    assert auditor.audits.count == 1
    auditor.measured(B.id, 4, late.probes)
    assert auditor.audits.count == 1
    auditor.received([B.bundle(5), late])
    auditor.received([late])
    assert auditor.audits.count == 2


def test_what_never_comes_is_forgotten(make):
    auditor = make(agreed())
    for step in range(3 * WAITING_MAX):
        auditor.measured(B.id, step, [(1, 2)])
    assert len(auditor._waiting) == WAITING_MAX
    assert min(step for _, step in auditor._waiting) == 2 * WAITING_MAX


def told(auditor):
    """What the operator was told of findings."""
    return [one for one in auditor._daemon.hub.told if one[0] != UNAUDITED]


def audit(auditor, origin, steps, scalar):
    for step in steps:
        bundle = origin.bundle(step, scalar=scalar(step))
        auditor.measured(origin.id, step, [(bundle.probes[0][0], 1000 * (-1) ** step)])
        auditor.received(Updates((bundle,)).bundles)


def test_a_finding_is_told_once_and_kept(make, tmp_path):
    node = agreed()
    auditor = make(node)
    audit(auditor, C, range(8), lambda step: 1000 * (-1) ** step)
    audit(auditor, B, range(12), lambda step: -1000 * (-1) ** step)
    ((event, level, facts),) = told(auditor)
    assert (event, level, facts["name"]) == ("audit finding", "error", node.membership.name(B.id))
    found = json.loads((tmp_path / FINDINGS_FOLDER / f"{fingerprint(B.id)}.json").read_text())
    assert found["steps"] == facts["steps"] == list(range(10))
    assert found["audits"] == 10
    assert facts["says"] == auditor.audits.named[B.id].describe()
    assert auditor.add_to(node.view(0.0)).words["audit"].endswith(": " + facts["says"])
    assert auditor.audits.named.keys() == {B.id}


def test_who_would_name_most_hosts_says_that_it_may_be_wrong_itself(make, tmp_path):
    auditor = make(agreed())
    audit(auditor, D, range(1), lambda step: 1000)
    audit(auditor, B, range(12), lambda step: -1000 * (-1) ** step)
    audit(auditor, C, range(12), lambda step: -1000 * (-1) ** step)
    first, second = (event for event, _, _ in told(auditor))
    assert first == "audit finding"
    assert "of this host may be wrong" in second
    assert len(list((tmp_path / FINDINGS_FOLDER).iterdir())) == 1


def test_a_finding_that_cannot_be_kept_is_told_all_the_same(make, tmp_path):
    (tmp_path / FINDINGS_FOLDER).write_text("in the way")
    auditor = make(agreed())
    audit(auditor, B, range(12), lambda step: -1000 * (-1) ** step)
    assert [event for event, _, _ in told(auditor)] == ["audit finding", "the finding could not be kept"]


def test_the_origin_that_names_itself_auditor_is_not_audited(make):
    node = agreed()
    hear(node, B, Members((says_rows(B, THEIRS),)))
    assert {make(node).choose(FIRST)[0] for _ in range(20)} == {B.id}
    assert A.id == node.origin


@pytest.mark.parametrize(("rows", "is_known"), [(THEIRS, True), (None, False), (Rows(2, 4, b"o" * 32), False)])
def test_who_takes_part_on_rows_that_are_not_here_is_named_once(make, rows, is_known):
    node = agreed()
    hear(node, B, Members((says_rows(B, rows), says_rows(C, THEIRS), says_rows(D, OURS))))
    auditor = make(node)
    for step in range(3):
        auditor.received([origin.bundle(step) for origin in (B, C, D)])
    name = node.membership.name(B.id)
    heard = [(event, level, facts["peer"]) for event, level, facts in auditor._daemon.hub.told]
    assert heard == ([] if is_known else [(UNAUDITED, "warning", name)])
    assert unaudited(node, OURS) == ([] if is_known else [name])


def test_whoever_states_other_rows_later_is_named_too(make):
    node = agreed()
    hear(node, B, Members((says_rows(B, THEIRS),)))
    auditor = make(node)
    auditor.received([B.bundle(0)])
    assert auditor._daemon.hub.told == []
    hear(node, B, Members((B.member(version=6, algorithm=pack(Stated(rows=None)), first_step=0),)))
    auditor.received([B.bundle(1)])
    assert [event for event, _, _ in auditor._daemon.hub.told] == [UNAUDITED]


def test_made_up_losses_are_found_but_not_where_other_texts_may_have_been_written(make):
    node = agreed()
    hear(node, B, Members((says_rows(B, THEIRS),)))
    for is_loss_judged in (True, False):
        auditor = make(node)
        for step in range(12):
            bundle = B.bundle(step, scalar=1000 * (-1) ** step)
            ((loss, scalar),) = bundle.probes
            auditor.measured(B.id, step, [(loss + 9000, scalar)], is_loss_judged=is_loss_judged)
            auditor.received([bundle])
        assert (B.id in auditor.audits.named) == is_loss_judged
