"""New columns of each format: with the type that files name, or the one of their texts."""

from __future__ import annotations

import datetime as dt
import io
import json
from collections.abc import Callable, Mapping
from decimal import Decimal
from pathlib import Path
from typing import Any

import fastavro
import polars as pl
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyarrow import orc

from tests.support.scenario import Scenario
from tests.support.workbooks import saved

DAY = "date=2024-01-0"
AT = dt.datetime(2024, 5, 6, 7, 8, 9, tzinfo=dt.UTC)
NEW = {
    "id": pa.array([2], pa.int64()),
    "price": pa.array([Decimal("1.50")], pa.decimal128(12, 2)),
    "at": pa.array([AT], pa.timestamp("us", "UTC")),
    "day": pa.array([dt.date(2024, 5, 6)]),
    "small": pa.array([7], pa.int32()),
    "unused": pa.array([None], pa.float32()),
}
TYPES = {
    "price": pl.Decimal(12, 2),
    "at": pl.Datetime("us", "UTC"),
    "day": pl.Date,
    "small": pl.Int32,
    "unused": pl.Float32,
}


def parquet(columns: Mapping[str, pa.Array]) -> bytes:
    target = io.BytesIO()
    pq.write_table(pa.table(dict(columns)), target)
    return target.getvalue()


def orc_file(columns: Mapping[str, pa.Array]) -> bytes:
    target = io.BytesIO()
    orc.write_table(pa.table(dict(columns)), target)
    return target.getvalue()


def avro(columns: Mapping[str, pa.Array]) -> bytes:
    kinds: dict[str, Any] = {
        "id": "long",
        "price": {"type": "bytes", "logicalType": "decimal", "precision": 12, "scale": 2},
        "at": {"type": "long", "logicalType": "timestamp-micros"},
        "day": {"type": "int", "logicalType": "date"},
        "small": "int",
        "unused": ["null", "float"],
    }
    fields = [{"name": name, "type": kinds[name]} for name in columns]
    target = io.BytesIO()
    rows = pa.table(dict(columns)).to_pylist()
    fastavro.writer(target, {"type": "record", "name": "event", "fields": fields}, rows)
    return target.getvalue()


WRITERS = {"parquet": parquet, "orc": orc_file, "avro": avro}


def scenario_of(tmp_path: Path, form: str | dict[str, Any], **schema: Any) -> Scenario:
    found = Scenario(tmp_path, str(tmp_path))
    found.main_source["format"] = form
    given = found.document["pipelines"]["events"]["schema"]
    given["evolve"] = "add"
    given.update(schema)
    found.write_config()
    return found


def table_of(scenario: Scenario) -> pl.DataFrame:
    """Return the table that Penguin commits."""
    scenario.commit()
    return pl.read_delta(f"{scenario.place}/lake/events").sort("id")


def left_out(scenario: Scenario) -> dict[str, str]:
    path = scenario.folder / "lake/events/_blizzard/events_schema.json"
    return json.loads(path.read_bytes())["left_out"]


@pytest.mark.parametrize("name", WRITERS)
def test_a_new_column_has_the_type_of_its_file(tmp_path: Path, name: str) -> None:
    scenario, write = scenario_of(tmp_path, name), WRITERS[name]
    scenario.put(f"{DAY}1/1.{name}", write({"id": pa.array([1])}))
    scenario.ingest()
    scenario.put(f"{DAY}2/1.{name}", write(NEW))
    scenario.ingest()
    scenario.put(f"{DAY}3/1.{name}", write({"id": pa.array([3])}))
    scenario.ingest()
    found = table_of(scenario)
    assert {column: found.schema[column] for column in TYPES} == TYPES
    nothing = (None,) * len(TYPES)
    assert found.select("id", *TYPES).rows() == [
        (1, *nothing),
        (2, Decimal("1.50"), AT, dt.date(2024, 5, 6), 7, None),
        (3, *nothing),
    ]


@pytest.mark.parametrize("size", [1, 40_000], ids=["small", "several pieces"])
def test_types_of_one_batch_are_united(tmp_path: Path, size: int) -> None:
    scenario = scenario_of(tmp_path, "parquet")
    many = list(range(1, size + 1))
    narrow = {
        "n": pa.array([1] * size, pa.int32()),
        "f": pa.array([0.5] * size, pa.float32()),
        "s": pa.array([{"a": 1}] * size, pa.struct({"a": pa.int32()})),
        "x": pa.nulls(size),
    }
    wide = {
        "n": pa.array([1 << 40]),
        "f": pa.array([0.1], pa.float64()),
        "s": pa.array([{"a": 1 << 40, "b": "x"}]),
        "x": pa.array([AT]),
    }
    scenario.put(f"{DAY}1/1.parquet", parquet({"id": pa.array(many), **narrow}))
    scenario.put(f"{DAY}1/2.parquet", parquet({"id": pa.array([0]), **wide}))
    scenario.ingest()
    first, second, *_ = table_of(scenario).select("id", "n", "f", "s", "x").rows()
    assert first == (0, 1 << 40, 0.1, {"a": 1 << 40, "b": "x"}, AT)
    assert second == (1, 1, 0.5, {"a": 1, "b": None}, None)


@pytest.mark.parametrize("coerces", [True, False])
def test_types_without_a_union_are_text_or_left_out(tmp_path: Path, *, coerces: bool) -> None:
    advanced = {"coerce_conflicts_to_utf8": coerces}
    scenario = scenario_of(tmp_path, "parquet", advanced=advanced)
    scenario.put(f"{DAY}1/1.parquet", parquet({**NEW, "unused": pa.array([1])}))
    texts = {"id": pa.array([3]), "price": pa.array(["free"]), "unused": pa.array([2])}
    scenario.put(f"{DAY}1/2.parquet", parquet(texts))
    scenario.ingest()
    found = table_of(scenario)
    assert found["unused"].to_list() == [1, 2]
    assert found["id"].to_list() == [2, 3]
    if coerces:
        assert found["price"].to_list() == ["1.50", "free"]
        return
    assert "price" not in found.columns
    assert "decimal(12,2) (" in left_out(scenario)["price"]
    assert "coerce_conflicts_to_utf8: true" in left_out(scenario)["price"]


def test_a_column_that_the_table_has_keeps_its_type(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, "parquet")
    wide = {"id": pa.array([1]), "n": pa.array([1 << 40]), "t": pa.array(["x"])}
    scenario.put(f"{DAY}1/1.parquet", parquet(wide))
    scenario.ingest()
    scenario.commit()
    (tmp_path / "lake/events/_blizzard/events_schema.json").unlink()
    narrow = {"id": pa.array([2]), "n": pa.array([1], pa.int32()), "t": pa.array([1.5])}
    scenario.put(f"{DAY}1/2.parquet", parquet(narrow))
    scenario.ingest()
    found = table_of(scenario)
    assert found["n"].to_list() == [1 << 40, 1]
    assert left_out(scenario).keys() == {"t"}


def test_a_union_of_an_avro_schema_is_text(tmp_path: Path) -> None:
    scenario = scenario_of(tmp_path, "avro")
    fields = [{"name": "id", "type": "long"}, {"name": "u", "type": ["null", "long", "string"]}]
    target = io.BytesIO()
    rows = [{"id": 1, "u": 7}, {"id": 2, "u": "x"}, {"id": 3, "u": None}]
    fastavro.writer(target, {"type": "record", "name": "event", "fields": fields}, rows)
    scenario.put(f"{DAY}1/1.avro", target.getvalue())
    scenario.ingest()
    assert table_of(scenario)["u"].to_list() == ["7", '"x"', None]


def test_a_new_column_of_dates_in_a_workbook_is_one(tmp_path: Path) -> None:
    scenario, day = scenario_of(tmp_path, "excel"), dt.date(2024, 5, 6)
    noon = dt.datetime(2024, 5, 6, 12)  # noqa: DTZ001  # cells have no zone
    header = ["id", "day", "at", "mixed"]
    scenario.put(f"{DAY}1/1.xlsx", saved([header, [1, day, day, day], [2, day, noon, None]]))
    scenario.put(f"{DAY}1/2.xlsx", saved([header, [3, None, day, "x"]]))
    scenario.ingest()
    found = table_of(scenario).select(header)
    moments = [moment.replace(tzinfo=dt.UTC) for moment in (noon.replace(hour=0), noon)]
    assert found.rows() == [
        (1, day, moments[0], "2024-05-06"),
        (2, day, moments[1], None),
        (3, None, moments[0], "x"),
    ]


HEADER = ["id", "price", "count", "at", "code", "flag", "note"]
TEXTS = ["2", "1.5", "7", "2024-05-06T07:08:09Z", "007", "true", "x"]
Maker = Callable[[list[str], list[str]], bytes]


def csv(header: list[str], row: list[str]) -> bytes:
    return f"{','.join(header)}\n{','.join(row)}\n".encode()


def xml(header: list[str], row: list[str]) -> bytes:
    cells = "".join(f"<{name}>{text}</{name}>" for name, text in zip(header, row, strict=True))
    return f"<events><event>{cells}</event></events>".encode()


def excel(header: list[str], row: list[str]) -> bytes:
    typed = [json.loads(text) if text[0] in "12t" and "T" not in text else text for text in row]
    return saved([header, [7 if text == "7" else text for text in typed]])


TEXT_FORMATS: dict[str, tuple[str | dict[str, Any], str, Maker]] = {
    "csv": ("csv", "csv", csv),
    "xml": ({"type": "xml", "row_tag": "event"}, "xml", xml),
    "excel": ("excel", "xlsx", excel),
}


@pytest.mark.parametrize("name", TEXT_FORMATS)
def test_a_new_column_of_texts_has_the_type_that_they_look_like(tmp_path: Path, name: str) -> None:
    form, ending, write = TEXT_FORMATS[name]
    scenario = scenario_of(tmp_path, form, advanced={"infer_timestamps": True})
    scenario.put(f"{DAY}1/1.{ending}", write(["id"], ["1"]))
    scenario.ingest()
    scenario.put(f"{DAY}2/1.{ending}", write(HEADER, TEXTS))
    scenario.ingest()
    found = table_of(scenario).select(HEADER)
    assert found.rows() == [(1, *[None] * 6), (2, 1.5, 7, AT, "007", True, "x")]
    assert found.schema["count"] == pl.Int64
