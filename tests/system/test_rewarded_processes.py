"""Hosts that write texts, score them and learn from them, through the faults that any run survives."""

import json
import signal
from itertools import islice
from pathlib import Path

import pytest
from ledgers import Ledger, check_replays, finish
from networks import Network
from processes import Hosts, ring

from fullness import fill
from seedflood import embedded

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]

RUN = {
    "task": "reward",
    "estimate": "gradient",
    "max_new_tokens": 1,
    "ahead": 2,
    "batch_size": 4,
    "steps": 36,
    "refresh_period": 12,
    "learning_rate": 0.1,
    "clients": 3,
}


@pytest.fixture
def node(tmp_path):
    """Beginnings of reviews, after which the model writes "but" or "even" (though) about as often."""
    texts = (row["text"].partition(" , ") for row in embedded.texts("train"))
    prompts = islice((f"{head} ," for head, _, rest in texts if rest.startswith(("but", "even"))), 64)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": "even"}) + "\n" for prompt in prompts))
    return {"data": str(path), "evaluate_examples": 16, "evaluate_every": 0}


def test_hosts_killed_while_they_write_say_nothing_twice_and_a_late_comer_has_what_all_learned(hosts: Hosts, node):
    """A step that was measured again would contradict what the others hold, if another text were written."""
    *made, late_comer = hosts.make(4, [*ring(3), (3, 0)], RUN, {**node, "then": "serve"})
    ledger = Ledger(made[0])
    for host in made:
        host.start()
    for victim, step in zip(made[1:], (6, 20), strict=True):
        victim.wait_for("progress", step=step)
        victim.kill()
        ledger.look(victim.journal)
        victim.start()
    for host in made:
        host.wait_for("finished")
    late_comer.start().wait_for("finished")
    for host in hosts.hosts:
        host.signal(signal.SIGTERM)
    check_learned(hosts)
    for host in hosts.hosts:
        ledger.look(host.journal)
    assert not ledger.contradictions


def test_halves_that_are_cut_off_wait_with_their_texts_and_go_on_when_the_network_is_whole(
    hosts: Hosts, network: Network, node
):
    made = hosts.make(4, ring(4), {**RUN, "clients": 4}, node, **network.attach_two_and_two())
    for host in made:
        host.start()
    made[0].wait_for("progress", step=6)
    network.cut()
    for host in made:
        host.wait_until_cut_off()
    network.heal()
    check_learned(hosts)


def test_all_wait_for_a_writer_whose_disk_is_full_and_lose_nothing(hosts: Hosts, small_disk: Path, node):
    made = hosts.make(3, ring(3), RUN, node)
    made[1].move_state(small_disk)
    for host in made:
        host.start()
    made[1].wait_for("progress", step=14)  # an epoch has been closed
    filler = fill(small_disk)
    assert made[1].wait_for("disk full")["publishing"] is False
    for host in (made[0], made[2]):
        host.listen()
        # Under load another one may still write its texts when this is logged for the first time.
        assert host.wait(lambda line: line.get("waiting_for") == [made[1].name]) is not None
    filler.unlink()
    made[1].wait_for("disk has space again")
    check_learned(hosts)


def check_learned(hosts: Hosts) -> None:
    """All end with one digest, which follows from every journal, with every step of everyone, and with more reward."""
    results = finish(hosts.hosts)
    assert {result["updates"] for result in results} == {hosts.hosts[0].settings.run.clients * RUN["steps"]}
    assert all(result["reward_before"] < 0.75 < result["reward_after"] for result in results)
    check_replays(hosts.hosts)
