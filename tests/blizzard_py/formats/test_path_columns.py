"""Columns from a path: what is read back, and which paths are refused."""

from __future__ import annotations

import datetime as dt
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.settings.globs import PathColumnType, check_path_template
from blizzard_py.formats.path_columns import path_values
from blizzard_py.job import FieldSpec
from blizzard_py.kernels.write.partition import value_directory
from blizzard_py.lines.failure import FileFailed

VALUES: dict[PathColumnType, st.SearchStrategy[Any]] = {
    "string": st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=9),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(timezones=st.just(dt.UTC)),
}
TYPED = st.sampled_from([*VALUES]).flatmap(
    lambda kind: st.tuples(st.just(kind), st.none() | VALUES[kind])
)


def values(path: str, template: str = "", **kinds: PathColumnType) -> list[Any]:
    specs = [FieldSpec(name, kind, nullable=True) for name, kind in kinds.items()]
    return [value for [value] in (a.to_pylist() for a in path_values(path, specs, template))]


@given(TYPED, st.text(max_size=5))
def test_what_is_written_as_a_directory_is_read_back(
    typed: tuple[PathColumnType, Any], key: str
) -> None:
    kind, value = typed
    name = f"k{key}".encode("utf-8", "ignore").decode()
    path = f"x/{value_directory(name, value)}/y=1/a.json"
    assert values(path, **{name: kind}) == [value]


@pytest.mark.parametrize(
    ("path", "template", "expected"),
    [
        ("region=eu/tenant=7/a.json", "", ["eu", 7]),
        ("tenant=7/x/region=%C3%A4%2Fb%20c/a.json", "", ["ä/b c", 7]),
        ("region=__HIVE_DEFAULT_PARTITION__/tenant=__HIVE_DEFAULT_PARTITION__/a", "", [None, None]),
        ("region=/tenant=7/a.json", "", ["", 7]),
        ("region=a=b/tenant=7/a.json", "", ["a=b", 7]),
        ("eu/7/a.json", "{region}/{tenant}", ["eu", 7]),
        ("x/7%20/b/region=eu/a.json", "*/{tenant}%20", ["eu", 7]),
        ("t-7/a.b/eu%41/2/a.json", "t-{tenant}/a.b/{region}", ["eu%41", 7]),
    ],
)
def test_values_come_from_keys_and_places(path: str, template: str, expected: list[Any]) -> None:
    assert values(path, template, region="string", tenant="int64") == expected


@pytest.mark.parametrize(
    ("path", "template", "reason"),
    [
        ("region=eu/a.json", "", "no folder tenant=… for path column 'tenant'"),
        ("region=eu/tenant=7", "", "no folder tenant=…"),  # the file itself is no folder
        ("region=eu/Tenant=7/a.json", "", "no folder tenant=…"),
        ("region=eu/tenant=7/tenant=7/a.json", "", "two values for path column 'tenant'"),
        ("7/region=eu/tenant=7/a.json", "{tenant}", "two values for path column 'tenant'"),
        ("region=eu/tenant=x/a.json", "", "'x' for path column 'tenant', which is no int32"),
        ("region=eu/tenant=/a.json", "", "'' for path column 'tenant'"),
        ("region=eu/tenant=3000000000/a.json", "", "which is no int32"),
        ("region=%FF/tenant=7/a.json", "", "'%FF' for path column 'region', which is no string"),
        ("region=\udcff/tenant=7/a.json", "", "which is no string"),
        ("eu/a.json", "{region}/{tenant}", "does not begin as path_template"),
        ("eu/aa-7/a.json", "{region}/a-{tenant}", "does not begin as path_template"),
    ],
)
def test_path_without_its_values_is_refused(path: str, template: str, reason: str) -> None:
    with pytest.raises(FileFailed) as caught:
        values(path, template, region="string", tenant="int32")
    assert caught.value.stage == "partition"
    assert reason in caught.value.reason


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("{a}/{a}", "each name once"),
        ("a/b", "must have a {name}"),
        ("{}", "must have a {name}"),
        ("{a}{b}", "at most one {name}"),
        ("{a}*", "at most one {name}"),
        ("{a", "at most one {name}"),
        ("/{a}", "an empty folder"),
        ("../{a}", "an empty folder"),
    ],
)
def test_template_is_checked(template: str, problem: str) -> None:
    with pytest.raises(ValueError, match=problem.replace("{", r"\{").replace("}", r"\}")):
        check_path_template(template)
