"""``python -m blizzard_py.app.class_archive``: write the archives of Spark's classes for an image.

Runs of small sources load the classes: of tasks, of a transform, of a join by event time and its
state. They take a minute. An archive that is there already is kept.
"""

from __future__ import annotations

import os
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import get_args

import yaml

from blizzard_core.log import configure
from blizzard_py.app.configuration import load_config
from blizzard_py.app.daemon import run_daemon
from blizzard_py.engines.spark.class_archive import (
    Classes,
    archive_name,
    image_folder,
    is_complete,
)
from blizzard_py.engines.spark.class_path import task_jars
from blizzard_py.engines.spark.gateway import JAVA_OPTIONS, end_gateway

_TIME = {"name": "time", "type": "timestamp", "nullable": False}
_ID = {"name": "id", "type": "int64"}


def main(environment: Mapping[str, str]) -> str | None:
    """Write the archives; the error text if one is missing afterwards."""
    for classes in get_args(Classes):
        jars = task_jars({}, environment) if classes == "tasks" else None
        name = archive_name(environment, classes, jars)
        if name is None:
            return "no Java is found; set JAVA_HOME, or install one"
        target = image_folder() / name
        if is_complete(target):
            continue
        sys.stderr.write("writing an archive of Spark's classes takes a minute...\n")
        with tempfile.TemporaryDirectory() as folder:
            _run(Path(folder), target, classes)
        if not is_complete(target):
            return f"{target}: Java has written no archive"
    return None


def _run(folder: Path, target: Path, classes: Classes) -> None:
    for source in ("rows", "left", "right"):
        for second in (0, 59):
            place = folder / "raw" / source / f"{second:02}.json"
            place.parent.mkdir(parents=True, exist_ok=True)
            place.write_text(f'{{"time": "2026-01-05T12:00:{second:02}Z", "id": 1}}\n')
    config = {
        "pipelines": _pipelines(folder, classes),
        "spark": {
            "master": "local[2]",
            "conf": {JAVA_OPTIONS: f"-XX:ArchiveClassesAtExit={target} -Xlog:disable"},
        },
    }
    path = folder / "config.yaml"
    path.write_text(yaml.safe_dump(config))
    configure("error")
    run_daemon(load_config(path), once=True)
    end_gateway()  # the JVM writes it now


def _pipelines(folder: Path, classes: Classes) -> dict[str, object]:
    def pipeline(name: str, *sources: str, **more: object) -> dict[str, object]:
        return {
            "sources": {
                each: {
                    "source_uri": str(folder / "raw" / each),
                    "advanced": {"checkpoint": {"interval_files": 1}},
                }
                for each in sources
            },
            "sink": {"table_uri": str(folder / "lake" / name)},
            "schema": {"fields": [_TIME, _ID]},
            **more,
        }

    if classes == "tasks":
        return {"plain": pipeline("plain", "rows")}
    changes = {"transform": "SELECT time, id + 1 AS id FROM source", "deduplicate_by": ["id"]}
    join = {"left": "left", "right": "right", "type": "inner", "on": ["id"]}
    bounds = {"lower": "-3 seconds", "upper": "5 seconds"}
    columns = {"id": "left.id", "time": "left.time", "other": "right.time"}
    by_time = {"column": "time", "delay": "10 seconds", "advanced": {"partitions": 1}}
    return {
        "changed": pipeline("changed", "rows", **changes),
        "joined": pipeline(
            "joined",
            "left",
            "right",
            event_time={**by_time, "join": {**join, **bounds, "columns": columns}},
        ),
    }


if __name__ == "__main__":
    sys.exit(main(os.environ))
