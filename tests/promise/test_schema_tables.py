"""Tables with every type: from lines through Parquet and Penguin to other engines and back."""

from __future__ import annotations

import base64
import datetime as dt
import gzip
import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import duckdb
import polars as pl
import pytest
from deltalake import DeltaTable, QueryBuilder

from tests.support.scenario import ROOT, Scenario, ndjson

MOMENT = dt.datetime(2024, 5, 6, 12, 0, 0, 123456, dt.UTC)
FIELDS: list[dict[str, Any]] = [
    {"name": "id", "type": "int64", "nullable": False},
    {"name": "small", "type": "int32"},
    {"name": "ratio", "type": "float32"},
    {"name": "flag", "type": "boolean"},
    {"name": "price", "type": "decimal(12,2)"},
    {"name": "huge", "type": "decimal(38,10)"},
    {"name": "raw", "type": "binary"},
    {"name": "iso", "type": "timestamp"},
    {"name": "sec", "type": "timestamp", "unit": "s"},
    {"name": "milli", "type": "timestamp", "unit": "ms"},
    {"name": "micro", "type": "timestamp", "unit": "us"},
    {"name": "day", "type": "date"},
    {
        "name": "user",
        "type": "struct",
        "fields": [
            {"name": "name", "type": "string", "nullable": False},
            {"name": "born", "type": "date"},
            {"name": "extra", "type": "json"},
        ],
    },
    {"name": "tags", "type": "list", "items": "string"},
    {
        "name": "orders",
        "type": "list",
        "items": {
            "type": "struct",
            "fields": [
                {"name": "sku", "type": "int32"},
                {"name": "price", "type": "decimal(5,1)"},
            ],
        },
    },
    {"name": "counts", "type": "map", "values": "int64"},
    {
        "name": "places",
        "type": "map",
        "values": {"type": "struct", "fields": [{"name": "lat", "type": "float64"}]},
    },
    {"name": "payload", "type": "json"},
    {"name": "anything", "type": "string", "coerce": True},
]
HUGE = Decimal("1234567890123456789012345678.0123456789")
RECORD: dict[str, Any] = {
    "id": 1,
    "small": -(2**31),
    "ratio": 0.5,
    "flag": True,
    "price": 1234567890.12,
    "huge": str(HUGE),
    "raw": base64.b64encode(bytes(range(7))).decode(),
    "iso": MOMENT.isoformat(),
    "sec": MOMENT.timestamp(),
    "milli": int(MOMENT.timestamp() * 1000),
    "micro": int(MOMENT.timestamp() * 1_000_000),
    "day": "1969-07-20",
    "user": {"name": "Zoë", "born": "1999-12-31", "extra": [1, {"a": 2}], "more": True},
    "tags": ["a", None, ""],
    "orders": [{"sku": 7, "price": 2.5}, None, {}],
    "counts": {"k": 1, "l": None},
    "places": {"m": {"lat": 1.25}, "n": None},
    "payload": {"z": "x y", "a": [None]},
    "anything": 17,
    "new": {"k": 1},
}
EXPECTED: dict[str, Any] = {
    "id": 1,
    "small": -(2**31),
    "ratio": 0.5,
    "flag": True,
    "price": Decimal("1234567890.12"),
    "huge": HUGE,
    "raw": bytes(range(7)),
    "iso": MOMENT,
    "sec": MOMENT,
    "milli": MOMENT.replace(microsecond=123000),
    "micro": MOMENT,
    "day": dt.date(1969, 7, 20),
    "user": {"name": "Zoë", "born": dt.date(1999, 12, 31), "extra": '[1,{"a":2}]'},
    "tags": ["a", None, ""],
    "orders": [
        {"sku": 7, "price": Decimal("2.5")},
        None,
        {"sku": None, "price": None},
    ],
    "counts": {"k": 1, "l": None},
    "places": {"m": {"lat": 1.25}, "n": None},
    "payload": '{"z":"x y","a":[null]}',
    "anything": "17",
    "_rescued": '{"new":{"k":1},"user":{"more":true}}',
}
NOTHING = {**dict.fromkeys(EXPECTED), "id": 2}
EMPTY = {
    **NOTHING,
    "id": 3,
    "tags": [],
    "orders": [],
    "counts": {},
    "places": {},
    "payload": "{}",
    "anything": "",
}


@pytest.fixture
def scenario(tmp_path: Path) -> Scenario:
    found = Scenario(tmp_path, str(tmp_path))
    events = found.document["pipelines"]["events"]
    events["sink"].pop("partition_by")
    events["schema"] = {"unexpected_fields": "capture", "fields": FIELDS}
    found.write_config()
    return found


def put(scenario: Scenario, path: str, *records: dict[str, Any]) -> None:
    scenario.put(path, b"".join(json.dumps(record).encode() + b"\n" for record in records))


def by_duckdb(files: list[str]) -> list[dict[str, Any]]:
    connection = duckdb.connect()
    connection.execute("set timezone = 'UTC'")
    result = connection.execute(
        "select * from read_parquet(?, union_by_name = true) order by id", [files]
    )
    names = [column[0] for column in result.description]
    return [dict(zip(names, row, strict=True)) for row in result.fetchall()]


def same(found: list[dict[str, Any]], expected: list[dict[str, Any]]) -> None:
    """Compare field by field; engines return maps and time zones differently."""
    assert len(found) == len(expected)
    for row, wanted in zip(found, expected, strict=True):
        for name, value in wanted.items():
            given = row[name]
            if isinstance(value, dt.datetime):
                given = given.astimezone(dt.UTC)
            if name in ("counts", "places") and isinstance(given, list):
                given = dict(given)
            assert given == value, name


def test_every_type_arrives_in_the_table_and_in_other_engines(scenario: Scenario) -> None:
    empty = {"tags": [], "orders": [], "counts": {}, "places": {}, "payload": {}, "anything": ""}
    put(scenario, "1.ndjson", RECORD, {"id": 2}, {"id": 3, **empty})
    scenario.ingest()
    scenario.commit()
    uri = f"{scenario.place}/lake/events"
    table = DeltaTable(uri)
    expected = [EXPECTED, NOTHING, EMPTY]
    same(pl.read_delta(uri).sort("id").to_dicts(), expected)
    same(by_duckdb(table.file_uris()), expected)
    rows = table.to_pyarrow_dataset().to_table().sort_by("id").to_pylist()
    same(rows, expected)
    kinds = {field.name: json.loads(field.type.to_json()) for field in table.schema().fields}
    assert (kinds["price"], kinds["huge"], kinds["raw"]) == (
        "decimal(12,2)",
        "decimal(38,10)",
        "binary",
    )
    assert (kinds["counts"]["type"], kinds["tags"]["type"]) == ("map", "array")
    # Readers skip by what the log says about the file, so it must hold for exact values.
    query = QueryBuilder().register("events", table)
    for where in (
        "price = cast('1234567890.12' as decimal(12,2))",
        f"huge = cast('{HUGE}' as decimal(38,10))",
        "milli = '2024-05-06T12:00:00.123Z'",
        "\"user\"['born'] = '1999-12-31'",
        "day < '1970-01-01'",
    ):
        found = query.execute(f"select id from events where {where}").read_all()
        assert [value.as_py() for value in found["id"]] == [1], where


def test_growing_declared_schema_grows_the_table(scenario: Scenario) -> None:
    put(scenario, "1.ndjson", RECORD)
    scenario.ingest()
    scenario.commit()
    schema = scenario.document["pipelines"]["events"]["schema"]
    user = next(field for field in FIELDS if field["name"] == "user")
    grown = {**user, "fields": [*user["fields"], {"name": "more", "type": "boolean"}]}
    schema["fields"] = [grown if field is user else field for field in FIELDS]
    schema["fields"].append(
        {"name": "new", "type": "map", "values": {"type": "list", "items": "decimal(9,3)"}}
    )
    scenario.write_config()
    put(scenario, "2.ndjson", {**RECORD, "id": 2, "new": {"k": [1.125, None], "l": None}})
    scenario.ingest()
    scenario.commit()
    table = DeltaTable(f"{scenario.place}/lake/events")
    assert table.version() == 1
    first, second = pl.read_delta(f"{scenario.place}/lake/events").sort("id").to_dicts()
    same([first], [{**EXPECTED, "user": {**EXPECTED["user"], "more": None}}])
    assert first["new"] in (None, {}, [])
    assert second["user"]["more"] is True
    assert dict(second["new"]) == {"k": [Decimal("1.125"), None], "l": None}
    assert second["_rescued"] is None


def test_edits_have_same_sums_with_declared_and_inferred_schema(tmp_path: Path) -> None:
    lines = gzip.decompress(
        (ROOT / "blizzard_py/demo/data/wikiticker-2015-09-12-sampled.json.gz").read_bytes()
    ).splitlines(keepends=True)
    declared = [
        {"name": "time", "type": "timestamp", "nullable": False},
        *({"name": n, "type": "string"} for n in ("user", "page", "channel", "cityName")),
        *({"name": n, "type": "int64"} for n in ("added", "delta", "deleted", "metroCode")),
        {"name": "isRobot", "type": "boolean"},
    ]
    scenario = Scenario(tmp_path, str(tmp_path))
    pipeline = scenario.document["pipelines"].pop("events")
    for name, schema in {
        "declared": {"fields": declared},
        "inferred": {"infer": True, "infer_timestamps": True, "unexpected_fields": "fail"},
    }.items():
        scenario.document["pipelines"][name] = {
            **pipeline,
            "sources": {"main": {"source_uri": f"{tmp_path}/raw/{name}"}},
            "sink": {"table_uri": f"{tmp_path}/lake/{name}"},
            "schema": schema,
        }
        for number in range(4):
            part = b"".join(lines[number::4])
            scenario.put(f"{name}/{number}.ndjson.gz", gzip.compress(part, 1))
    scenario.write_config()
    scenario.ingest()
    scenario.commit()
    sums = (
        "select count(*), sum(added), sum(delta), sum(deleted), sum(metroCode),"
        ' count(distinct "user"), count(cityName), count(*) filter (isRobot),'
        " min(time), max(time) from read_parquet(?)"
    )
    results = {}
    for name in ("declared", "inferred"):
        files = DeltaTable(f"{tmp_path}/lake/{name}").file_uris()
        results[name] = duckdb.connect().execute(sums, [files]).fetchone()
    assert results["declared"] == results["inferred"]
    found = results["declared"]
    # From the attribution beside the data.
    assert (found[0], found[1], found[2], found[5], found[7]) == (
        39_244,
        9_385_573,
        8_991_275,
        10_531,
        15_420,
    )


def test_new_fields_are_columns_in_the_commit_of_first_rows(tmp_path: Path) -> None:
    scenario = Scenario(tmp_path, str(tmp_path))
    events = scenario.document["pipelines"]["events"]["schema"]
    events["evolve"] = "add"
    scenario.write_config()
    scenario.put_rows("date=2024-01-01/1.ndjson.gz", 1, 2)
    scenario.ingest()
    scenario.commit()
    before = DeltaTable(f"{tmp_path}/lake/events").version()
    lines = [{"id": 3, "price": 1}, {"id": 4, "price": 2.5, "geo": {"lat": 1, "names": ["x"]}}]
    scenario.put("date=2024-01-02/1.ndjson.gz", ndjson(*lines))
    scenario.put("date=2024-01-02/2.ndjson.gz", ndjson({"id": 5, "geo": {"lat": 0.5}}))
    # From the process of this test, which has been the writer and is running.
    scenario.run("blizzard", "run", str(scenario.config), "--once", "--take-over")
    good = [{"id": n} for n in range(6, 20)]
    scenario.put("date=2024-01-03/1.ndjson.gz", ndjson(*good, {"id": 20, "price": "x"}))
    scenario.ingest()
    scenario.commit()
    log = tmp_path / "lake/events/_delta_log"
    entry = [json.loads(line) for line in (log / f"{before + 1:020}.json").read_text().splitlines()]
    assert any("metaData" in action for action in entry)
    assert any("add" in action for action in entry)
    table = DeltaTable(f"{tmp_path}/lake/events").to_pyarrow_table(columns=["id", "price", "geo"])
    rows = table.sort_by("id").to_pylist()
    geo = {"lat": 1.0, "names": ["x"]}
    assert rows[:5] == [
        {"id": 1, "price": None, "geo": None},
        {"id": 2, "price": None, "geo": None},
        {"id": 3, "price": 1.0, "geo": None},
        {"id": 4, "price": 2.5, "geo": geo},
        {"id": 5, "price": None, "geo": {"lat": 0.5, "names": None}},
    ]
    assert [row["id"] for row in rows[5:]] == list(range(6, 20))
    lazy = pl.scan_delta(f"{tmp_path}/lake/events").filter(pl.col("price").is_not_null())
    assert lazy.select("id").collect()["id"].sort().to_list() == [3, 4]
    status = scenario.status("blizzard")["pipelines"]["events"]["sources"]["main"]
    assert (status["totals"]["bad_rows"], status["unexpected"]) == (1, [])
