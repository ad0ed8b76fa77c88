"""``python -m blizzard_py.app.class_archive``: write the archive of Spark's classes for an image.

A run of small sources loads the classes: of tasks, of a transform, of a join by event time and its
state. It takes a minute. An archive that is there already is kept.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from blizzard_core.log import configure
from blizzard_py.app.configuration import load_config
from blizzard_py.app.daemon import run_daemon
from blizzard_py.engines.spark.class_archive import archive_name, image_folder, is_complete
from blizzard_py.engines.spark.gateway import JAVA_OPTIONS, end_gateway

_TIME = {"name": "time", "type": "timestamp", "nullable": False}
_ID = {"name": "id", "type": "int64"}


def main(environment: Mapping[str, str]) -> str | None:
    """Write the archive; the error text if there is none afterwards."""
    name = archive_name(environment)
    if name is None:
        return "no Java is found; set JAVA_HOME, or install one"
    target = image_folder() / name
    if is_complete(target):
        return None
    sys.stderr.write("writing an archive of Spark's classes takes a minute...\n")
    with tempfile.TemporaryDirectory() as folder:
        _run(Path(folder), target)
    return None if is_complete(target) else f"{target}: Java has written no archive"


def _run(folder: Path, target: Path) -> None:
    for source in ("rows", "left", "right"):
        for second in (0, 59):
            place = folder / "raw" / source / f"{second:02}.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f'{{"time": "2026-01-05T12:00:{second:02}Z", "id": 1}}\n')
    config = folder / "config.yaml"
    config.write_text(yaml.safe_dump(_configuration(folder, target)))
    configure("error")
    run_daemon(load_config(config), once=True)
    end_gateway()  # the JVM writes it now


def _configuration(folder: Path, target: Path) -> dict[str, object]:
    def pipeline(name: str, *sources: str, **more: object) -> dict[str, object]:
        return {
            "sources": {
                each: {
                    "source_uri": str(folder / "raw" / each),
                    "checkpoint": {"interval_files": 1},
                }
                for each in sources
            },
            "sink": {"table_uri": str(folder / "lake" / name)},
            "schema": {"fields": [_TIME, _ID]},
            **more,
        }

    join = {"left": "left", "right": "right", "type": "inner", "on": ["id"]}
    bounds = {"lower": "-3 seconds", "upper": "5 seconds"}
    columns = {"id": "left.id", "time": "left.time", "other": "right.time"}
    return {
        "pipelines": {
            "changed": pipeline(
                "changed",
                "rows",
                transform="SELECT time, id + 1 AS id FROM source",
                deduplicate_by=["id"],
            ),
            "joined": pipeline(
                "joined",
                "left",
                "right",
                event_time={
                    "column": "time",
                    "delay": "10 seconds",
                    "partitions": 1,
                    "join": {**join, **bounds, "columns": columns},
                },
            ),
        },
        "spark": {
            "master": "local[2]",
            "conf": {JAVA_OPTIONS: f"-XX:ArchiveClassesAtExit={target} -Xlog:disable"},
        },
    }


if __name__ == "__main__":
    sys.exit(main(os.environ))
