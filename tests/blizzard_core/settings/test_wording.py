"""Every problem of a configuration is described in words of the file."""

from __future__ import annotations

import copy
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.settings.load import load_config

CONFIGS = Path(__file__).parents[3] / "configs"
# The validator's own words, and names of our classes.
THEIRS = re.compile(
    r"Input should|valid |instance of|[a-z]Settings|Watermark\b|Field required|Extra inputs"
    r"|literal\[|list\[|constrained|Value error|_parsing|String should|should have|should match"
)
VALUES: tuple[Any, ...] = (None, True, 10**30, float("nan"), "", "x", [], {}, [1], {"a": 1})


def places(document: Any, place: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Every key of a document, and the first entry of each list."""
    if place:
        yield place
    if isinstance(document, dict):
        for key, value in document.items():
            yield from places(value, (*place, key))
    elif isinstance(document, list) and document:
        yield from places(document[0], (*place, 0))


def with_value(document: Any, place: tuple[Any, ...], value: Any) -> Any:
    changed = found = copy.deepcopy(document)
    for part in place[:-1]:
        found = found[part]
    found[place[-1]] = value
    return changed


def problems(path: Path, document: Any) -> list[str]:
    path.write_text(yaml.safe_dump(document))
    try:
        load_config(path)
    except ConfigError as error:
        return str(error).splitlines()
    return []


@pytest.mark.parametrize("name", ["example.yaml", "event-time.yaml", "demo-units.yaml"])
def test_errors_for_wrong_values_contain_no_library_wording(name: str, tmp_path: Path) -> None:
    document = yaml.safe_load((CONFIGS / name).read_text())
    told = {
        line
        for number, place in enumerate(places(document))
        for line in problems(
            tmp_path / "c.yaml", with_value(document, place, VALUES[number % len(VALUES)])
        )
    }
    assert len(told) > 10
    assert [line for line in told if THEIRS.search(line)] == []


@pytest.mark.parametrize(
    ("key", "value", "message"),
    [
        (
            "grace_period",
            "soon",
            (
                "grace_period (line N): must be a duration such as `30s`, `5m`, `1h`, `7d` or"
                " `P30D` or 'auto'"
            ),
        ),
        ("grace_period", -1, "grace_period (line N): must be at least 0 or 'auto'"),
        ("use_watermark", "perhaps", "use_watermark (line N): must be true or false"),
        ("advanced.checkpoint", 3, "advanced.checkpoint (line N): must be a block of keys"),
        ("partition_filter", 3, "partition_filter (line N): must be a block of keys"),
        (
            "advanced.checkpoint",
            {"interval_files": 1.5},
            "advanced.checkpoint.interval_files (line N): must be a whole number",
        ),
        (
            "format",
            {"type": "json", "recordz": "a"},
            "format.recordz (line N): unknown key; did you mean records?",
        ),
        (
            "format",
            {"type": "json", "records": 3},
            "format.records (line N): must be text; put quotes around it",
        ),
    ],
)
def test_invalid_value_of_a_union_is_reported_once(
    key: str, value: Any, message: str, tmp_path: Path
) -> None:
    document = yaml.safe_load((CONFIGS / "example.yaml").read_text())
    place = ("pipelines", "events", "sources", "main", *key.split("."))
    [_, told] = problems(tmp_path / "c.yaml", with_value(document, place, value))
    assert re.sub(r"line \d+", "line N", told).strip() == f"pipelines.events.sources.main.{message}"


@pytest.mark.parametrize(
    ("block", "value", "message"),
    [
        ("sources.erp.units", {"partition": 3}, "partition: must be text or a block of keys"),
        ("sources.erp.units", {"partition": {"daily": 1}}, "partition.daily: must be text; put"),
        ("sources.erp.units", {"values": {"list": 3}}, "values.list: must be text or a list"),
        ("sink.partition_by", {"columns": [3]}, "columns[0]: must be text or a block of keys"),
        ("event_time", {"window": 3}, "window: must be text or a block of keys"),
        ("schema", {"fields": [{"items": 3}]}, "items: must be text or a block of keys"),
        ("schema", {"fields": [3]}, "fields[0]: must be a block of keys"),
    ],
)
def test_a_key_names_all_that_it_takes(
    block: str, value: Any, message: str, tmp_path: Path
) -> None:
    document = yaml.safe_load((CONFIGS / "example.yaml").read_text())
    place = ("pipelines", "events", *block.split("."))
    found = problems(tmp_path / "c.yaml", with_value(document, place, value))
    [told] = [re.sub(r" \(line \d+\)", "", each) for each in found if "must be" in each]
    assert message in told


@pytest.mark.parametrize(
    ("place", "remedy"),
    [
        ("pipelines.events.sources.main.checkpoint", ": it belongs into `advanced`"),
        ("pipelines.events.sources.erp.split", ": it belongs into `advanced`"),
        ("pipelines.events.sources.main.split", ": another kind of this block has it"),
        ("pipelines.events.sources.erp.late_files", ": another kind of this block has it"),
        ("pipelines.events.sources.erp.late_file", ""),
        ("pipelines.events.sources.crm.pages.in", ": it belongs into `advanced`"),
        ("pipelines.events.error_handling.dlq_path", ": it belongs into `advanced`"),
        ("connections.crm.timeout", ": it belongs into `advanced`"),
        ("connections.shop.timeout", ": another kind of this block has it"),
        ("global.shutdown_graze", ""),
        ("global.shutdown_grace", ": it belongs into `advanced`"),
        ("tables.events.own_prefix", ""),
    ],
)
def test_an_unknown_key_is_told_where_it_belongs(place: str, remedy: str, tmp_path: Path) -> None:
    document = yaml.safe_load((CONFIGS / "example.yaml").read_text())
    *outer, key = place.split(".")
    block = document
    for part in outer:
        block = block[part]
    block[key] = "1m"
    [told] = [each for each in problems(tmp_path / "c.yaml", document) if "unknown key" in each]
    assert re.sub(r" \(line \d+\)", "", told).strip() == f"{place}: unknown key{remedy}"


@pytest.mark.parametrize("name", ["str", "bool", 2024])
def test_an_odd_name_is_reported_beside_other_problems(name: str | int, tmp_path: Path) -> None:
    document = yaml.safe_load((CONFIGS / "example.yaml").read_text())
    tables = {name: {"table_uri": "/t", "foo": 1}, "int": 3}
    found = problems(tmp_path / "c.yaml", {**document, "tables": tables})
    told = {re.sub(r" \(line \d+\)", "", each).strip() for each in found[1:]}
    where = f"tables.{name}" if isinstance(name, str) else f"tables[{name}]"
    wrong = {f"{where}: must be text; put quotes around it"} if name == 2024 else set()
    assert told >= {f"{where}.foo: unknown key", "tables.int: must be a block of keys", *wrong}


def test_an_unknown_key_may_have_the_name_of_a_marker(tmp_path: Path) -> None:
    document = yaml.safe_load((CONFIGS / "example.yaml").read_text())
    found = problems(tmp_path / "c.yaml", {**document, "[key]": 1})
    assert found[1:] == ["  (top level) (line 1): unknown key"]
