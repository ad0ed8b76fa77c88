"""Fields without a column, of one source and of several that share batches."""

from __future__ import annotations

from blizzard_py.ingest.unexpected import with_reported_fields
from blizzard_py.job import FieldSpec, UnexpectedField
from blizzard_py.state.source_state import KindState, SourceState

ID, AMOUNT = FieldSpec("id", "int64", nullable=True), FieldSpec("amount", "int64", nullable=True)


def unexpected(name: str, path: str) -> UnexpectedField:
    return UnexpectedField(name, path, ())


def test_a_column_of_one_source_is_none_of_another() -> None:
    state = SourceState(kind=KindState(members={"app": SourceState(), "web": SourceState()}))
    columns = {"app": (ID, AMOUNT), "web": (ID,)}
    found = [unexpected("amount", "web:1"), unexpected("x", "app:2"), unexpected("x", "web:3")]
    state, told = with_reported_fields(state, found, (ID, AMOUNT), columns)
    assert told == [(("x",), "app:2"), (("amount", "x"), "web:1")]
    assert {name: each.summary.unexpected for name, each in state.kind.members.items()} == {
        "app": ("x",),
        "web": ("amount", "x"),
    }
    again, told = with_reported_fields(state, found, (ID, AMOUNT), columns)
    assert (again, told) == (state, [])


def test_single_source_reports_each_unexpected_field_once() -> None:
    state, told = with_reported_fields(
        SourceState(), [unexpected("x", "1"), unexpected("y", "2")], (ID,), {}
    )
    assert (state.summary.unexpected, told) == (("x", "y"), [(("x", "y"), "1")])
    assert with_reported_fields(state, [unexpected("x", "3")], (ID,), {}) == (state, [])
