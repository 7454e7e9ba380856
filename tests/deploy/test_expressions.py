"""Alerts and dashboard ask for what a node has: every metric, label and label value of theirs is in a real scrape."""

import json
import re
import urllib.request
from collections import defaultdict
from pathlib import Path
from typing import Any

import pytest
import yaml
from processes import Hosts, ring
from prometheus_client.parser import text_string_to_metric_families

DEPLOY = Path(__file__).parents[2] / "deploy"
SELECTOR = re.compile(r"\b(?P<name>(?:seedflood|process)_[a-z_]+)\b(?:\{(?P<matchers>[^}]*)\})?")
MATCHER = re.compile(r'(?P<label>[a-z_]+)(?P<operator>=~|!=|!~|=)"(?P<value>[^"]*)"')
GROUPING = re.compile(r"\b(?:by|on) \((?P<labels>[^)]*)\)")
OF_PROMETHEUS = {"job", "instance", "le"}

Labels = dict[str, set[str]]

BY_GRADIENTS = {"steps": 2000, "estimate": "gradient"}
BY_GASLOC = {
    "mode": "gasloc",
    "task": "lm",
    "max_length": 16,
    "steps": 2000,
    "local_steps": 10,
}


@pytest.fixture(scope="module")
def scraped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Labels]:
    """Samples of nodes that train with a neighbour, by either algorithm: by name, the values of each label."""
    samples: dict[str, Labels] = {}
    for count, run, node in ((3, BY_GRADIENTS, {}), (2, BY_GASLOC, {"data": "embedded"})):
        for family in text_string_to_metric_families(scrape(tmp_path_factory.mktemp("hosts"), count, run, node)):
            for sample in family.samples:
                labels = samples.setdefault(sample.name, defaultdict(set))
                for label, value in sample.labels.items():
                    labels[label].add(value)
    return samples


def scrape(folder: Path, count: int, run: dict[str, Any], node: dict[str, Any]) -> str:
    hosts = Hosts(folder)
    try:
        first, *_ = made = hosts.make(count, ring(count), run, {"evaluate_examples": 8} | node)
        for host in made:
            host.start()
        first.wait_for("progress", step=5)
        address = json.loads((first.settings.node.state / "http.json").read_text())["address"]
        with urllib.request.build_opener(urllib.request.ProxyHandler({})).open(
            f"http://{address}/metrics", timeout=30
        ) as answer:
            text: str = answer.read().decode()
    finally:
        hosts.close()
    return text


def expressions() -> list[str]:
    groups = yaml.safe_load((DEPLOY / "prometheus" / "alerts.yaml").read_text())["groups"]
    found = [rule["expr"] for group in groups for rule in group["rules"]]
    dashboard = json.loads((DEPLOY / "grafana" / "seedflood.json").read_text())
    found += [target["expr"] for panel in dashboard["panels"] for target in panel["targets"]]
    found += [one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"]
    return found


def faults(expression: str, samples: dict[str, Labels]) -> list[str]:
    """What the expression asks for and nobody has."""
    wrong, labels_at_hand = [], set(OF_PROMETHEUS)
    for selector in SELECTOR.finditer(expression):
        name = selector["name"]
        if name not in samples:
            wrong.append(name)
            continue
        labels_at_hand |= set(samples[name])
        for label, operator, value in MATCHER.findall(selector["matchers"] or ""):
            if label not in samples[name] and label not in OF_PROMETHEUS:
                wrong.append(f"{name}{{{label}}}")
            elif operator == "=" and label not in OF_PROMETHEUS and value not in samples[name][label]:
                wrong.append(f"{name}{{{label}={value}}}")
    for grouping in GROUPING.finditer(expression):
        wrong += [label for label in grouping["labels"].split(", ") if label not in labels_at_hand]
    return wrong


@pytest.mark.system
@pytest.mark.parametrize("expression", sorted(set(expressions())))
def test_every_expression_asks_for_what_a_node_has(expression: str, scraped: dict[str, Labels]):
    assert SELECTOR.search(expression) or expression.startswith("up{")
    assert faults(expression, scraped) == []


def test_an_expression_that_asks_for_more_is_found():
    samples: dict[str, Labels] = {"seedflood_peers": {"state": {"linked"}}}
    assert faults('sum by (state) (seedflood_peers{job="x", state="linked"})', samples) == []
    assert faults("seedflood_peer", samples) == ["seedflood_peer"]
    assert faults('seedflood_peers{stat="linked"}', samples) == ["seedflood_peers{stat}"]
    assert faults('seedflood_peers{state="gone"}', samples) == ["seedflood_peers{state=gone}"]
    assert faults("sum by (reason) (seedflood_peers)", samples) == ["reason"]


def test_panels_do_not_overlap():
    panels = json.loads((DEPLOY / "grafana" / "seedflood.json").read_text())["panels"]
    taken: set[tuple[int, int]] = set()
    for place in (panel["gridPos"] for panel in panels):
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken
        assert place["x"] + place["w"] <= 24
        taken |= cells
