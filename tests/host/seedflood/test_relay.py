"""A relay does not believe everything that it is told of its run."""

from seedflood.config import Settings
from seedflood.host.seedflood.flooding import make_rules
from seedflood.host.seedflood.relay import RelayEngine
from seedflood.protocol.seedflood.form import Form
from seedflood.protocol.seedflood.payload import PAIRS


def test_a_liar_who_tells_of_huge_epochs_makes_a_relay_keep_no_more_of_one_than_the_wire_carries():
    rules = make_rules(Settings().run, bytes(32), Form(1 << 40, 24, PAIRS, None))
    assert RelayEngine(Settings(), rules, None).frame_bytes_max < 1 << 26
