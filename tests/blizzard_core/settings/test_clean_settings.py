"""The settings of the cleaning of source files, and their checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.support.settings_documents import (
    cases,
    changed,
    is_reported,
    load,
    problems,
    with_changes,
)

ARCHIVE = {"mode": "archive", "archive_uri": "s3://archive/events"}
TAGS = {"mode": "tag"}


def document(clean: dict[str, Any], source_uri: str = "s3://raw/events") -> dict[str, Any]:
    main = {"source_uri": source_uri, "clean": clean}
    return changed(sources__main=main, sink__table_uri="s3://lake/events")


def test_archive_is_a_dry_run_by_default(tmp_path: Path) -> None:
    source = load(tmp_path, document(ARCHIVE)).pipelines["events"].sources["main"].as_files
    assert (source.clean.after, source.clean.dry_run) == (30 * 86_400, True)


@pytest.mark.parametrize("scheme", ["s3", "gs", "abfss"])
def test_tags_need_a_store_with_tags(tmp_path: Path, scheme: str) -> None:
    raw = f"{scheme}://raw@account.dfs.core.windows.net/events"
    source = load(tmp_path, document(TAGS, raw)).pipelines["events"].sources["main"]
    assert source.as_files.clean.put_tag == "blizzard=ingested"


WRONG = """
clean.after: 12h => after must be at least 1d with mode: archive
clean: {mode: delete, after: 6d} => after must be at least 7d with mode: delete
clean: {mode: archive} => give archive_uri with mode: archive
clean.mode: delete => give archive_uri with mode: archive
clean: {mode: tag, after: 23h} => after must be at least 1d with mode: tag
clean.mode: tag => give archive_uri with mode: archive
clean: {mode: tag}, source_uri: /raw => clean.mode: tag is not for local disks
use_watermark: false => clean needs use_watermark: true
use_watermark: false, units: {} => clean needs use_watermark: true
clean.archive_uri: /archive => the same kind of store
clean.archive_uri: "s3://raw/events/archive" => overlaps with
clean.archive_uri: "s3://raw" => overlaps with
clean.archive_uri: "s3://lake/events/old" => overlaps with
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG))
def test_unsafe_cleaning_is_refused(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    wrong = with_changes(document(ARCHIVE), changes, "pipelines.events.sources.main")
    assert is_reported(problems(tmp_path, wrong), said, place)


def test_query_over_event_time_is_refused(tmp_path: Path) -> None:
    query = {"column": "time", "delay": "5 minutes", "deduplicate": ["time"]}
    found = problems(tmp_path, with_changes(document(ARCHIVE), {"event_time": query}))
    assert any("is not for a query over event_time: rows" in problem for problem in found)


def test_two_sources_need_two_archives(tmp_path: Path) -> None:
    other = {"source_uri": "s3://raw/other", "clean": ARCHIVE}
    found = problems(tmp_path, with_changes(document(ARCHIVE), {"sources.other": other}))
    assert any("is the archive of" in problem for problem in found)
