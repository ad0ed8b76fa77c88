"""The benchmark of formats: all contenders make the same rows of the same files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow.parquet as pq
import pytest

from benchmarks.formats import CONTENDERS, READ, REPEATED, SETTINGS, write_files


@pytest.mark.parametrize("kind", SETTINGS)
def test_contenders_make_the_same_rows(tmp_path: Path, kind: str) -> None:
    source = tmp_path / "in"
    source.mkdir()
    write_files(source, kind, 2, 50)
    times = REPEATED if kind == "row groups" else 1
    found: list[list[dict[str, Any]]] = []
    for name, run in CONTENDERS.items():
        if name == "spark" or kind not in READ[name]:
            continue  # it writes a folder, of rows that others compare
        sink = tmp_path / run.__name__
        sink.mkdir()
        assert run(kind, source, sink) == 100 * times
        [path] = sink.rglob("*.parquet")
        rows = pq.ParquetFile(path).read().to_pylist()
        rows = [{**row, "at": row["at"].replace(tzinfo=None)} for row in rows]
        found.append(sorted(rows, key=lambda row: row["id"]))
    assert all(rows == found[0] for rows in found)
    assert len(found[0]) == 100 * times
    assert found[0][7 * times]["price"] == 811.43
