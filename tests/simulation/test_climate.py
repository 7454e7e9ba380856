import random

from simulation.climate import draw_climate
from simulation.network import Weather
from simulation.profiles import CLIMATES


def drawn(names, seeds=60):
    return [draw_climate(names, Weather(lose=0.1), 6, random.Random(seed)) for seed in range(seeds)]


def test_the_usual_climate_alone_is_always_the_same():
    assert len(set(drawn(("usual",)))) == 1


def test_hops_take_longer_than_eight_rounds_in_a_far_world():
    for climate in drawn(("far",)):
        assert climate.weather.delay_max > 8 * climate.paces[0].seconds_max
        assert climate.weather.lose == 0.1


def test_hosts_of_an_uneven_world_differ_in_speed_and_one_may_be_fast_alone():
    paces = [sorted(pace.seconds_min for pace in climate.paces) for climate in drawn(("uneven",))]
    assert all(pace[-1] > 2 * pace[0] for pace in paces)
    assert any(pace[1] == pace[-1] > 10 * pace[0] for pace in paces)


def test_some_links_have_one_address():
    climates = drawn(CLIMATES)
    assert {climate.name for climate in climates} == set(CLIMATES)
    assert {climate.weather.is_one_sided for climate in climates} == {True, False}
