"""Settings of columns from paths: what clashes, and what every source has to have."""

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

PATH = {"region": "string", "tenant": "int64"}


def document(**more: Any) -> dict[str, Any]:
    return changed(sources__main__path_columns=PATH, **more)


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


WRONG = """
schema.fields: [{name: Region, type: string}]
  => 'region' is also a field of the schema @ path_columns.region
sources.main.path_columns: {_r: string} => '_r' must not be empty, nor begin
sources.main.path_columns: {a b: string} => Delta has no column whose name
sources.main.path_columns: {a: float64} => must be @ path_columns.a
sources.main.path_columns: {a: date, A: date} => 'a' is in path_columns in another spelling, too
sources.main.path_template: "{day}" => has {day}, which path_columns does not name
sources.main.path_template: "{a}{b}" => at most one {name}
sources.b: {path: /b, path_columns: {region: date}}
  => is string here and date in another source; use one type @ main.path_columns.region
sources.b: {path: /b}, sink.partition_by: {columns: [region]}
  => names 'region', which is not in path_columns of 'b' @ sink.partition_by
sources.b: {path: /b}, sink.sort_by: [tenant]
  => names 'tenant', which is not in path_columns of 'b' @ sink.sort_by
sink.partition_by: {prefix_template: region=%Y} => key 'region' is also a field of the schema
keyed: {table_uri: /k, keys: [tenant], sequence_by: [time]}
  => 'tenant' comes from paths, and may be null there; use a field
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG))
def test_conflicts_of_path_columns_are_named(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    assert is_reported(problems(tmp_path, with_changes(document(), changes)), said, place)
