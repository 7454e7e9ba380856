"""Journals of a run that has ended, made without training: every origin has spoken at every step, and signed it."""

import random
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from seedflood.config import RunSettings
from seedflood.host.places import JOURNAL_FILE, KEY_FILE
from seedflood.identity import Identity
from seedflood.protocol.frontier import Frontier
from seedflood.protocol.seedflood.bundles import LOSS_UNIT_BITS, Bundle, make_bundle
from seedflood.protocol.seedflood.messages import ClosedEpoch
from seedflood.protocol.swarm.messages import Member
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.training.seedflood.replica import Replica

SCALAR_SEEN_MAX = 1 << 24
"""In units of 2^-20: projected gradients of language models rarely exceed 16."""


class History:
    """What the origins of a run have published. The first ones own the state folders of donors, which `write` fills."""

    def __init__(self, run: RunSettings, base_digest: bytes, donors: Sequence[Path]) -> None:
        self.run = run
        self.base_digest = base_digest
        self.donors = donors
        for state in donors:
            state.mkdir(parents=True, mode=0o700)
        self.identities = [Identity.load_or_create(state / KEY_FILE) for state in donors]
        self.identities += [Identity.generate() for _ in range(run.clients - len(donors))]
        rng = random.Random(run.seed)
        self.bundles = [self._say(identity, step, rng) for step in range(run.steps) for identity in self.identities]

    def write(self, closed: Sequence[ClosedEpoch] = ()) -> None:
        """Journals of the donors. closed: kept as sums, whatever takes less room."""
        epochs = {one.epoch for one in closed}
        bundles = [one for one in self.bundles if one.step // self.run.seedflood.refresh_period not in epochs]
        for number, state in enumerate(self.donors):
            members = [self._state(k, is_present=k == number) for k in range(len(self.identities))]
            path, run_id = state / JOURNAL_FILE, self.run.run_id()
            with BundleJournal.open(
                path, run_id, self.base_digest, refresh_period=self.run.seedflood.refresh_period
            ) as journal:
                for one in closed:
                    journal.adopt(one)
                journal.append(bundles, members, durable=True)

    def sums(self, replica: Replica) -> list[ClosedEpoch]:
        """All epochs as what their updates add up to. replica: a fresh one of this run."""
        replica.apply(update for bundle in self.bundles for update in bundle.updates())
        frontiers: dict[int, Frontier] = {}
        for bundle in self.bundles:
            epoch = replica.epoch_of(bundle.step)
            frontiers.setdefault(epoch, Frontier()).add(bundle.origin, bundle.first_covered, bundle.last)
        return [ClosedEpoch(epoch, held.held(), replica.sum_epoch(epoch)) for epoch, held in frontiers.items()]

    def _say(self, identity: Identity, step: int, rng: random.Random) -> Bundle:
        probes = ((1 << LOSS_UNIT_BITS, rng.randint(-SCALAR_SEEN_MAX, SCALAR_SEEN_MAX)),)
        bundle = make_bundle(identity.origin, step, probes)
        return bundle.with_signature(identity.sign(bundle.signed_bytes(self.run.run_id(), identity.public_key)))

    def _state(self, number: int, *, is_present: bool) -> Member:
        """Who is not present has left after the last step."""
        identity = self.identities[number]
        name = self.donors[number].parent.name if number < len(self.donors) else f"past-{number + 1}"
        last_step = None if is_present else self.run.steps - 1
        member = Member(identity.public_key, name, 1, last_step=last_step)
        return replace(member, signature=identity.sign(member.signed_bytes(self.run.run_id())))
