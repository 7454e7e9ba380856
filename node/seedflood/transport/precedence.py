"""Which stream stays if there are two between two nodes, because both have dialled.

Both sides decide by the same four rules, from the hellos and from who dialled. A peer of which a newer incarnation is
linked is refused, and is sent our hello first, which names that one with its signature.

The rules, and what the refused peer does: docs/explanation/links.md.
"""

from seedflood.protocol.swarm.messages import Hello
from seedflood.transport.link import Link
from seedflood.transport.server import Stream


def is_preferred(hello: Hello, ours: Hello, stream: Stream, old: Link) -> bool:
    """Does a stream with this hello replace the link that we have with its sender?"""
    if hello.member.incarnation != old.hello.member.incarnation:
        # A peer that restarted is not locked out by its old, half-dead link.
        return hello.member.incarnation > old.hello.member.incarnation
    if stream.is_dialled == old.is_dialled:
        return True
    # The dialled side keeps its link, unless the dialler knew of it and dials again. Crossed: the smaller origin's.
    return ours.member.origin < old.peer if stream.is_dialled else old.has_outlived_dial


def is_outlived(hello: Hello, old: Link | None) -> bool:
    """Is a newer incarnation of the sender linked?"""
    return old is not None and hello.member.incarnation < old.hello.member.incarnation
