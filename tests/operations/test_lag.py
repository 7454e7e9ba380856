"""The lag of an event loop, on one whose clock is set by hand."""

from prometheus_client import CollectorRegistry

from seedflood.operations.lag import PERIOD_SECONDS, LoopLag


class Loop:
    def __init__(self):
        self.now = 0.0
        self.timers = []

    def time(self):
        return self.now

    def call_at(self, due, call, *args):
        self.timers.append((due, call, args))
        return self

    def cancel(self):
        self.timers.clear()

    def turn(self, late):
        due, call, args = self.timers.pop()
        self.now = due + late
        call(*args)


def test_what_holds_the_loop_up_is_seen_once_for_what_it_was():
    registry, loop = CollectorRegistry(), Loop()
    lag = LoopLag(registry)
    lag.start(loop)
    for late in (0.0, 0.3, 0.0, 0.02):
        loop.turn(late)
    sample = registry.get_sample_value
    assert sample("seedflood_event_loop_lag_seconds_count") == 4
    assert sample("seedflood_event_loop_lag_seconds_bucket", {"le": "0.1"}) == 3
    assert loop.timers[0][0] == loop.now + PERIOD_SECONDS
    lag.stop()
    assert not loop.timers
