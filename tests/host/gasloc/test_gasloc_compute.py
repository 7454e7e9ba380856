"""The orders of a node, carried out on a real trainer: what a crash in between must not change."""

import hashlib
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from seedflood.config import RunSettings, load_settings
from seedflood.embedded import grammar
from seedflood.errors import ConfigError, DiskFullError
from seedflood.host.compute import Compute
from seedflood.host.gasloc.files import Incoming
from seedflood.host.gasloc.work import Trouble, Work
from seedflood.protocol.gasloc.orders import (
    Adopt,
    Adopted,
    Checkpointed,
    Encode,
    KeepCheckpoint,
    Mix,
    OpenCopy,
    Opened,
    Publish,
    Restore,
    Restored,
    RoundMixed,
    Share,
    Stepped,
    Take,
    TakeLocalSteps,
    Taken,
)
from seedflood.protocol.gasloc.rules import GaslocRules
from seedflood.protocol.swarm.membership import Membership
from seedflood.storage.snapshots import Snapshots
from seedflood.training.gasloc import outer
from seedflood.training.gasloc.loading import load_trainer
from seedflood.training.gasloc.worker import LocalSteps

RUN = {
    "mode": "gasloc",
    "model": "embedded",
    "task": "lm",
    "template": "{sentence}",
    "max_length": 16,
    "steps": 20,
    "local_steps": 2,
    "batch_size": 2,
    "gamma": 0.5,
    "eta": 0.75,
    "encoding": "bfloat16",
    "learning_rate": 1e-2,
}
RUN_ID = b"r" * 32
ONE, OTHER = 1, 2


@pytest.fixture(scope="module")
def settings(tmp_path_factory):
    rows = tmp_path_factory.mktemp("rows")
    for split, some in zip(("train", "validation"), grammar.rows(7, (40, 10)), strict=True):
        (rows / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in some))
    return load_settings(None, {"run": RunSettings.place(RUN), "node": {"data": str(rows), "device": "cpu"}})


class Node:
    def __init__(self):
        self.membership = Membership()
        self.rules = GaslocRules(bytes(32), bytes(32), 2, steps=RUN["steps"], local_steps=RUN["local_steps"])


class Notes:
    def __init__(self):
        self.pieces, self.distances, self.troubles = [], [], []

    def heard(self, fact):
        match fact:
            case LocalSteps():
                self.pieces.append((fact.step, fact.steps))
            case outer.Mixed():
                self.distances.append(fact.distance)
            case Trouble():
                self.troubles.append(fact.sentence)


class Host:
    """One life of a host, whose orders are carried out at once."""

    def __init__(self, settings, folder, origin, snapshots=None):
        self.trainer = load_trainer(settings.run, settings.node, origin)
        self.notes, self.node = Notes(), Node()
        self.snapshots = snapshots or Snapshots(folder / "snapshots", 2)
        self.incoming = Incoming(folder / "incoming")
        self.work = Work(self.trainer, self.incoming, self.snapshots, RUN_ID)
        self.answers = []
        self.work.node = self.node
        self.compute = Compute(
            lambda job, then: then(job()), lambda action: action(), self.work.begin, self.notes.heard
        )
        self.compute.driver = SimpleNamespace(answered=self.answers.append)

    @property
    def values(self):
        return self.trainer.worker.flat.values_F.numpy().copy()

    def put(self, *orders):
        """Returns the last answer."""
        for order in orders:
            self.compute.put(order)
        return self.answers[-1] if self.answers else None

    def begin(self):
        """Local steps, and their result made ready."""
        return self.put(Restore(), TakeLocalSteps(0, 2), Encode(0, "bfloat16")).content

    def receive(self, content):
        """A sink with all bytes of a content."""
        sink = self.incoming.open(OTHER, content.digest, content.size)
        for offset in range(0, content.size, 50_000):
            sink.write(content.read(offset, min(50_000, content.size - offset)))
        return sink

    def mix(self, content, digest=None):
        share = Share(OTHER, 0.5, digest or content.digest, self.receive(content))
        return self.put(Mix(0, (share,), has_momentum=True))


@pytest.fixture
def pair(settings, tmp_path):
    """A host that has begun a round, and what a partner offers."""
    one = Host(settings, tmp_path / "one", ONE)
    other = Host(settings, tmp_path / "other", OTHER)
    one.begin()
    return one, other.begin()


def test_a_host_goes_on_from_its_checkpoint_as_if_nothing_had_happened(settings, tmp_path, pair):
    one, theirs = pair
    before = one.values
    assert one.mix(theirs) == RoundMixed(())
    assert not np.array_equal(one.values, before)
    assert one.put(KeepCheckpoint(1)) == Checkpointed(1)
    again = Host(settings, tmp_path / "one", ONE)
    assert again.put(Restore()) == Restored(1)
    assert np.array_equal(again.values, one.values)
    for name in ("anchor_F", "previous_F"):
        assert torch.equal(getattr(again.trainer.outer, name), getattr(one.trainer.outer, name))
    assert one.trainer.worker.step == again.trainer.worker.step == 2


def test_a_later_checkpoint_of_the_same_round_takes_the_place_of_the_first(settings, tmp_path, pair):
    one, theirs = pair
    one.mix(theirs)
    one.put(KeepCheckpoint(1), TakeLocalSteps(1, 1), KeepCheckpoint(1))
    again = Host(settings, tmp_path / "one", ONE)
    again.put(Restore())
    assert again.trainer.worker.step == 3


def test_two_hosts_end_with_the_replica_of_one(settings, tmp_path, pair):
    one, _ = pair
    other = Host(settings, tmp_path / "third", OTHER)
    other.begin()
    theirs = other.put(Publish()).content
    one.put(Mix(0, (), has_momentum=True))
    content = one.put(Take(OTHER, theirs.digest, one.receive(theirs), is_backed=False)).content
    assert content.digest == theirs.digest
    assert bytes(content.read(0, content.size)) == bytes(theirs.read(0, theirs.size))
    assert np.array_equal(one.values, other.values)
    assert one.incoming.all() == []
    one.put(KeepCheckpoint(1))
    again = Host(settings, tmp_path / "one", ONE)
    again.put(Restore())
    assert again.put(Publish()).content.digest == theirs.digest


def test_what_is_not_the_replica_that_was_stated_changes_nothing(pair):
    one, theirs = pair
    before = one.values
    assert one.put(Take(OTHER, bytes(32), one.receive(theirs), is_backed=True)) == Taken(None)
    assert one.incoming.all() == [], "what was none is asked for from its first byte on"
    assert np.array_equal(one.values, before)


@pytest.fixture(params=[1e25, 1e38, 1e3])
def huge(request, settings, tmp_path):
    """A host whose numbers are finite, and no parameters of this run."""
    host = Host(settings, tmp_path / "liar", OTHER)
    host.put(Restore(), TakeLocalSteps(0, 2))
    host.trainer.worker.flat.values_F[7:] = request.param
    return host


def test_numbers_that_nobody_can_have_learned_are_not_mixed(pair, huge):
    one, _ = pair
    with pytest.raises(ConfigError, match="have grown beyond what any other takes: begin the run anew, with a lower"):
        huge.put(Encode(0, "bfloat16"))
    huge.trainer.norm_max = math.inf  # it lies
    assert one.mix(huge.put(Encode(0, "bfloat16")).content) == RoundMixed((OTHER,))
    assert np.abs(one.values).max() < 10


@pytest.mark.parametrize("is_backed", [False, True])
def test_a_replica_that_is_far_from_ours_is_taken_only_if_others_vouch_for_it(settings, tmp_path, is_backed):
    node = {"data": str(settings.node.data), "device": "cpu"}
    calm = load_settings(None, {"run": RunSettings.place(RUN | {"gamma": 0.0}), "node": node})
    one, other = (Host(calm, tmp_path / str(origin), origin) for origin in (ONE, OTHER))
    one.begin()
    one.put(Mix(0, (), has_momentum=False))
    other.trainer.worker.flat.values_F += 1
    theirs, before = other.put(Publish()).content, one.values
    answer = one.put(Take(OTHER, theirs.digest, one.receive(theirs), is_backed=is_backed))
    assert answer.is_far == (not is_backed)
    assert np.array_equal(one.values, other.values if is_backed else before)


def test_nobody_ends_with_such_numbers(pair, huge):
    one, _ = pair
    theirs = huge.put(Publish()).content
    before = one.values
    assert one.put(Take(OTHER, theirs.digest, one.receive(theirs), is_backed=True)) == Taken(None)
    assert np.array_equal(one.values, before)


@pytest.mark.parametrize("where", ["values_F", "residual_F"])
def test_a_copy_with_such_numbers_is_not_taken_and_its_donor_is_named(settings, tmp_path, huge, where):
    theirs = huge.trainer.outer
    if where != "values_F":
        huge.trainer.worker.flat.values_F[:] = 0.01
        getattr(theirs, where)[:] = 1e25
    huge.put(KeepCheckpoint(7))
    content = huge.put(OpenCopy(9)).content
    joiner = Host(settings, tmp_path / "joiner", 9)
    before = joiner.values
    assert not joiner.put(Adopt(OTHER, content.digest, joiner.receive(content))).is_right
    assert np.array_equal(joiner.values, before)
    assert joiner.notes.troubles == ["a copy was not taken"]


def test_other_bytes_than_were_offered_are_not_mixed(pair):
    one, theirs = pair
    assert one.mix(theirs, digest=bytes(32)) == RoundMixed((OTHER,))
    assert one.notes.distances == [0.0]
    assert one.trainer.outer.offer is None


def test_what_is_left_of_a_round_is_gone_when_it_is_mixed(pair):
    one, theirs = pair
    one.incoming.open(OTHER, bytes(32), 100).write(b"cut off")
    one.mix(theirs)
    assert one.incoming.all() == []
    assert one.notes.distances[0] > 0
    assert one.notes.troubles == []


def test_local_steps_are_many_jobs_and_one_answer(settings, tmp_path):
    one = Host(settings, tmp_path, ONE)
    one.work._piece = 2
    assert one.put(TakeLocalSteps(0, 5)) == Stepped()
    assert one.notes.pieces[0] == (0, 2)
    assert sum(steps for _, steps in one.notes.pieces) == 5
    assert len(one.answers) == 1


def test_a_copy_is_a_checkpoint_that_somebody_else_goes_on_from(settings, tmp_path, pair):
    donor, _ = pair
    assert donor.put(OpenCopy(9)) == Opened(9, None, 0)
    donor.put(Mix(0, (), has_momentum=True), KeepCheckpoint(7))
    peer, content, round_ = donor.put(OpenCopy(9))
    assert (peer, round_) == (9, 7)
    joiner = Host(settings, tmp_path / "joiner", 9)
    answer = joiner.put(Adopt(ONE, content.digest, joiner.receive(content)))
    assert answer == Adopted(True)
    assert joiner.trainer.worker.step == 2
    assert joiner.trainer.outer.offer is None
    joiner.put(TakeLocalSteps(7, 2), Encode(7, "bfloat16"), Mix(7, (), has_momentum=True))


def test_no_copy_brings_the_state_of_an_optimiser(settings, tmp_path, pair):
    """Else moments that no host has would make the next step as long as a liar likes."""
    donor, _ = pair
    for state in donor.trainer.worker.optimiser.state.values():
        state["exp_avg"].fill_(3e37)
        state["exp_avg_sq"].zero_()
    donor.put(Mix(0, (), has_momentum=True), KeepCheckpoint(7))
    content = donor.put(OpenCopy(9)).content
    joiner = Host(settings, tmp_path / "joiner", 9)
    assert joiner.put(Adopt(ONE, content.digest, joiner.receive(content))).is_right
    before = joiner.values
    joiner.put(TakeLocalSteps(7, 2))
    assert np.abs(joiner.values - before).max() < 0.1


@pytest.mark.parametrize("spoil", ["digest", "foreign", "noise"])
def test_what_is_no_copy_of_the_run_changes_nothing(settings, tmp_path, pair, spoil):
    donor, theirs = pair
    donor.put(Mix(0, (), has_momentum=True), KeepCheckpoint(7))
    content = donor.put(OpenCopy(9)).content
    joiner = Host(settings, tmp_path / "joiner", 9)
    before, digest = joiner.values, content.digest
    if spoil == "digest":
        digest = bytes(32)
    if spoil == "foreign":
        joiner.work._run_id = "another"
    if spoil == "noise":
        content, digest = theirs, hashlib.sha256(theirs.read(0, theirs.size)).digest()
    assert not joiner.put(Adopt(ONE, digest, joiner.receive(content))).is_right
    assert np.array_equal(joiner.values, before)
    assert joiner.incoming.all() == []


def test_a_full_disk_costs_a_checkpoint_and_no_more(settings, tmp_path):
    class Full(Snapshots):
        def save(self, step, arrays, facts):
            raise DiskFullError("no space")

    one = Host(settings, tmp_path, ONE, snapshots=Full(tmp_path / "snapshots", 2))
    one.put(Restore(), TakeLocalSteps(0, 2))
    assert one.put(KeepCheckpoint(1)) == Checkpointed(1, is_written=False)
    assert one.notes.troubles == ["no checkpoint was written"]


def test_a_checkpoint_that_cannot_be_used_is_out_of_the_way_of_the_next(settings, tmp_path):
    one = Host(settings, tmp_path, ONE)
    one.put(Restore(), TakeLocalSteps(0, 2), KeepCheckpoint(5))
    (path,) = (tmp_path / "snapshots").glob("*.safetensors")
    path.write_bytes(b"torn")
    again = Host(settings, tmp_path, ONE, snapshots=Snapshots(tmp_path / "snapshots", 1))
    assert again.put(Restore()) == Restored(None)
    again.put(TakeLocalSteps(0, 2), KeepCheckpoint(1))
    assert Host(settings, tmp_path, ONE).put(Restore()) == Restored(1)
