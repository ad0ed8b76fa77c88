"""The settings of the cleaning of source files, and their checks."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config

ARCHIVE = {"mode": "archive", "archive_uri": "s3://archive/events"}

TAGS = {"mode": "tag", "archive_uri": None}


def load(home: Path, clean: dict[str, Any], **more: Any) -> Config:
    source = {"source_uri": "s3://raw/events", "clean": clean, **more}
    document = {
        "pipelines": {
            "events": {
                "sources": {"main": source},
                "sink": {"table_uri": "s3://lake/events"},
                "schema": {"fields": [{"name": "a", "type": "string"}]},
            }
        }
    }
    path = home / "config.yaml"
    path.write_text(yaml.safe_dump(document))
    return load_config(path)


def test_archive_is_a_dry_run_by_default(tmp_path: Path) -> None:
    source = load(tmp_path, ARCHIVE).pipelines["events"].sources["main"].as_files
    assert source is not None
    assert source.clean is not None
    assert (source.clean.after, source.clean.dry_run) == (30 * 86_400, True)


@pytest.mark.parametrize("scheme", ["s3", "gs", "abfss"])
def test_tags_need_a_store_with_tags(tmp_path: Path, scheme: str) -> None:
    raw = f"{scheme}://raw@account.dfs.core.windows.net/events"
    source = load(tmp_path, ARCHIVE | TAGS, source_uri=raw).pipelines["events"].sources["main"]
    assert source.as_files is not None
    assert source.as_files.clean is not None
    assert source.as_files.clean.put_tag == "blizzard=ingested"


@pytest.mark.parametrize(
    ("clean", "more", "problem"),
    [
        ({"after": "12h"}, {}, "after must be at least 1d with mode: archive"),
        (
            {"mode": "delete", "archive_uri": None, "after": "6d"},
            {},
            "after must be at least 7d with mode: delete",
        ),
        ({"archive_uri": None}, {}, "give archive_uri with mode: archive"),
        ({"mode": "delete"}, {}, "give archive_uri with mode: archive"),
        (TAGS | {"after": "23h"}, {}, "after must be at least 1d with mode: tag"),
        (TAGS | {"archive_uri": "s3://archive"}, {}, "give archive_uri with mode: archive"),
        (TAGS, {"source_uri": "/raw"}, "clean.mode: tag is not for local disks"),
        (TAGS, {"source_uri": "memory://raw"}, "clean is not for memory://"),
        ({}, {"use_watermark": False}, "clean needs use_watermark: true"),
        ({}, {"use_watermark": False, "units": {}}, "clean needs use_watermark: true"),
        ({}, {"source_uri": "memory://raw"}, "clean is not for memory://"),
        ({"archive_uri": "/archive"}, {}, "the same kind of store"),
        ({"archive_uri": "s3://raw/events/archive"}, {}, "overlaps with"),
        ({"archive_uri": "s3://raw"}, {}, "overlaps with"),
        ({"archive_uri": "s3://lake/events/old"}, {}, "overlaps with"),
    ],
)
def test_unsafe_cleaning_is_refused(
    tmp_path: Path, clean: dict[str, Any], more: dict[str, Any], problem: str
) -> None:
    with pytest.raises(ConfigError) as error:
        load(tmp_path, ARCHIVE | clean, **more)
    assert problem in str(error.value)


def test_query_over_event_time_is_refused(tmp_path: Path) -> None:
    load(tmp_path, ARCHIVE)
    path = tmp_path / "config.yaml"
    document = yaml.safe_load(path.read_text())
    pipeline = document["pipelines"]["events"]
    pipeline["schema"]["fields"].append({"name": "t", "type": "timestamp", "nullable": False})
    pipeline["event_time"] = {
        "column": "t",
        "delay": "5 minutes",
        "deduplicate": ["a"],
    }
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="is not for a query over event_time: rows"):
        load_config(path)


def test_two_sources_need_two_archives(tmp_path: Path) -> None:
    load(tmp_path, ARCHIVE)
    path = tmp_path / "config.yaml"
    document = yaml.safe_load(path.read_text())
    sources = document["pipelines"]["events"]["sources"]
    sources["other"] = {"source_uri": "s3://raw/other", "clean": ARCHIVE}
    path.write_text(yaml.safe_dump(document))
    with pytest.raises(ConfigError, match="is the archive of"):
        load_config(path)
