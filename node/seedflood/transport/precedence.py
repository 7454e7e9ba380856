"""Which stream stays if there are two between two nodes, because both have dialled:

1. The stream of the newer incarnation: a peer that restarted is not locked out by its old, half-dead link.
2. Else, if the same side dialled both, the newer one.
3. Else the dialled side keeps the link that it has. The dialler may not have known whose address it dialled. It is told
   so, and from then on it dials only while it has no link with that peer. If it dials again, the old link is dead, and
   is replaced.
4. Else the hellos have crossed, and each side has accepted the other's stream. Both keep the one that the smaller
   origin dialled.

A peer is refused if a newer incarnation of it is linked. First we send it our hello, which names the newer incarnation
with that one's signature. If it is the older of two processes with one key, it has to end. If only its clock has gone
back, it takes a higher incarnation and dials again. If we are the ones who dial the older process, it gets the same
hello: an address is dialled again when its link ends, even if its peer is linked by another stream then.
"""

from seedflood.protocol.swarm.messages import Hello
from seedflood.transport.link import Link
from seedflood.transport.server import Stream


def is_preferred(hello: Hello, ours: Hello, stream: Stream, old: Link) -> bool:
    """Does a stream with this hello replace the link that we have with its sender?"""
    if hello.member.incarnation != old.hello.member.incarnation:
        return hello.member.incarnation > old.hello.member.incarnation
    if stream.is_dialled == old.is_dialled:
        return True
    return ours.member.origin < old.peer if stream.is_dialled else old.has_outlived_dial


def is_outlived(hello: Hello, old: Link | None) -> bool:
    """Is a newer incarnation of the sender linked?"""
    return old is not None and hello.member.incarnation < old.hello.member.incarnation
