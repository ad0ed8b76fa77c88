"""Settings of columns from paths: what clashes, and what every source has to have."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest

from tests.support.settings_documents import changed, load, problems

PATH = {"region": "string", "tenant": "int64"}


def document(**more: Any) -> dict[str, Any]:
    columns = {"pipelines__events__sources__main__path_columns": PATH}
    return changed(**columns | {f"pipelines__events__{key}": more[key] for key in more})


def test_path_columns_are_columns_of_the_table(tmp_path: Path) -> None:
    config = load(
        tmp_path,
        document(
            sources__main__path_template="*/{tenant}",
            sink__partition_by={"columns": ["region"]},
            sink__sort_by=["-tenant"],
            deduplicate_by=["tenant", "time"],
        ),
    )
    assert config.pipelines["events"].field_types == {**PATH, "time": "timestamp"}


@pytest.mark.parametrize(
    ("more", "expected"),
    [
        (
            {"schema__fields": [{"name": "Region", "type": "string"}]},
            "path_columns.region: 'region' is also a field of the schema",
        ),
        ({"sources__main__path_columns": {"_r": "string"}}, "'_r' must not be empty, nor begin"),
        ({"sources__main__path_columns": {"a b": "string"}}, "Delta has no column whose name"),
        ({"sources__main__path_columns": {"a": "float64"}}, "path_columns.a"),
        (
            {"sources__main__path_columns": {"a": "date", "A": "date"}},
            "'a' is in path_columns in another spelling, too",
        ),
        (
            {"sources__main__path_template": "{day}"},
            "path_template: has {day}, which path_columns does not name",
        ),
        ({"sources__main__path_template": "{a}{b}"}, "at most one {name}"),
        (
            {"sources__b": {"path": "/b", "path_columns": {"region": "date"}}},
            "is date here and string in another source; use one type",
        ),
        (
            {"sources__b": {"path": "/b"}, "sink__partition_by": {"columns": ["region"]}},
            "sink.partition_by: names 'region', which is not in path_columns of 'b'",
        ),
        (
            {"sources__b": {"path": "/b"}, "sink__sort_by": ["tenant"]},
            "names 'tenant', which is not in path_columns of 'b'",
        ),
        (
            {"sink__partition_by": {"prefix_template": "region=%Y"}},
            "key 'region' is also a field of the schema",
        ),
        (
            {"keyed": {"table_uri": "/k", "keys": ["tenant"], "sequence_by": ["time"]}},
            "'tenant' comes from paths, and may be null there; use a field",
        ),
    ],
)
def test_conflicts_of_path_columns_are_named(
    tmp_path: Path, more: dict[str, Any], expected: str
) -> None:
    found = [re.sub(r" \(line \d+\)", "", each) for each in problems(tmp_path, document(**more))]
    assert any(expected in each for each in found), found
