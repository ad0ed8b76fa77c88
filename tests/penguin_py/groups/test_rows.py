"""Rewriting keeps the other rows as they are, whoever wrote the file."""

from __future__ import annotations

from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from deltalake import DeltaTable, write_deltalake

from blizzard_core.storage.opening import open_storage
from blizzard_core.table.schema_fit import SchemaMismatch
from penguin_py.groups.rows import ReplacedRows, count_replaced, rewrite
from penguin_py.intake.file_statistics import file_statistics
from penguin_py.planning.replacement import ranges_of
from tests.support.thrift_tree import Tree, edited

WANTED = {"_unit": ranges_of([("b", "c")])}


def table(rows: int = 6) -> pa.Table:
    return pa.table(
        {
            "id": range(rows),
            "_unit": (["a", "b", None] * rows)[:rows],
            "nested": [{"x": [str(n)], "m": [("k", b"v")]} for n in range(rows)],
        },
        pa.schema(
            [
                ("id", pa.int64()),
                ("_unit", pa.string()),
                (
                    "nested",
                    pa.struct(
                        [("x", pa.list_(pa.string())), ("m", pa.map_(pa.string(), pa.binary()))]
                    ),
                ),
            ],
            metadata={"blizzard.output_id": "p/s/1/1/0", "blizzard.nan_columns": ""},
        ),
    )


def test_remaining_rows_keep_order_codec_groups_and_metadata(tmp_path: Path) -> None:
    order = [pq.SortingColumn(0)]
    pq.write_table(
        table(), tmp_path / "a.parquet", row_group_size=3, compression="gzip", sorting_columns=order
    )
    storage = open_storage(str(tmp_path), {})
    size = (tmp_path / "a.parquet").stat().st_size
    assert count_replaced(storage, "a.parquet", size, WANTED) == ReplacedRows(2, 6)
    made = rewrite(storage, "a.parquet", size, "deep/b.parquet", WANTED)
    found = pq.ParquetFile(tmp_path / "deep/b.parquet")
    assert made.size == (tmp_path / "deep/b.parquet").stat().st_size
    assert found.read().to_pylist() == [r for r in table().to_pylist() if r["_unit"] != "b"]
    assert found.metadata.num_row_groups == 2
    group = found.metadata.row_group(0)
    assert group.column(0).compression == "GZIP"
    assert list(group.sorting_columns) == order
    assert found.metadata.metadata[b"blizzard.output_id"] == b"p/s/1/1/0"
    # Rows that stay hold no NaN that was not there before.
    assert found.metadata.metadata[b"blizzard.nan_columns"] == b""
    told = file_statistics(made.metadata, made.schema, table().schema)
    assert '"maxValues":{"id":5,"_unit":"a"}' in told


def test_a_dictionary_of_values_that_differ_is_no_more(tmp_path: Path) -> None:
    count = 3000
    columns = {"_unit": ["a"] * count, "id": range(count), "text": map(str, range(count))}
    columns["few"] = [n % 3 for n in range(count)]
    rows = pa.table({name: list(values) for name, values in columns.items()})
    pq.write_table(rows, tmp_path / "a.parquet")
    size = (tmp_path / "a.parquet").stat().st_size
    made = rewrite(open_storage(str(tmp_path), {}), "a.parquet", size, "b.parquet", WANTED)
    assert pq.read_table(tmp_path / "b.parquet").equals(rows)
    group = made.metadata.row_group(0)
    found = [group.column(place).has_dictionary_page for place in range(4)]
    assert found == [True, False, False, True]
    assert made.size < size


def test_rewrite_reads_files_that_delta_rs_wrote_as_views(tmp_path: Path) -> None:
    write_deltalake(tmp_path, table())
    found = DeltaTable(tmp_path)
    found.delete("id = 0")  # writes text as views
    [path] = found.file_uris()
    storage, name = open_storage(str(tmp_path), {}), Path(path).name
    size = Path(path).stat().st_size
    assert count_replaced(storage, name, size, WANTED) == ReplacedRows(2, 5)
    rewrite(storage, name, size, "b.parquet", WANTED)
    rows = pq.read_table(tmp_path / "b.parquet").to_pylist()
    assert [row["id"] for row in rows] == [2, 3, 5]
    assert rows[0]["nested"] == {"x": ["2"], "m": [("k", b"v")]}


def test_a_file_without_the_column_has_no_such_rows(tmp_path: Path) -> None:
    pq.write_table(pa.table({"id": [1], "other": ["b"]}), tmp_path / "a.parquet")
    storage = open_storage(str(tmp_path), {})
    size = (tmp_path / "a.parquet").stat().st_size
    assert count_replaced(storage, "a.parquet", size, WANTED) == ReplacedRows(0, 1, lacks=True)


@pytest.mark.parametrize("kind", [pa.binary(), pa.large_binary(), pa.large_string()])
def test_text_is_compared_whatever_it_is_called(tmp_path: Path, kind: pa.DataType) -> None:
    values = [b"\xff", b"b", b"a", None] if "binary" in str(kind) else ["z", "b", "a", None]
    rows = pa.table({"_unit": pa.array(values, kind)})
    pq.write_table(rows, tmp_path / "a.parquet")
    storage = open_storage(str(tmp_path), {})
    size = (tmp_path / "a.parquet").stat().st_size
    assert count_replaced(storage, "a.parquet", size, WANTED) == ReplacedRows(1, 4)
    rewrite(storage, "a.parquet", size, "b.parquet", WANTED)
    stay = [value for value in values if value not in (b"b", "b")]
    assert pq.read_table(tmp_path / "b.parquet")["_unit"].to_pylist() == stay


def test_a_non_text_column_is_refused_and_a_null_one_ignored(tmp_path: Path) -> None:
    storage = open_storage(str(tmp_path), {})
    for name, values in (("a.parquet", [1]), ("b.parquet", [None])):
        pq.write_table(pa.table({"_unit": values}), tmp_path / name)
    with pytest.raises(
        SchemaMismatch, match=r"^a\.parquet has _unit as int64, so its rows cannot be identified"
    ):
        count_replaced(storage, "a.parquet", (tmp_path / "a.parquet").stat().st_size, WANTED)
    size = (tmp_path / "b.parquet").stat().st_size
    assert count_replaced(storage, "b.parquet", size, WANTED) == ReplacedRows(0, 1, lacks=True)


def test_row_count_names_an_unreadable_file(tmp_path: Path) -> None:
    (tmp_path / "a.parquet").write_bytes(b"junk that is long enough")
    with pytest.raises(SchemaMismatch, match=r"a\.parquet is in the table and cannot be read"):
        count_replaced(open_storage(str(tmp_path), {}), "a.parquet", 24, WANTED)


def test_a_footer_of_two_minds_ends_no_process(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(), path)

    def add_text_sizes_to_numbers(footer: Tree) -> None:
        footer[4][1][1][0][1][1][1][0][3][1][16] = (12, {1: (6, 5)})

    path.write_bytes(edited(path.read_bytes(), add_text_sizes_to_numbers))
    storage = open_storage(str(tmp_path), {})
    with pytest.raises(SchemaMismatch, match=r"a\.parquet is in the table and cannot be read"):
        rewrite(storage, "a.parquet", path.stat().st_size, "b.parquet", WANTED)
