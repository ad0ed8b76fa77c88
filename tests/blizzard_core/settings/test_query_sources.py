"""Tables and APIs in the configuration: each wrong combination has its place and its remedy."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import pytest
import yaml

from blizzard_core import redact
from blizzard_core.errors import ConfigError
from blizzard_core.settings.base import parse_look_back
from blizzard_core.settings.connections import (
    DatabaseConnectionSettings,
    DatabaseDriver,
    LakeConnectionSettings,
    LakeDriver,
)
from blizzard_core.settings.sources import SourceSettings
from tests.support.settings_documents import cases, is_reported, load, problems, with_changes

GOOD: dict[str, Any] = yaml.safe_load("""
connections:
  shop:
    driver: postgresql
    uri: postgresql://reader:p4ssw0rd-long@db:5432/shop
    backward: { days: 2 }
  lake: { driver: delta, uri: /data/lake }
  crm:
    driver: http
    base_url: https://crm.example/v1
    auth: { kind: bearer, token: t0ken-of-the-crm }
    headers: { X-Tenant: tenant-secret-1 }
pipelines:
  orders:
    sources:
      erp:
        kind: table
        id: erp-orders
        connection: shop
        table: public.orders
        filter: status <> 'draft'
        watermark:
          columns: [updated_at]
          bound: settled
          settle: 1m
          nulls: first
          backward: { days: 3 }
          reread: new_only
          key: [id]
        advanced: { split: { by: id, tasks: 4 } }
      versions:
        kind: table
        connection: lake
        table: orders
        watermark: {}
      crm:
        kind: http
        connection: crm
        request: { path: /orders, params: { state: all } }
        records: data.items
        pages: { kind: cursor, next: meta.next, param: cursor, limit_param: limit, size: 500 }
        watermark:
          columns: [updated_at]
          push:
            from: { param: since, format: iso }
            to: { param: until, inclusive: 1ms }
          split: { unit: day, start: 2023-07-01 }
    sink: { table_uri: /data/lake/out }
    schema:
      fields: [{ name: id, type: int64 }, { name: updated_at, type: timestamp }]
""")


SOURCES = "pipelines.orders.sources"


def erp(**places: Any) -> dict[str, Any]:
    """Return the good document with values at dotted places (``__`` for the dot)."""
    below = {place.replace("__", "."): places[place] for place in places}
    return with_changes(GOOD, below, f"{SOURCES}.erp")


def lake(driver: str, options: Any = None, **places: Any) -> dict[str, Any]:
    """The good document with a table of a lake by columns."""
    connection = {"connections.lake.driver": driver, "connections.lake.options": options or {}}
    table = {"watermark": {"columns": ["updated_at"]}, **places}
    return with_changes(GOOD, {**connection, **table}, f"{SOURCES}.versions")


def test_the_example_loads_and_the_default_kind_is_files(tmp_path: Path) -> None:
    files = {"files": {"source_uri": "/data/raw"}}
    config = load(tmp_path, with_changes(GOOD, files, SOURCES))
    sources = config.pipelines["orders"].sources
    assert [source.kind for source in sources.values()] == ["table", "table", "http", "files"]
    assert isinstance(sources["files"], SourceSettings)


WRONG = """
erp.kind: tabel => must be one of 'files', 'table', 'http'
erp.connection: shp => known: shop, lake, crm
erp.connection: crm => kind must be http @ erp.kind
crm.connection: shop => kind must be table @ crm.kind
erp.tabel: x => did you mean table?
erp.query: SELECT 1 => one of the two @ erp
erp.table: ~ => one of the two @ erp
erp.watermark: ~ => is required: give one of watermark, units and snapshot: true @ erp
erp.snapshot: true => watermark and snapshot: true is given @ erp
erp.units: {} => watermark and units is given @ erp
erp.watermark.columns: [] => double every row
erp.watermark.columns: [a b] => is no column name
erp.watermark.columns: [id, id] => given twice
erp.watermark.columns: [id, updated_at], erp.watermark.reread: replace
  => replace needs exactly one column @ erp.watermark.reread
erp.watermark.reread: ~ => required with a look-back
erp.format: csv => not for driver postgresql; leave it out
pipelines.orders.error_handling: {advanced: {max_expansion: 9}}
  => is for sources of kind files @ pipelines.orders.error_handling.advanced.max_expansion
erp.watermark.backward: 0 => is only for a look-back @ erp.watermark.reread
erp.watermark.key: [nr] => 'nr', which is not a field @ erp.watermark.reread
erp.units: {partition: monthly}, erp.watermark: ~ => units are read whole; leave it out @ erp
erp.watermark.bound: version => does not support version
erp.watermark.bound: exact => must be '
erp.watermark.settle: -1 => must be at least 0 @ erp.watermark.advanced.settle
erp.watermark.backward: {days: -1} => must be a duration
erp.watermark.backward: {closing_day: 32} => from 1 to 31
erp.advanced.split: {tasks: 4} => is required where tasks is above 1 @ erp.advanced.split.by
versions.query: SELECT 1, versions.table: ~ => a lake has no queries
versions.watermark: {backward: {days: 1}}
  => versions have no look-back @ versions.watermark.backward
crm.records: ~ => is required
crm.watermark.columns: [a, b] => 1 at most are allowed
crm.watermark.columns: ~ => is required
crm.watermark.bound: max => must be 'clock'
crm.watermark.columns: [id] => 'id' is int64, and an API
crm.watermark.columns: [Id] => 'Id' is not a field
crm.watermark.push: ~ => is required
crm.watermark.push.to: ~ => split needs push.to @ crm.watermark
crm.watermark.push.from.inclusive: 1s => unknown key
crm.watermark.split.start: soon => no date or time
crm.watermark.push.in: body => body needs request.body @ crm
crm.request.method: POST => with `body` is a POST
crm.request.headers: {} => give them in the connection
crm.pages.next: ~ => kind cursor needs next @ crm.pages
crm.pages.next: "" => must not be empty
crm.pages.param: "" => must not be empty
crm.pages: {kind: none, param: x} => not used by kind none
connections.crm.auth: {kind: basic} => needs username, password
connections.crm.base_url: "ftp://x" => must be an address
connections.shop.driver: oracle => must be '
connections.shop.base_url: x => unknown key
pipelines.orders.schema: {infer: true}
  => whose columns must be declared @ pipelines.orders.schema.infer
pipelines.orders.sink.partition_by: {prefix_template: date=%Y-%m-%d}
  => has no files @ pipelines.orders.sink.partition_by.prefix_template
pipelines.orders.error_handling: {on_bad_record: quarantine_file}
  => has no files to quarantine @ pipelines.orders.error_handling.on_bad_record
"""


@pytest.mark.parametrize(("changes", "said", "place"), cases(WRONG))
def test_incompatible_settings_are_reported_with_a_line(
    tmp_path: Path, changes: dict[str, Any], said: str, place: str
) -> None:
    found = problems(tmp_path, with_changes(GOOD, changes, SOURCES))
    assert is_reported(found, said, place or next(iter(changes)))


@pytest.mark.parametrize(
    ("document", "place", "said"),
    [
        (
            lake("parquet", format="csv"),
            "versions.format",
            "no files of the format csv; use parquet",
        ),
        (lake("delta", format="parquet"), "versions.format", "not for driver delta; leave it out"),
        (
            lake("parquet", format={"type": "parquet", "row_groups": "copy"}),
            "versions.format.row_groups",
            "copy is for sources of kind files",
        ),
        (lake("csv", format="excel"), "versions.format", "no files of the format excel; use csv"),
        (lake("json", format="csv"), "versions.format", "use ndjson or json"),
        (lake("xml"), "versions.format", "is required with driver xml"),
        (lake("csv", {"delimiter": ";"}), "lake", "options: not used by driver csv"),
    ],
)
def test_a_format_that_its_driver_lacks_is_reported(
    tmp_path: Path, document: Any, place: str, said: str
) -> None:
    assert is_reported(problems(tmp_path, document), said, place)


def typed(column: str, field: dict[str, Any]) -> dict[str, Any]:
    """The API's watermark column, and its field beside those of the tables."""
    document = with_changes(GOOD, {"crm.watermark.columns": [column]}, SOURCES)
    document["pipelines"]["orders"]["schema"]["fields"].append(field)
    return document


@pytest.mark.promise("G-150")
@pytest.mark.parametrize(
    "kind", ["string", "int32", "int64", "float64", "decimal(10,2)", "boolean", "json", "binary"]
)
def test_api_watermark_column_must_be_a_timestamp_or_date(tmp_path: Path, kind: str) -> None:
    with pytest.raises(ConfigError, match=r"'mark' is .*name a field of type timestamp or date"):
        load(tmp_path, typed("mark", {"name": "mark", "type": kind}))


@pytest.mark.parametrize("kind", ["timestamp", "date"])
def test_a_time_of_an_api_may_lie_in_a_struct(tmp_path: Path, kind: str) -> None:
    inner = [{"name": "at", "type": kind}, {"name": "n", "type": "int64"}]
    meta = {"name": "meta", "type": "struct", "fields": inner}
    load(tmp_path, typed("meta.at", meta))
    for wrong, told in (("meta.n", "is int64"), ("meta", "is struct"), ("meta.x", "is not a")):
        with pytest.raises(ConfigError, match=f"'{wrong}' {told}"):
            load(tmp_path, typed(wrong, meta))


@pytest.mark.parametrize("unit", ["s", "ms", "us"])
def test_a_time_of_an_api_may_be_a_number(tmp_path: Path, unit: str) -> None:
    load(tmp_path, typed("mark", {"name": "mark", "type": "timestamp", "unit": unit}))


def test_a_sources_look_back_replaces_the_connections(tmp_path: Path) -> None:
    def in_force(document: Any) -> dict[str, int]:
        config = load(tmp_path, document)
        source = config.pipelines["orders"].sources["erp"]
        assert not isinstance(source, SourceSettings)
        return source.look_back(config.connections["shop"])

    assert in_force(GOOD) == {"hours": 72}
    assert in_force(erp(watermark__backward={"months": 1})) == {"months": 1}
    assert in_force(erp(watermark__backward=None)) == {"hours": 48}
    assert in_force(erp(watermark__backward="closing_day=5")) == {"closing_day": 5}
    off = erp(watermark__backward=0, watermark__reread=None, watermark__key=None)
    assert in_force(off) == {}


def test_credentials_are_masked_from_then_on(tmp_path: Path) -> None:
    try:
        config = load(tmp_path, GOOD)
        for secret in ("p4ssw0rd-long", "t0ken-of-the-crm", "tenant-secret-1"):
            assert redact.redacted(f"said {secret}") == "said ***"
        assert "t0ken" not in repr(config)
    finally:
        redact.forget()


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ("2d", {"hours": 48}),
        ("months=1", {"months": 1}),
        ("P1M", {"months": 1}),
        ("1 year 12h", {"months": 12, "hours": 12}),
        ({"closing_day": 5}, {"closing_day": 5}),
        ("months=1, closing_day=5", {"months": 1, "closing_day": 5}),
        ({"months": 1, "days": 2}, {"months": 1, "hours": 48}),
        ("0", {}),
        (0, {}),
    ],
)
def test_a_look_back_is_a_duration_or_a_day(given: object, expected: dict[str, int]) -> None:
    assert parse_look_back(given) == expected


@pytest.mark.parametrize(
    ("given", "why"),
    [
        ("30m", "whole number of hours"),
        (2, "with its unit"),
        ({"weeks_or": 1}, "must be a duration"),
        ("closing_day=32", "from 1 to 31"),
        (True, "must be a duration"),
        ([1], "must be a duration"),
    ],
)
def test_a_look_back_that_is_none_is_refused(given: object, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_look_back(given)


@pytest.mark.parametrize("driver", get_args(DatabaseDriver))
def test_every_database_driver_has_read_bounds(driver: DatabaseDriver) -> None:
    assert DatabaseConnectionSettings(driver=driver, uri="x").bounds


@pytest.mark.parametrize("driver", get_args(LakeDriver))
def test_every_lake_driver_has_read_bounds(driver: LakeDriver) -> None:
    assert LakeConnectionSettings(driver=driver, uri="x").bounds
