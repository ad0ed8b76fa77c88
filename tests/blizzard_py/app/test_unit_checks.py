"""Problems of work units are found with key and line, before any request."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from blizzard_core.errors import ConfigError
from blizzard_core.settings.units import UnitSettings
from blizzard_py.app.queries.units import range_of
from blizzard_py.slices.units.ranges import Part
from tests.support.unit_shop import UnitShop

SOURCE = "pipelines.p.sources.answers"
WRONG: list[tuple[dict[str, Any], str, str]] = [
    ({"range": {"from": "2020-02-01", "to": "2020-01-01"}}, "units.range.to", "is not behind"),
    ({"range": {"from": "P1M"}}, "units.range.from", "is no instant"),
    ({"range": {"from": "-"}}, "units.range.from", "an end only"),
    ({"range": {"from": "2020-01-01", "zone": "Mars/X"}}, "units.range.zone", "Mars/X"),
    ({"range": {"from": "P30D"}}, "units.range.from", "moves"),
    ({"range": {"from": "1900-01-01"}, "partition": "hourly"}, "units.partition", "200,000"),
    ({"partition": "fortnightly"}, "units.partition", "fortnightly"),
    (
        {"partition": {"yearly": "2019-01-01", "monthly": "2019-01-01"}},
        "units.partition",
        "'monthly' begins at '2019-01-01', and its end '2019-01-01' is not behind",
    ),
    ({"values": {"name": "survey", "list": ""}}, "units.values.list", "empty"),
    ({"values": {"name": "survey", "list": ["a", {"b": "c"}]}}, "units.values", "not both"),
    ({"values": {"name": "survey", "list": "a,b,A"}}, "units.values.list", "'a' and 'A' may be"),
    ({"values": {"name": "survey"}}, "units.values", "list or from"),
    ({"values": {"list": "a"}}, "units.values", "needs name"),
    (
        {"values": {"name": "s", "list": "a", "from": {"table": "t", "fields": ["s"]}}},
        "units.values",
        "one of the two",
    ),
    ({"min_units": 2}, "units.advanced.min_units", "counts values"),
    ({"cooldown": "3d", "grace": "2d"}, "units.cooldown", "would not be read"),
    ({"max_units_per_run": 5001}, "units.advanced.max_units_per_run", "5000"),
    ({"range": ...}, "units", "there is no range"),
]


@pytest.mark.parametrize(("units", "key", "told"), WRONG, ids=lambda v: str(v)[:40])
def test_units_that_are_none_are_refused(
    tmp_path: Path, units: dict[str, Any], key: str, told: str
) -> None:
    shop = UnitShop(tmp_path)
    for name, value in units.items():
        if value is ...:
            del shop.units[name]
        else:
            shop.units[name] = value
    if "values" in units:
        shop.source["query"] += " AND survey = {unit.survey}"
    with pytest.raises(ConfigError) as caught:
        shop.config()
    problems = [p for p in caught.value.problems if p.startswith(f"{SOURCE}.{key}")]
    assert any(told in problem for problem in problems), caught.value.problems
    assert "(line " in problems[0]


QUERIES = [
    ("SELECT * FROM answers WHERE day >= '{from}' AND day < {to}", "between quotes"),
    ("SELECT * FROM answers -- {from}\nWHERE day < {to}", "in a comment"),
    (r"SELECT * FROM a WHERE x = 'C:\' AND day > {from} AND y = '' AND day < {to}", "quotes"),
    ("SELECT * FROM answers WHERE day >= {from} AND day < {till}", "{till}"),
    ("SELECT * FROM answers WHERE day >= {from:date} AND day < {to}", "in two formats"),
    ("SELECT * FROM answers", "would read the same rows"),
]


@pytest.mark.parametrize(("query", "told"), QUERIES)
def test_placeholders_stand_where_values_may(tmp_path: Path, query: str, told: str) -> None:
    shop = UnitShop(tmp_path)
    shop.source["query"] = query
    with pytest.raises(ConfigError, match=told.replace("{", r"\{")):
        shop.config()


def test_braces_in_text_are_text(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path)
    shop.source["query"] += " AND text <> '{x}' AND text NOT IN ('{\"a\": 1}')"
    shop.put(("2020-01-05", "s", "a"))
    shop.run()
    assert shop.texts() == ["a"]


def test_no_field_may_be_called_as_the_column_of_slices(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path)
    fields = shop.document["pipelines"]["p"]["schema"]["fields"]
    fields.append({"name": "_unit", "type": "string"})
    with pytest.raises(ConfigError, match="rename the field"):
        shop.config()


def test_each_scheme_ends_where_the_next_begins() -> None:
    written = {"monthly": "2019-01-01", "yearly": "2015-01-01"}  # sorted, as by Helm
    units = UnitSettings.model_validate({"range": {"to": "P1D"}, "partition": written})
    assert range_of(units).partition == (
        Part("yearly", "2015-01-01", "2019-01-01"),
        Part("monthly", "2019-01-01", "P1D"),
    )
