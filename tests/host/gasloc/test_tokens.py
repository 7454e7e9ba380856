from seedflood.host.gasloc.tokens import SWARM_SECONDS, Tokens


def test_a_host_is_as_fast_as_its_local_steps_are():
    tokens = Tokens(1000)
    assert tokens.per_second == 0.0
    tokens.add(1000, 2.0)
    tokens.add(1000, 3.0)
    assert (tokens.count, tokens.per_second) == (2000, 400.0)


def test_the_swarm_is_as_fast_as_the_rounds_that_its_hosts_state():
    tokens = Tokens(1000)
    tokens.observe(4, 10.0)
    assert tokens.swarm_per_second == 0.0
    tokens.observe(8, 12.0)
    tokens.observe(12, 14.0)
    assert tokens.swarm_per_second == 8 * 1000 / 4.0


def test_what_was_long_ago_does_not_count():
    tokens = Tokens(1000)
    for moment in range(100):
        tokens.observe(moment * moment, float(moment))
    late = 99 - int(SWARM_SECONDS)
    assert tokens.swarm_per_second == 1000 * (99 * 99 - late * late) / SWARM_SECONDS


def test_a_host_that_is_not_counted_any_more_makes_nobody_slower():
    tokens = Tokens(1000)
    for moment, rounds in enumerate((100, 104, 78, 81)):
        tokens.observe(rounds, float(moment))
    assert tokens.swarm_per_second == 3000.0
