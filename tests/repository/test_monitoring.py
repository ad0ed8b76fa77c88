"""Alert rules and dashboards: they parse, fire when they should, and ask for metrics that exist."""

from __future__ import annotations

import json
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).parents[2]
FOLDER = ROOT / "deploy" / "monitoring"
ALERTS = FOLDER / "alerts.yaml"
DASHBOARDS = sorted((FOLDER / "grafana").glob("*.json"))
# What the Python client adds by itself.
OF_THE_CLIENT = {"process_start_time_seconds", "process_resident_memory_bytes"}
SUFFIXES = {
    "histogram": ("_bucket", "_sum", "_count"),
    "summary": ("_sum", "_count"),
}
VARIABLES = {"$__rate_interval": "5m", "$target": ".*"}


def rules() -> list[dict[str, Any]]:
    groups = yaml.safe_load(ALERTS.read_text())["groups"]
    return [rule for group in groups for rule in group["rules"]]


def panels(path: Path) -> list[dict[str, Any]]:
    found = json.loads(path.read_text())["panels"]
    return [panel for panel in found if panel["type"] != "row"]


def expressions(path: Path) -> list[str]:
    return [target["expr"] for panel in panels(path) for target in panel["targets"]]


def documented() -> set[str]:
    """Return the metrics of docs/reference/metrics.md, by the names that Prometheus gives."""
    names = set()
    for line in (ROOT / "docs/reference/metrics.md").read_text().splitlines():
        if row := re.match(r"\| `((?:blizzard|penguin)_\w+)(?:\{.+?\})?` \| (\w+)", line):
            name, kind = row.groups()
            suffixes = SUFFIXES.get(kind, ("",))
            names |= {f"{name}{suffix}" for suffix in suffixes}
    return names


def metrics_in(expression: str) -> set[str]:
    return set(re.findall(r"\b(?:blizzard|penguin|process|python)_\w+", expression))


def promtool(*arguments: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["promtool", *map(str, arguments)],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )


def test_promtool_accepts_the_rules() -> None:
    done = promtool("check", "rules", ALERTS)
    assert done.returncode == 0, done.stdout + done.stderr
    assert f"{len(rules())} rules found" in done.stdout


def test_rules_fire_when_they_should_and_not_before() -> None:
    done = promtool("test", "rules", FOLDER / "alerts_test.yaml")
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_paging_rule_fires() -> None:
    tested = yaml.safe_load((FOLDER / "alerts_test.yaml").read_text())["tests"]
    fired = {
        case["alertname"]
        for each in tested
        for case in each["alert_rule_test"]
        if case.get("exp_alerts")
    }
    critical = {rule["alert"] for rule in rules() if rule["labels"]["severity"] == "critical"}
    assert critical <= fired


def test_every_rule_has_a_remedy() -> None:
    names = [rule["alert"] for rule in rules()]
    runbook = (ROOT / "docs/guides/alerts.md").read_text()
    sections = dict(re.findall(r"^### (\w+)$\n(\w+)\.", runbook, re.MULTILINE))
    severities = {"Page": "critical", "Ticket": "warning"}
    assert {name: severities[word] for name, word in sections.items()} == {
        rule["alert"]: rule["labels"]["severity"] for rule in rules()
    }
    assert len(set(names)) == len(names)
    for rule in rules():
        assert rule["labels"]["severity"] in {"critical", "warning"}
        assert rule["annotations"]["summary"]
        place = "{{ with $externalLabels.runbooks }}{{ . }}/{{ end }}docs/guides/alerts.md"
        assert rule["annotations"]["runbook_url"] == f"{place}#{rule['alert'].lower()}"


def test_rules_use_existing_metrics() -> None:
    asked = {name for rule in rules() for name in metrics_in(rule["expr"])}
    assert asked
    assert asked <= documented() | OF_THE_CLIENT


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_use_existing_metrics(path: Path) -> None:
    asked = {name for expression in expressions(path) for name in metrics_in(expression)}
    assert asked
    assert asked <= documented() | OF_THE_CLIENT


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboard_queries_are_valid_promql(path: Path, tmp_path: Path) -> None:
    found = []
    for number, expression in enumerate(expressions(path)):
        text = expression
        for variable, value in VARIABLES.items():
            text = text.replace(variable, value)
        assert "$" not in text
        found.append({"record": f"panel:{number}", "expr": text})
    wrapped = tmp_path / "rules.yaml"
    wrapped.write_text(yaml.safe_dump({"groups": [{"name": path.stem, "rules": found}]}))
    done = promtool("check", "rules", wrapped)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize("path", DASHBOARDS, ids=lambda path: path.stem)
def test_dashboards_are_laid_out(path: Path) -> None:
    board = json.loads(path.read_text())
    assert board["uid"] == path.stem
    assert [variable["name"] for variable in board["templating"]["list"]] == [
        "datasource",
        "target",
    ]
    taken: set[tuple[int, int]] = set()
    for panel in board["panels"]:
        place = panel["gridPos"]
        assert place["x"] + place["w"] <= 24
        cells = {
            (x, y)
            for x in range(place["x"], place["x"] + place["w"])
            for y in range(place["y"], place["y"] + place["h"])
        }
        assert not cells & taken, panel["title"]
        taken |= cells
    numbers = [panel["id"] for panel in board["panels"]]
    assert len(set(numbers)) == len(numbers)
    for panel in panels(path):
        assert panel["datasource"]["uid"] == "${datasource}"
        assert all(target["legendFormat"] for target in panel["targets"])


def test_there_is_a_dashboard_for_each_daemon() -> None:
    assert [path.stem for path in DASHBOARDS] == ["blizzard", "penguin"]
