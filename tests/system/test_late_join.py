"""A node that joins a run which is under way."""

import signal
from dataclasses import replace
from pathlib import Path

import pytest
from ledgers import check_replays, finish
from meters import Meters
from processes import SILENCE_SECONDS_MAX, Host, Hosts, ring

from seedflood.config import RunSettings
from seedflood.host.places import KEY_FILE
from seedflood.identity import Identity
from seedflood.protocol.seedflood.bundles import Bundle, make_bundle
from seedflood.protocol.swarm.messages import Member
from seedflood.storage.seedflood.journal import BundleJournal
from seedflood.training.loading import load_base
from seedflood.training.seedflood.trainer import Trainer

pytestmark = [pytest.mark.system, pytest.mark.timeout(900)]

PAST_STEPS = 20_000
PART_BYTES = 1 << 20
"""Of the three million that the past has."""


def test_a_late_comer_is_ready_soon_after_its_first_link(hosts: Hosts):
    steps = 250
    run = {"steps": steps, "window": "bounded", "refresh_period": 25, "clients": 4}
    made = hosts.make(4, ring(4), run, {"patience_seconds": 1.0})
    for host in made[:3]:
        host.start()
    made[0].wait_for("progress", step=60)  # two epochs are over
    late = made[3].start()
    agreed = late.wait_for("replica agrees")
    late.wait_for("ready")
    print(f"ready {agreed['seconds_since_link']} s after the first link, at step {made[0].step}")
    made[0].wait_for("progress", received=4)
    results = finish(made)
    assert results[0]["updates"] == 4 * steps
    check_replays(made)


@pytest.mark.long
def test_a_late_comer_whose_donor_dies_in_the_middle_goes_on_with_another_one(hosts: Hosts, request):
    """It reaches both others by ways that stop when a part of the past has come."""
    run = {"steps": PAST_STEPS + 300, "window": "bounded", "refresh_period": 10**6}
    made = hosts.make(3, [(0, 1)], run, {"patience_seconds": 300.0})  # until the donor is back: it replays its past
    give_a_past(made[:2], PAST_STEPS)
    for host in made[:2]:
        host.start()
    for host in made[:2]:
        host.wait_for("caught up")
    meters = Meters(PART_BYTES)
    request.addfinalizer(meters.close)
    late = made[2]
    with (late.folder / "peers.toml").open("a") as settings:
        settings.writelines(f'[[peers]]\naddress = "{meters.open(host.settings.node.listen)}"\n' for host in made[:2])
    late.start()
    assert meters.is_full.wait(SILENCE_SECONDS_MAX), "it has pulled a part"
    assert not late.has_said("caught up"), "it was in the middle"
    donor = next(host for host in made if host.settings.node.listen == meters.stopped)
    donor.kill()
    late.wait_for("caught up")
    donor.start()
    finish(made)
    assert len({one.updates for one in check_replays(made)}) == 1


@pytest.mark.long
def test_under_gradients_a_late_comer_pulls_sums_of_closed_epochs_and_little_else(hosts: Hosts):
    """By Adam, so in strict windows: those of a run begin together. One that was never here comes when it is over."""
    steps, period = 150, 48
    run = {"estimate": "gradient", "steps": steps, "refresh_period": period, "clients": 3, "window": "strict"}
    made = hosts.make(4, [*ring(3), (3, 0)], run, {"then": "serve"})
    for host in made[:3]:
        host.start()
    for host in made[:3]:
        host.wait(lambda _, host=host: host.has_said("finished") and compacted(host) == steps // period)
    trainer = Trainer(made[0].settings.run, made[0].settings.node)
    late_comer = made[3].start()
    ready = late_comer.wait_for("ready")
    late_comer.wait(lambda _: late_comer.has_said("finished"))
    for host in made:
        host.signal(signal.SIGTERM)
    finish(made)
    (late,) = check_replays(made[3:])
    assert (late.closed_epochs, late.updates) == (steps // period, 3 * (steps % period))
    told = 3 * (steps % period) * trainer.compression.size + late.closed_epochs * trainer.replica.epoch_bytes
    assert ready["pull_bytes"] < told + 30_000
    assert ready["pull_bytes"] < 3 * steps * trainer.compression.size / 2


def compacted(host: Host) -> int:
    return sum(line.get("event") == "journal compacted" for line in host.events)


def give_a_past(hosts: list[Host], steps: int) -> None:
    """Journals as after so many steps of these hosts alone."""
    run = hosts[0].settings.run
    base_digest = load_base(run, hosts[0].settings.node).digest
    keys = [load_key(host.settings.node.state) for host in hosts]
    members = [introduce(host.name, key, keys, run.run_id()) for host, key in zip(hosts, keys, strict=True)]
    bundles = [bundle for step in range(steps) for bundle in (sign(key, step, run) for key in keys)]
    for host in hosts:
        with BundleJournal.open(
            host.journal, run.run_id(), base_digest, refresh_period=run.seedflood.refresh_period
        ) as journal:
            journal.append(bundles, members, durable=True)


def load_key(state: Path) -> Identity:
    state.mkdir(mode=0o700)
    return Identity.load_or_create(state / KEY_FILE)


def introduce(name: str, key: Identity, all_keys: list[Identity], run_id: bytes) -> Member:
    neighbours = tuple(sorted(other.origin for other in all_keys if other is not key))
    unsigned = Member(key.public_key, name, 1, neighbours=neighbours)
    return replace(unsigned, signature=key.sign(unsigned.signed_bytes(run_id)))


def sign(key: Identity, step: int, run: RunSettings) -> Bundle:
    unsigned = make_bundle(key.origin, step, ((0, 0),))
    return unsigned.with_signature(key.sign(unsigned.signed_bytes(run.run_id(), key.public_key)))
