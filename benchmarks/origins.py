"""Origins of a run without a model, and what they say: as many bundles as a benchmark wants."""

import random
from dataclasses import replace

from benchmarks.relay import RUN_ID
from seedflood.identity import Identity
from seedflood.protocol.seedflood.bundles import LOSS_MAX, Bundle, make_bundle
from seedflood.protocol.seedflood.messages import EpochDigest, Vote
from seedflood.protocol.swarm.messages import Member

SCALAR_SEEN_MAX = 1 << 24
"""In units of 2^-20: projected gradients of language models rarely exceed 16."""

SIGNATURE_BYTES = 64


class Origins:
    """Who speaks, in turn, step by step."""

    def __init__(self, count: int, seed: int = 1) -> None:
        self.identities = [Identity.generate() for _ in range(count)]
        self.members = [introduce(identity, f"origin-{k}") for k, identity in enumerate(self.identities)]
        self._rng = random.Random(seed)
        self._step = 0

    def say(self, updates: int, *, is_signed: bool = False, local_steps: int = 1) -> list[Bundle]:
        """What follows what was published before: of each origin the same number of updates, as they come live."""
        rounds = updates // (len(self.identities) * local_steps)
        bundles = [
            self._bundle(identity, self._step + k * local_steps, local_steps, is_signed)
            for k in range(rounds)
            for identity in self.identities
        ]
        self._step += rounds * local_steps
        return bundles

    def _bundle(self, identity: Identity, step: int, local_steps: int, is_signed: bool) -> Bundle:
        rng = self._rng
        probes = tuple(
            (rng.randint(0, LOSS_MAX), rng.randint(-SCALAR_SEEN_MAX, SCALAR_SEEN_MAX)) for _ in range(local_steps)
        )
        bundle = make_bundle(identity.origin, step, probes)
        if not is_signed:
            return bundle.with_signature(rng.randbytes(SIGNATURE_BYTES))
        return bundle.with_signature(identity.sign(bundle.signed_bytes(RUN_ID, identity.public_key)))


def introduce(identity: Identity, name: str) -> Member:
    member = Member(identity.public_key, name, 1)
    return replace(member, signature=identity.sign(member.signed_bytes(RUN_ID)))


def vote(identity: Identity, epoch: int, digests: EpochDigest) -> Vote:
    unsigned = Vote(identity.origin, epoch, digests)
    return unsigned._replace(signature=identity.sign(unsigned.signed_bytes(RUN_ID, identity.public_key)))
