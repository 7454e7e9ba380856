"""A warrant: what a quorum has signed of an epoch's sum. It stays with the sum, on the disk and on its way.

Hosts sign chains of digests (`evidence`), and everyone knows their newest statements only. So a sum that a quorum has
signed could soon not be shown to be one: who signed is removed, or takes in something late and states another chain
from then on. A host that was cut off meanwhile could never take the sum, and nobody has the bundles any more. So
whoever replaces bundles by a sum keeps the statements that allowed it, and what it takes to check them: the chain
before the epoch, and the digests of this epoch and of those after it, as far as the statements go.

Who is given the sum asks whether those who signed are a quorum by the roster that it knows (`quorum`), which lists
removed hosts as well. When they signed does not matter, so nobody gains by a false date. With more than half of all
that were ever listed among those who signed, one of them is honest, and signed what it held.

Each removal leaves fewer hosts that may be away: with 5 hosts and 5 removed ones a quorum is 6, so all 5 must sign. A
warrant takes some 350 bytes per signer.
"""

from collections.abc import Callable, Iterable

from seedflood.protocol.origin import OriginId
from seedflood.protocol.seedflood.chain import Chain
from seedflood.protocol.seedflood.messages import CLOSED_DIGESTS_MAX, Warrant
from seedflood.protocol.seedflood.statement import stated
from seedflood.protocol.swarm.messages import Member

WARRANT_MEMBERS_MAX = 512
"""The most statements: more than half of a thousand hosts. What larger quorums sign is shown by newest statements
alone."""

WARRANT_NEIGHBOURS_MAX = 1 << 15
"""The most neighbours in all of these statements: 256 KiB."""


def issue(chain: Chain, epoch: int, members: Iterable[Member], period: int) -> Warrant | None:
    """The warrant of an epoch of the chain; None if none of the members has closed it. members: they state what the
    chain says. period: steps per epoch."""
    said = [(member, stated(member).closed.before // period) for member in members]
    fitting = [
        (member, count) for member, count in said if epoch < count <= min(len(chain), epoch + CLOSED_DIGESTS_MAX)
    ]
    fitting.sort(key=lambda one: len(one[0].neighbours))
    room, chosen = WARRANT_NEIGHBOURS_MAX, []
    for member, count in fitting[:WARRANT_MEMBERS_MAX]:
        room -= len(member.neighbours)
        if room >= 0:
            chosen.append((member, count))
    if not chosen:
        return None
    end = max(count for _, count in chosen)
    return Warrant(chain.at(epoch), tuple(chain.digests[epoch:end]), tuple(member for member, _ in chosen))


def signers(warrant: Warrant, epoch: int, period: int, is_signed: Callable[[Member], bool]) -> set[OriginId]:
    """Who has signed the sum of this epoch. Stops at the first wrong signature. Raises PeerError for statements that
    nobody makes."""
    chain = Chain(warrant.before)
    for digest in warrant.digests:
        chain.append(digest)
    found: set[OriginId] = set()
    for member in warrant.members:
        closed = stated(member).closed
        end, rest = divmod(closed.before, period)
        is_of_it = not rest and epoch < end <= epoch + len(chain) and closed[1:] == chain.at(end - epoch)
        if not is_of_it or not is_signed(member):
            break
        found.add(member.origin)
    return found
