"""Marks in files and paths that Blizzard writes and Penguin reads."""

from __future__ import annotations

import re
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

# The key of a Parquet file's metadata that says which task of which batch wrote it.
OUTPUT_ID_KEY = "blizzard.output_id"
# The key of a Parquet file's metadata that says in which of its columns there is a NaN: their
# numbers, with commas. No footer counts NaN, and bounds leave it out.
NAN_COLUMNS_KEY = "blizzard.nan_columns"

# The directory name for null, in Hive and everywhere since.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"

# Applications whose ``txn`` in a commit shows a source's progress in the table: the newest batch,
# in milliseconds of its UUIDv7, and the number of its last group.
_SOURCE_APP = "blizzard:"
_GROUP_APP = "blizzard-groups:"

_OUTPUT_ID = re.compile(r"([^/]+/[^/]+)/([0-9a-f]{8}-[0-9a-f]{4}-7[0-9a-f-]{21})/([0-9]{1,9})/")
_GROUP_MARK = re.compile(r"([^/]+)/([0-9]{1,18})")


@dataclass(frozen=True, slots=True)
class OutputId:
    """An output's writer: ``pipeline/source``, the batch and its attempt."""

    source: str
    batch: str
    attempt: int


def output_id_of(text: str) -> OutputId | None:
    """Parse an output id; None if the text is not one."""
    found = _OUTPUT_ID.match(text)
    return None if found is None else OutputId(found[1], found[2], int(found[3]))


def committer_app(name: str) -> str:
    """Return the application of the commits of the committer that has the table ``name``."""
    return f"penguin-{name}"


def source_app(source: str) -> str:
    """Return the application whose ``txn`` tells the newest batch of ``pipeline/source``."""
    return f"{_SOURCE_APP}{source}"


def sources_in(apps: Iterable[str]) -> set[str]:
    """Return which sources have batches in what these have committed."""
    return {app.removeprefix(_SOURCE_APP) for app in apps if app.startswith(_SOURCE_APP)}


def group_app(source_id: str) -> str:
    """Return the application whose ``txn`` tells the last group of a source id."""
    return f"{_GROUP_APP}{source_id}"


def newest_by_app(output_ids: Iterable[str]) -> dict[str, int]:
    """Return the ``txn`` versions that a commit with these output ids and group marks proves."""
    found: dict[str, int] = {}
    for output_id in output_ids:
        if (found_id := output_id_of(output_id)) is not None:
            app, version = source_app(found_id.source), uuid.UUID(found_id.batch).int >> 80
        elif (mark := _GROUP_MARK.fullmatch(output_id)) is not None:
            app, version = group_app(mark[1]), int(mark[2])
        else:
            continue
        found[app] = max(version, found.get(app, 0))
    return found


def nan_columns_of(pairs: Mapping[bytes, bytes] | None) -> frozenset[int] | None:
    """Return the numbers of a file's columns that hold NaN; None if its footer does not say."""
    text = (pairs or {}).get(NAN_COLUMNS_KEY.encode())
    if text is None:
        return None
    try:
        return frozenset(int(number) for number in text.split(b",") if number)
    except ValueError:
        return None
