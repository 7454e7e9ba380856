"""Both sides may dial, so two streams can stand between two nodes. Which of them stays:

1. the stream of the newer incarnation: a restarted peer is not locked out by its half-dead old link;
2. else, of two streams by the same dialler, the newer;
3. else the dialled side keeps the link that it has. The dialler may not have known whose address it dialled; it is told
   and from then on dials only while it has no link with that peer. So at its next dial the link is dead, and replaced;
4. else the hellos have crossed and either side has accepted the other's stream: the one of the smaller origin stays, on
   both sides alike.

Whoever is refused because a newer incarnation of it is linked is told our hello first: it names the newer one, under
that one's signature. It may be the older of two processes with one key, and has to end; if only its clock has gone
back, it outbids what it finds and dials again. Where it is we who dial the older one, it hears the same: what was
dialled is dialled again when its link ends, whoever is linked by then.
"""

from seedflood.protocol.swarm.messages import Hello
from seedflood.transport.link import Link, Stream


def is_preferred(hello: Hello, ours: Hello, stream: Stream, old: Link) -> bool:
    """Does a stream with this hello take the place of the link that there is with its peer?"""
    if hello.member.incarnation != old.hello.member.incarnation:
        return hello.member.incarnation > old.hello.member.incarnation
    if stream.is_dialled == old.is_dialled:
        return True
    return ours.member.origin < old.peer if stream.is_dialled else old.has_outlived_dial


def is_outlived(hello: Hello, old: Link | None) -> bool:
    """Is a newer incarnation of the sender linked?"""
    return old is not None and hello.member.incarnation < old.hello.member.incarnation
