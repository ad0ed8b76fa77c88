"""The ends of units as they are said to APIs and databases: none in two units, none in no one."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.errors import ConfigError
from blizzard_py.__main__ import main
from blizzard_py.app import inspection
from tests.support.api_server import ReceivedRequest, Reply, api_server, reply
from tests.support.group_reader import rows_of
from tests.support.unit_shop import UnitShop, api_shop

SOURCE = "pipelines.p.sources.answers"


def days_of(asked: ReceivedRequest) -> Reply:
    """A row for each day of a range whose end is in it; one that ends before it begins fails."""
    first, last = (dt.date.fromisoformat(asked.params[key]) for key in ("start", "end"))
    if last < first:
        return reply({"error": "end before start"}, 400)
    days = [first + dt.timedelta(days=n) for n in range((last - first).days + 1)]
    return reply({"items": [{"text": str(day)} for day in days]})


DAYS = {"start": "{from:date}", "end": "{to:date}"}
ZONES = ["UTC", "Europe/Berlin", "America/Los_Angeles", "Australia/Lord_Howe"]


@pytest.mark.promise("G-155")
@pytest.mark.parametrize("partition", ["none", "daily", "monthly"])
@pytest.mark.parametrize("zone", ZONES)
def test_an_inclusive_end_brings_each_day_once(tmp_path: Path, partition: str, zone: str) -> None:
    # Clocks change in October, November and April, within the grace of three days.
    range_ = {"from": "2019-10-20", "to": "P0D", "zone": zone}
    with api_server() as api:
        api.answer = days_of
        shop = api_shop(
            tmp_path, api.url, DAYS, range=range_, partition=partition, grace="3d", inclusive=True
        )
        shop.now = dt.datetime(2019, 10, 25, 16, tzinfo=dt.UTC)
        for _ in range(14):
            shop.run()
            shop.passes(days=1)
        found = Counter(shop.texts())
        assert set(found.values()) == {1}
        assert min(found) == "2019-10-20"
        # It is tomorrow by then at the east of the world.
        assert max(found) == ("2019-11-07" if zone == "Australia/Lord_Howe" else "2019-11-06")
        assert len(found) == int(max(found)[-2:]) + 12


FORMS = [
    ("{to}", "2020-01-31T23:59:59.999999Z"),
    ("{to:iso}", "2020-01-31T23:59:59.999999+00:00"),
    ("{to:date}", "2020-01-31"),
    ("{to:datetime}", "2020-01-31T23:59:59"),
    ("{to:datetime_ms}", "2020-01-31T23:59:59.999"),
    ("{to:timestamp}", "1580515199.999999"),
    ("{to:timestamp_ms}", "1580515199999"),
]


@pytest.mark.parametrize(("form", "sent"), FORMS)
def test_an_inclusive_end_is_less_by_its_format(tmp_path: Path, form: str, sent: str) -> None:
    range_ = {"from": "2020-01-01", "to": "2020-02-01"}
    first = form.replace("to", "from")
    params = {"a": first, "z": form, "both": f"{first}/{form}"}
    shop = api_shop(tmp_path, "http://127.0.0.1:9", params, range=range_, inclusive=True)
    found = inspection.plan(shop.config(), now=shop.now, offline=True, everything=True)[0]
    (unit,) = found["pipelines"]["p"]["sources"]["answers"]["units"]
    asked = unit["request"]["params"]
    assert asked["z"] == sent
    assert asked["both"] == f"{asked['a']}/{sent}"


@pytest.mark.parametrize("zone", ZONES)
def test_days_and_wall_times_are_those_of_the_zone(tmp_path: Path, zone: str) -> None:
    range_ = {"from": "2020-02-01", "to": "2020-02-03", "zone": zone}
    names = ("date", "datetime", "datetime_ms")
    params = {name: f"{{from:{name}}} {{to:{name}}}" for name in names} | {"plain": "{from}"}
    shop = api_shop(tmp_path, "http://127.0.0.1:9", params, range=range_, partition="daily")
    found = inspection.plan(shop.config(), now=shop.now, offline=True, everything=True)[0]
    units = found["pipelines"]["p"]["sources"]["answers"]["units"]
    asked = [unit["request"]["params"] for unit in units]
    assert [one["date"] for one in asked] == ["2020-02-01 2020-02-02", "2020-02-02 2020-02-03"]
    assert asked[0]["datetime"] == "2020-02-01T00:00:00 2020-02-02T00:00:00"
    assert asked[1]["datetime_ms"] == "2020-02-02T00:00:00.000 2020-02-03T00:00:00.000"
    assert asked[0]["plain"] == units[0]["partition"]["from"]


REQUESTS: list[tuple[dict[str, str], dict[str, Any], str, str]] = [
    (DAYS, {"partition": "hourly"}, "units.partition", "is hourly"),
    ({"from": "{from:date}", "to": "{to}"}, {}, "request", "use one format for both"),
    (DAYS, {"range": {"from": "2020-01-01", "to": "-"}}, "units.range.to", "P0D"),
    (DAYS, {"range": {"from": "2020-01-01", "to": "P0DT1H"}}, "units.range.to", "P0D"),
    ({"from": "{from}"}, {"inclusive": True}, "units.advanced.inclusive", "{to}"),
    ({"from": "{from}", "to": "{to}", "x": "{till}"}, {}, "request.params.x", "{till}"),
    ({"from": "{from}", "to": "{to:day}"}, {}, "request.params.to", "unknown format 'day'"),
]


@pytest.mark.promise("G-155")
@pytest.mark.parametrize(("params", "units", "key", "told"), REQUESTS)
def test_ends_that_a_request_cannot_say_are_refused(
    tmp_path: Path, params: dict[str, str], units: dict[str, Any], key: str, told: str
) -> None:
    units = {"partition": "daily", "range": {"from": "2020-01-01", "to": "P0D"}, **units}
    shop = api_shop(tmp_path, "http://127.0.0.1:9", params, **units)
    with pytest.raises(ConfigError) as caught:
        shop.config()
    problems = [p for p in caught.value.problems if p.startswith(f"{SOURCE}.{key}")]
    assert any(told in problem for problem in problems), caught.value.problems


CONDITIONS = [
    ("day >= {from} AND day <= {to}", False, "both ends included"),
    ("t.day BETWEEN {from} AND {to}", False, "both ends included"),
    ("{from} <= day AND {to} >= day", False, "both ends included"),
    ("day > {from} AND day < {to}", False, "both ends excluded"),
    ("day >= {from} AND day < {to}", True, "excludes the end"),
    ("day >= {from:date} AND day < {to:datetime}", False, "two formats"),
    ("day >= {from:timestamp} AND day < {to:timestamp}", False, "unknown format 'timestamp'"),
]


@pytest.mark.promise("G-155")
@pytest.mark.parametrize(("condition", "inclusive", "told"), CONDITIONS)
def test_ends_that_a_query_says_wrongly_are_refused(
    tmp_path: Path, condition: str, inclusive: bool, told: str
) -> None:
    shop = UnitShop(tmp_path, inclusive=inclusive)
    shop.source["query"] = f"SELECT * FROM answers t WHERE {condition}"
    with pytest.raises(ConfigError, match=told):
        shop.config()


@pytest.mark.promise("G-154")
@pytest.mark.parametrize(
    "condition", ["day BETWEEN {from} AND {to}", "day >= {from} AND day < {to}"]
)
@pytest.mark.parametrize("zone", ["UTC", "America/Los_Angeles", "Pacific/Auckland"])
def test_a_column_of_dates_is_read_by_days(tmp_path: Path, zone: str, condition: str) -> None:
    range_ = {"from": "2020-02-01", "to": "-", "zone": zone}
    shop = UnitShop(tmp_path, range=range_, inclusive="BETWEEN" in condition)
    shop.source["query"] = f"SELECT day, survey, text FROM answers WHERE {condition}"
    shop.document["pipelines"]["p"]["schema"]["fields"][0]["type"] = "date"
    where = dt.timedelta(hours={"UTC": 0, "America/Los_Angeles": -8, "Pacific/Auckland": 13}[zone])
    shop.now = dt.datetime(2020, 2, 3, 20, tzinfo=dt.UTC)
    written = []
    for hour in range(80):
        day = (shop.now + where).date()
        written.append(f"{day} {hour}")
        shop.put((str(day), "s", written[-1]))
        if hour % 7 == 0:
            shop.run()
        shop.passes(hours=1)
    shop.run()
    today = str((shop.now + where).date())
    assert shop.texts() == sorted(text for text in written if text[:10] < today)


def test_a_list_in_json_text_is_read_as_json(tmp_path: Path) -> None:
    params = {"from": "{from}", "to": "{to}", "k": "{unit.k}"}
    values = {"name": "x", "list": '[{"k": "2018"}, {"k": 2019}]'}
    shop = api_shop(tmp_path, "http://127.0.0.1:9", params, values=values)
    found = inspection.plan(shop.config(), now=shop.now, offline=True, everything=True)[0]
    units = found["pipelines"]["p"]["sources"]["answers"]["units"]
    assert {unit["request"]["params"]["k"] for unit in units} == {"2018", "2019"}
    for wrong, told in (('[{"k": "2018"', "is none"), ('{"k": 1}', "no list"), ("[]", "empty")):
        shop.units["values"] = {"name": "k", "list": wrong}
        with pytest.raises(ConfigError, match=told):
            shop.config()


PLACES = [
    ("path", "/x/{id}", True),
    ("path", "/x/{from}", True),
    ("params", {"a": "{from}"}, True),
    ("params", {"a": "{since}"}, True),
    ("params", {"query": "{orders{id}} of {x}"}, False),
    ("body", {"a": ["{unit.k}"]}, True),
    ("body", {"query": "query {orders{id}}"}, False),
]


@pytest.mark.parametrize(("where", "value", "is_refused"), PLACES)
def test_placeholders_without_units_are_refused(
    tmp_path: Path, where: str, value: Any, is_refused: bool
) -> None:
    shop = api_shop(tmp_path, "http://127.0.0.1:9", {})
    del shop.source["units"]
    shop.document["pipelines"]["p"]["schema"]["fields"] = [{"name": "at", "type": "timestamp"}]
    shop.source["watermark"] = {"columns": ["at"], "push": {"from": {"param": "since"}}}
    shop.source["request"] = {"path": "/x", where: value}
    if not is_refused:
        shop.config()
        return
    with pytest.raises(ConfigError, match=rf"request\.{where}.*for `units`"):
        shop.config()


def test_validate_asks_whether_an_end_is_counted_in(tmp_path: Path) -> None:
    with api_server() as api:
        api.answer = days_of
        range_ = {"from": "2020-01-01", "to": "P0D"}
        shop = api_shop(tmp_path, api.url, DAYS, range=range_)
        told = CliRunner().invoke(main, ["validate", str(shop.path())])
        assert "set units.advanced.inclusive: true" in told.output
        shop.units["inclusive"] = True
        told = CliRunner().invoke(main, ["validate", str(shop.path())])
        assert (told.exit_code, "inclusive" in told.output) == (0, False)
        shop.run()
        assert len(rows_of(tmp_path / "lake")) == 52
