from benchmarks.processes import Cluster
from seedflood.host.places import KEY_FILE
from seedflood.identity import Identity


def test_keys_follow_from_the_seed_of_a_run_so_that_it_can_be_measured_again(tmp_path):
    origins = {}
    for name, seed in (("first", 1), ("again", 1), ("other", 2)):
        cluster = Cluster(tmp_path / name, 2, [(0, 1)], run={"clients": 2, "seed": seed})
        identities = [Identity.load_or_create(node.state / KEY_FILE) for node in cluster.nodes]
        assert all(one.is_fresh for one in identities)
        origins[name] = [one.origin for one in identities]
    assert origins["first"] == origins["again"]
    assert len({*origins["first"], *origins["other"]}) == 4
