"""The range of a source: what it may be, and what does not go with it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from pydantic import ValidationError

from blizzard_core.settings.sources import SourceRangeSettings, SourceSettings
from blizzard_core.settings.yaml_file import parse_yaml
from tests.support.flat_settings import nested
from tests.support.settings_documents import changed, problems, with_changes

GOOD = changed(
    schema__fields=[
        {"name": "a", "type": "string"},
        {"name": "at", "type": "timestamp", "nullable": False},
    ]
)


def refused(tmp_path: Path, source: dict[str, Any], **more: Any) -> list[str]:
    """Return the problems of a configuration with one source."""
    return problems(tmp_path, with_changes(GOOD, {"sources": {"history": source}, **more}))


def files(ends: Any, **more: Any) -> dict[str, Any]:
    return {"path": "/raw/events", "advanced": {"range": ends}, **more}


def ends_of(given: dict[str, Any]) -> tuple[str, str]:
    found = SourceRangeSettings.model_validate(given)
    return found.from_ or "", found.to or ""


@pytest.mark.parametrize(
    ("given", "ends"),
    [
        (
            {"from": "date=2023-01-01", "to": "date=2023-12-31"},
            ("date=2023-01-01", "date=2023-12-31"),
        ),
        ({"from": "/date=2023-01-01/", "to": "/date=2024/"}, ("date=2023-01-01", "date=2024")),
        ({"to": "date=2023-12-31/"}, ("", "date=2023-12-31")),
        ({"from": "date=2023-01-01"}, ("date=2023-01-01", "")),
        ({"from": "date=2023-01-05", "to": "date=2023-01"}, ("date=2023-01-05", "date=2023-01")),
    ],
)
def test_ends_are_prefixes_without_outer_slashes(
    given: dict[str, Any], ends: tuple[str, str]
) -> None:
    assert ends_of(given) == ends


def test_ends_that_look_like_dates_are_names(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_text("range: {from: 2023-01-01, to: 2023-12-31}")
    assert ends_of(parse_yaml(path).data["range"]) == ("2023-01-01", "2023-12-31")


def test_range_with_both_ends_loads_from_a_file(tmp_path: Path) -> None:
    assert refused(tmp_path, files({"from": "date=2023-01-01", "to": "date=2023-12-31"})) == []


@pytest.mark.parametrize(
    ("ends", "said"),
    [
        ({}, "give from, to or both; leave range out to read everything"),
        ({"from": "", "to": "/"}, "give from, to or both; leave range out to read everything"),
        ({"from": "b", "to": "a"}, "from 'b' sorts above to 'a'; exchange them"),
        ({"from": "s3://raw/events/a"}, "is a name below the source's path"),
    ],
)
def test_range_without_names_is_refused(tmp_path: Path, ends: Any, said: str) -> None:
    [problem] = refused(tmp_path, files(ends))
    assert problem.startswith("pipelines.events.sources.history.advanced.range")
    assert said in problem


def test_range_and_lookback_exclude_each_other(tmp_path: Path) -> None:
    template = {"prefix_template": "date=%Y-%m-%d"}
    source = files({"from": "a"}, partition_filter={**template, "lookback": 2})
    [problem] = refused(tmp_path, source)
    assert problem.startswith("pipelines.events.sources.history ")
    assert "advanced.range and partition_filter.lookback both say where" in problem
    assert refused(tmp_path, files({"from": "a"}, partition_filter=template)) == []


def test_range_is_refused_with_a_query_over_event_time(tmp_path: Path) -> None:
    query = {"column": "at", "delay": "5 minutes", "deduplicate": ["a"]}
    spark = {"master": "local[2]"}
    [problem] = refused(tmp_path, files({"from": "a"}), spark=spark, event_time=query)
    assert problem.startswith("pipelines.events.sources.history.advanced.range ")
    assert "leave it or event_time out" in problem


def test_range_is_for_files_alone(tmp_path: Path) -> None:
    source = {"kind": "table", "connection": "x", "table": "t", "range": {"from": "a"}}
    found = refused(tmp_path, source)
    assert any("sources.history.range" in problem for problem in found)


@pytest.mark.parametrize("end", ["../other/x.json", "a/./b", "a\ud800", "s3://raw/a"])
def test_end_that_is_no_name_is_refused(end: str) -> None:
    with pytest.raises(ValidationError, match="is a name below the source's path"):
        SourceSettings.model_validate(
            nested(SourceSettings, {"path": "/raw", "range": {"from": end}})
        )
