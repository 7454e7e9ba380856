"""Hosts that write texts, score them and learn from them, through the faults that any run survives."""

import json
import signal
from itertools import islice

import pytest
from ledgers import Ledger, check_replays, finish
from processes import Hosts, ring

from seedflood import embedded

pytestmark = [pytest.mark.system, pytest.mark.long, pytest.mark.timeout(900)]

RUN = {
    "task": "reward",
    "estimate": "gradient",
    "max_new_tokens": 1,
    "batch_size": 4,
    "steps": 36,
    "refresh_period": 12,
    "learning_rate": 0.1,
    "clients": 3,
}


@pytest.fixture
def rows(tmp_path):
    """Beginnings of reviews, after which the model writes "but" or "even" (though) about as often."""
    texts = (row["text"].partition(" , ") for row in embedded.texts("train"))
    prompts = islice((f"{head} ," for head, _, rest in texts if rest.startswith(("but", "even"))), 64)
    path = tmp_path / "rows.jsonl"
    path.write_text("".join(json.dumps({"prompt": prompt, "answer": "even"}) + "\n" for prompt in prompts))
    return str(path)


def test_hosts_killed_while_they_write_say_nothing_twice_and_a_late_comer_has_what_all_learned(hosts: Hosts, rows):
    """`finish` compares the digests. A step that was measured again would contradict what the others hold, if another
    text were written."""
    node = {"data": rows, "evaluate_examples": 16, "evaluate_every": 0, "then": "serve"}
    *made, late_comer = hosts.make(4, [*ring(3), (3, 0)], RUN, node)
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
    results = finish(hosts.hosts)
    assert all(result["reward_before"] < 0.75 < result["reward_after"] for result in results)
    for host in hosts.hosts:
        ledger.look(host.journal)
    assert not ledger.contradictions
    check_replays(hosts.hosts)
