"""Hosts that draw lots (`lots`) as a mode of real daemons: `add_lots`, then `mode = "lots"` in peers.toml."""

import asyncio
import random
from math import fsum

from lots import LotNode

from seedflood.config import AlgorithmSettings
from seedflood.host.driver import Driver
from seedflood.host.engine import Engine
from seedflood.host.modes import add_mode
from seedflood.host.places import JOURNAL_FILE
from seedflood.identity import verify
from seedflood.protocol.swarm.rules import SwarmRules
from seedflood.storage.journal import Journal

BASE_DIGEST = b"lots".ljust(32)


class LotSettings(AlgorithmSettings):
    most: float = 1.0
    """The numbers lie between 0 and this."""


class LotEngine(Engine):
    def __init__(self, settings, journal):
        super().__init__(settings, journal, ())
        self._run = settings.run

    def assemble(self, member):
        rules = SwarmRules(self._run.run_id(), BASE_DIGEST, self._run.clients, self._run.steps)
        daemon = self.daemon
        key = daemon.identity
        self.node = LotNode(rules, member, key.sign, verify, daemon.access, is_key_fresh=key.is_fresh)
        self.driver = Driver(self.node, self.journal, daemon.links, self._draw, daemon, daemon.loop.time)

    def _draw(self, step):
        self.daemon.identity.use()  # before anything is published that this host must not contradict
        most = self._run.algorithm.most

        def tell(number):
            self.daemon.drive(lambda: self.driver.answered((step, number)))

        self.daemon.run(lambda: random.uniform(0.0, most), tell)

    def result(self):
        numbers = self.node.lots.known.values()
        return {"mean": fsum(numbers) / len(numbers)}


async def open_lots(settings, identity, compute, hub, undo):
    place = (settings.node.state / JOURNAL_FILE, settings.run.run_id(), BASE_DIGEST)
    return LotEngine(settings, undo.enter_context(await asyncio.to_thread(Journal.open, *place)))


def add_lots():
    add_mode("lots", LotSettings, open_lots)
