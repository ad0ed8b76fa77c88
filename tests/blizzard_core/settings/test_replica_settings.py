"""Settings of replicas, and what is refused."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml

from blizzard_core.errors import ConfigError
from blizzard_core.settings.load import load_config

SINK = {"table_uri": "s3://lake/events"}
SCHEMA = {"fields": [{"name": "id", "type": "int64"}]}


def config(path: Path, replicas: dict[str, Any], **source: Any) -> Path:
    found = {"source_uri": "s3://raw/events", **source}
    pipeline = {"sources": {"main": found}, "sink": SINK, "schema": SCHEMA}
    file = path / "config.yaml"
    file.write_text(
        yaml.safe_dump({"pipelines": {"events": pipeline}, "global": {"replicas": replicas}})
    )
    return file


def test_a_lease_is_half_a_minute_by_default(tmp_path: Path) -> None:
    found = load_config(
        config(tmp_path, {"uri": "s3://lake/events/_blizzard/replicas"})
    ).global_.replicas
    assert found is not None
    assert found.advanced.lease == 30.0


@pytest.mark.parametrize(
    ("replicas", "source", "said"),
    [
        ({"uri": "s3://raw/events/leases"}, {}, "overlaps pipelines.events.sources.main"),
        ({"uri": "s3://raw"}, {}, "overlaps pipelines.events.sources.main"),
        ({"uri": "s3://"}, {}, "names no bucket"),
        ({"uri": "s3://lake/leases", "advanced": {"lease": "1s"}}, {}, "must be at least 5"),
        ({}, {}, "is required"),
        (
            {"uri": "s3://lake/leases"},
            {"notifications": {"uri": "webhook:", "token": "sesame-sesame-sesame"}},
            "goes to one replica",
        ),
    ],
)
def test_settings_that_cannot_work_are_refused(
    tmp_path: Path, replicas: dict[str, Any], source: dict[str, Any], said: str
) -> None:
    with pytest.raises(ConfigError, match=said):
        load_config(config(tmp_path, replicas, **source))
