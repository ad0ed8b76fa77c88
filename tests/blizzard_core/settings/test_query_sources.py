"""Tables and APIs in the configuration: each wrong combination has its place and its remedy."""

from __future__ import annotations

import copy
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
from blizzard_core.settings.document import Config
from blizzard_core.settings.formats import CsvOptions
from blizzard_core.settings.load import load_config
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.sources import SourceSettings
from tests.support.flat_settings import nested

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
        request: { method: GET, path: /orders, params: { state: all } }
        records: data.items
        pages: { kind: cursor, next: meta.next, param: cursor, limit_param: limit, size: 500 }
        watermark:
          columns: [updated_at]
          push:
            from: { param: since, format: iso }
            to: { param: until, inclusive: 1ms }
            in: params
          split: { unit: day, start: 2023-07-01 }
    sink: { table_uri: /data/lake/out }
    schema:
      fields: [{ name: id, type: int64 }, { name: updated_at, type: timestamp }]
""")
ERP = "pipelines.orders.sources.erp"
CRM = "pipelines.orders.sources.crm"
LAKE = "pipelines.orders.sources.versions"


def changed(**places: Any) -> dict[str, Any]:
    """The good document with values at dotted places (``__`` for the dot); ``...`` removes."""
    document = copy.deepcopy(GOOD)
    for place, value in places.items():
        block = document
        *outer, last = place.split("__")
        for key in outer:
            block = block.setdefault(key, {})
        if value is ...:
            del block[last]
        else:
            block[last] = value
    return document


def load(tmp_path: Path, document: Any) -> Config:
    path = tmp_path / "config.yaml"
    path.write_text(yaml.safe_dump(nested(Config, document)))
    return load_config(path, {})


def erp(**places: Any) -> dict[str, Any]:
    return changed(**{f"pipelines__orders__sources__erp__{k}": v for k, v in places.items()})


def crm(**places: Any) -> dict[str, Any]:
    return changed(**{f"pipelines__orders__sources__crm__{k}": v for k, v in places.items()})


def lake(driver: str, options: Any = None, **places: Any) -> dict[str, Any]:
    """The good document with a table of a lake by columns."""
    document = changed(
        connections__lake__driver=driver,
        connections__lake__options=options or {},
        pipelines__orders__sources__versions__watermark={"columns": ["updated_at"]},
    )
    document["pipelines"]["orders"]["sources"]["versions"] |= places
    return document


def test_the_example_loads_and_the_default_kind_is_files(tmp_path: Path) -> None:
    document = changed(pipelines__orders__sources__files={"source_uri": "/data/raw"})
    config = load(tmp_path, document)
    sources = config.pipelines["orders"].sources
    assert [source.kind for source in sources.values()] == ["http", "table", "files", "table"]
    assert isinstance(sources["files"], SourceSettings)


WRONG = [
    (erp(kind="tabel"), f"{ERP}.kind", "must be one of 'files', 'table', 'http'"),
    (erp(connection="shp"), f"{ERP}.connection", "known: crm, lake, shop"),
    (erp(connection="crm"), f"{ERP}.kind", "kind must be http"),
    (crm(connection="shop"), f"{CRM}.kind", "kind must be table"),
    (erp(tabel="x"), f"{ERP}.tabel", "did you mean table?"),
    (erp(query="SELECT 1"), ERP, "one of the two"),
    (erp(table=...), ERP, "one of the two"),
    (erp(watermark=...), ERP, "is required: give one of watermark, units and snapshot: true"),
    (erp(snapshot=True), ERP, "watermark and snapshot: true is given"),
    (erp(units={}), ERP, "watermark and units is given"),
    (erp(watermark__columns=[]), f"{ERP}.watermark.columns", "double every row"),
    (erp(watermark__columns=["a b"]), f"{ERP}.watermark.columns", "is no column name"),
    (erp(watermark__columns=["id", "id"]), f"{ERP}.watermark.columns", "given twice"),
    (
        erp(watermark__columns=["id", "updated_at"], watermark__reread="replace"),
        f"{ERP}.watermark.reread",
        "replace needs exactly one column",
    ),
    (erp(watermark__reread=...), f"{ERP}.watermark.reread", "required with a look-back"),
    (erp(format="csv"), f"{ERP}.format", "not for driver postgresql; leave it out"),
    (
        changed(pipelines__orders__error_handling={"advanced": {"max_expansion": 9}}),
        "pipelines.orders",
        "max_expansion is for sources of kind files",
    ),
    (lake("parquet", format="csv"), f"{LAKE}.format", "no files of the format csv; use parquet"),
    (lake("delta", format="parquet"), f"{LAKE}.format", "not for driver delta; leave it out"),
    (
        lake("parquet", format={"type": "parquet", "row_groups": "copy"}),
        f"{LAKE}.format.row_groups",
        "copy is for sources of kind files",
    ),
    (lake("csv", format="excel"), f"{LAKE}.format", "no files of the format excel; use csv"),
    (lake("json", format="csv"), f"{LAKE}.format", "use ndjson or json"),
    (lake("xml"), f"{LAKE}.format", "row_tag: Field required"),
    (lake("csv", {"delimiter": ";;"}), f"{LAKE}.format", "delimiter: must be one character"),
    (
        lake("csv", {"delimiter": ";"}, format={"type": "csv", "delimiter": "|"}),
        f"{LAKE}.format.delimiter",
        "is '|', and options.delimiter of connection 'lake' is ';'; leave one of them out",
    ),
    (erp(watermark__backward=0), f"{ERP}.watermark.reread", "is only for a look-back"),
    (erp(watermark__key=["nr"]), f"{ERP}.watermark.reread", "'nr', which is not a field"),
    (erp(units={"partition": "monthly"}, watermark=...), ERP, "leave split out"),
    (erp(watermark__bound="version"), f"{ERP}.watermark.bound", "does not support version"),
    (erp(watermark__bound="exact"), f"{ERP}.watermark.bound", "must be '"),
    (erp(watermark__settle=-1), f"{ERP}.watermark.advanced.settle", "must be at least 0"),
    (erp(watermark__backward={"days": -1}), f"{ERP}.watermark.backward", "must be a duration"),
    (erp(watermark__backward={"closing_day": 32}), f"{ERP}.watermark.backward", "from 1 to 31"),
    (
        erp(advanced__split={"tasks": 4}),
        f"{ERP}.advanced.split.by",
        "is required where tasks is above 1",
    ),
    (
        changed(
            pipelines__orders__sources__versions__query="SELECT 1",
            pipelines__orders__sources__versions__table=...,
        ),
        "versions.query",
        "a lake has no queries",
    ),
    (
        changed(pipelines__orders__sources__versions__watermark={"backward": {"days": 1}}),
        "versions.watermark.backward",
        "versions have no look-back",
    ),
    (crm(records=...), f"{CRM}.records", "is required"),
    (crm(watermark__columns=["a", "b"]), f"{CRM}.watermark.columns", "give one column"),
    (crm(watermark__columns=...), f"{CRM}.watermark.columns", "is required"),
    (crm(watermark__bound="max"), f"{CRM}.watermark.bound", "no other bound than clock"),
    (crm(watermark__columns=["id"]), f"{CRM}.watermark.columns", "'id' is int64, and an API"),
    (crm(watermark__columns=["Id"]), f"{CRM}.watermark.columns", "'Id' is not a field"),
    (crm(watermark__push=...), f"{CRM}.watermark.push", "is required"),
    (crm(watermark__push__to=...), f"{CRM}.watermark", "split needs push.to"),
    (crm(watermark__push__from__inclusive="1s"), "push", "unknown key"),
    (crm(watermark__split__start="soon"), f"{CRM}.watermark.split.start", "no date or time"),
    (crm(watermark__push__in="body"), CRM, "goes with request.method: POST"),
    (crm(request__body={"a": 1}), f"{CRM}.request", "body goes with method: POST"),
    (crm(pages__next=...), f"{CRM}.pages", "kind cursor needs next"),
    (crm(pages__next=""), f"{CRM}.pages.next", "must not be empty"),
    (crm(pages__param=""), f"{CRM}.pages.param", "must not be empty"),
    (crm(pages={"kind": "none", "param": "x"}), f"{CRM}.pages", "not used by kind none"),
    (changed(connections__crm__auth={"kind": "basic"}), "crm.auth", "needs username, password"),
    (changed(connections__crm__base_url="ftp://x"), "crm.base_url", "must be an address"),
    (changed(connections__shop__driver="oracle"), "connections.shop.driver", "must be '"),
    (changed(connections__shop__base_url="x"), "connections.shop.base_url", "unknown key"),
    (
        changed(pipelines__orders__schema={"infer": True}),
        "schema.infer",
        "whose columns must be declared",
    ),
    (
        changed(pipelines__orders__sink__partition_by={"prefix_template": "date=%Y-%m-%d"}),
        "sink.partition_by.prefix_template",
        "has no files",
    ),
    (
        changed(pipelines__orders__error_handling={"on_bad_record": "quarantine_file"}),
        "error_handling.on_bad_record",
        "has no files to quarantine",
    ),
]


def typed(column: str, field: dict[str, Any]) -> dict[str, Any]:
    """The API's watermark column, and its field beside those of the tables."""
    document = crm(watermark__columns=[column])
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


@pytest.mark.parametrize(("document", "place", "told"), WRONG, ids=lambda v: str(v)[:40])
def test_incompatible_settings_are_reported_with_a_line(
    tmp_path: Path, document: Any, place: str, told: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, document)
    found = [problem for problem in caught.value.problems if place in problem and told in problem]
    assert found, caught.value
    assert all("(line " in problem for problem in found)


def test_a_sources_look_back_replaces_the_connections(tmp_path: Path) -> None:
    def in_force(document: Any) -> dict[str, int]:
        config = load(tmp_path, document)
        source = config.pipelines["orders"].sources["erp"]
        assert not isinstance(source, SourceSettings)
        return source.look_back(config.connections["shop"])

    assert in_force(GOOD) == {"hours": 72}
    assert in_force(erp(watermark__backward={"months": 1})) == {"months": 1}
    assert in_force(erp(watermark__backward=...)) == {"hours": 48}
    assert in_force(erp(watermark__backward="closing_day=5")) == {"closing_day": 5}
    off = erp(watermark__backward=0, watermark__reread=..., watermark__key=...)
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


@pytest.mark.parametrize(
    ("options", "form", "delimiter"),
    [
        ({}, None, ","),
        ({"delimiter": ";"}, None, ";"),
        ({"delimiter": ";"}, "csv", ";"),
        ({}, {"type": "csv", "delimiter": "|"}, "|"),
        ({"delimiter": "|"}, {"type": "csv", "delimiter": "|"}, "|"),
    ],
)
def test_delimiter_of_a_csv_table(
    tmp_path: Path, options: dict[str, str], form: Any, delimiter: str
) -> None:
    config = load(tmp_path, lake("csv", options, format=form))
    source = config.pipelines["orders"].query_sources["versions"]
    assert isinstance(source, TableSourceSettings)
    found = source.files_of(config.connections["lake"])
    assert isinstance(found, CsvOptions)
    assert found.delimiter == delimiter
