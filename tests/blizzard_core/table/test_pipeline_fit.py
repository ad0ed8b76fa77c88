"""The check before the first batch agrees with Penguin's check of every file."""

from __future__ import annotations

import io

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.limits import FILE_COLUMNS, FILE_LEVELS
from blizzard_core.storage.protocol import Entry
from blizzard_core.table.pipeline_fit import Fit, TableShape, pipeline_fit
from blizzard_core.table.schema_fit import SchemaRules
from penguin_py.model import Footer, TableState
from penguin_py.planning.commit_plan import make_plan

TIME = pa.timestamp("us", tz="UTC")


def fit(
    table: pa.Schema | None,
    written: pa.Schema,
    rules: SchemaRules | None = None,
    by: tuple[str, ...] = (),
    *,
    exact_nulls: bool = True,
) -> Fit:
    shape = None if table is None else TableShape(table, by)
    return pipeline_fit(shape, written, rules or SchemaRules({}, "merge"), exact_nulls=exact_nulls)


def columns(**types: pa.DataType) -> pa.Schema:
    return pa.schema(list(types.items()))


def test_fit_is_empty_when_the_columns_match() -> None:
    table = columns(id=pa.int64(), name=pa.string())
    assert fit(table, columns(id=pa.int32(), more=pa.string())) == Fit()
    assert fit(None, columns(id=pa.int32())) == Fit()


def test_each_unfit_column_is_named_with_types_and_remedy() -> None:
    found = fit(
        columns(id=pa.int32(), name=pa.string(), day=pa.date32()),
        columns(id=pa.int64(), name=pa.int64(), day=pa.date32(), NAME2=pa.string()),
    )
    wider, other = found.refused
    assert "column 'id' is int64, wider than the table's int32" in wider
    assert "schema_evolution: overwrite" in wider
    assert "column 'name' is int64, not compatible with the table's string" in other
    assert "CAST it in `transform`" in other


def test_strict_refuses_a_new_column_and_names_the_setting() -> None:
    (found,) = fit(columns(id=pa.int64()), columns(id=pa.int64(), a=pa.int8()), _strict()).refused
    assert "'a'" in found
    assert "schema_evolution to merge" in found


def test_names_in_two_cases_are_refused() -> None:
    (found,) = fit(columns(id=pa.int64()), columns(ID=pa.int64())).refused
    assert "differs only in case" in found


def test_a_required_column_that_is_lacking_is_refused() -> None:
    table = pa.schema([pa.field("id", pa.int64(), nullable=False), pa.field("a", pa.string())])
    (found,) = fit(table, columns(a=pa.string())).refused
    assert "lacks column 'id', which the table requires" in found


def test_nulls_in_a_required_column_are_a_warning_only() -> None:
    table = pa.schema([pa.field("id", pa.int64(), nullable=False)])
    found = fit(table, columns(id=pa.int64()))
    assert found.refused == ()
    assert "nullable: false" in found.warnings[0]
    assert fit(table, table) == Fit()
    # Spark calls nullable what it cannot prove otherwise, which says nothing.
    assert fit(table, columns(id=pa.int64()), exact_nulls=False) == Fit()
    assert fit(table, columns(id=pa.int64()), SchemaRules({}, "overwrite")) == Fit()


@pytest.mark.parametrize(
    ("given_types", "by", "named"),
    [
        ({}, ("day",), "partitioned by 'day'"),
        ({"day": "date"}, (), "partitioned by nothing"),
        ({"hour": "string", "day": "date"}, ("day", "hour"), "partitioned by 'day', 'hour'"),
        ({"day": "boolean"}, ("day",), "'day' is boolean by the configuration, and date32"),
    ],
)
def test_other_partitions_than_the_tables_are_refused(
    given_types: dict[str, str], by: tuple[str, ...], named: str
) -> None:
    table = columns(id=pa.int64(), day=pa.date32(), hour=pa.string())
    (found,) = fit(table, columns(id=pa.int64()), SchemaRules(given_types, "merge"), by).refused
    assert named in found


def test_fit_accepts_partition_types_of_the_table() -> None:
    table = columns(id=pa.int64(), day=pa.string(), n=pa.int64())
    assert fit(table, columns(id=pa.int64()), SchemaRules({"day": "date", "n": "int32"}, "merge"),
               ("day", "n")) == Fit()  # fmt: skip


def test_too_many_new_columns_exceed_the_tables_limit() -> None:
    many = columns(id=pa.int64(), **{f"c{n}": pa.int8() for n in range(5)})
    (found,) = fit(
        columns(id=pa.int64()), many, SchemaRules({}, "merge", max_new_columns=4)
    ).refused
    assert "max_new_columns is 4" in found


def test_a_type_unknown_to_delta_is_refused_for_a_new_table() -> None:
    (found,) = fit(None, columns(id=pa.uint64())).refused
    assert "uint64" in found


def _strict() -> SchemaRules:
    return SchemaRules({}, "strict")


FLAT = st.sampled_from(
    [pa.int8(), pa.int32(), pa.int64(), pa.float32(), pa.float64(), pa.string(), pa.binary(),
     pa.bool_(), pa.date32(), TIME, pa.timestamp("us"), pa.decimal128(9, 2), pa.uint16()]
)  # fmt: skip
NUMBERS = st.sampled_from([pa.int32(), pa.int64(), pa.float32(), pa.float64()])
TYPES = st.recursive(
    FLAT,
    lambda inner: (
        st.lists(inner, min_size=1, max_size=2).map(
            lambda kinds: pa.struct([(f"f{n}", kind) for n, kind in enumerate(kinds)])
        )
        | inner.map(pa.list_)
        | inner.map(lambda kind: pa.map_(pa.string(), kind))
    ),
    max_leaves=3,
)
NAMES = st.lists(st.sampled_from(["a", "A", "b"]), min_size=1, max_size=2, unique=True)


@st.composite
def schemas(draw: st.DrawFn) -> pa.Schema:
    return pa.schema(
        [
            pa.field(name, draw(FLAT | NUMBERS | TYPES), nullable=draw(st.booleans()))
            for name in draw(NAMES)
        ]
    )


RULES = st.builds(
    SchemaRules,
    st.just({}),
    st.sampled_from(["merge", "strict", "overwrite"]),
    st.sampled_from([1, 1000]),
)


@settings(max_examples=600)
@given(schemas(), schemas(), RULES)
def test_the_check_agrees_with_penguin_for_files_without_nulls(
    table: pa.Schema, written: pa.Schema, rules: SchemaRules
) -> None:
    if made := fit(None, table, rules).refused:
        assert _refused(None, table, rules), made
        return
    before = make_plan(None, [_footer(table, 0)], (), rules)
    assert not before.rejections
    found = pipeline_fit(TableShape(before.schema, ()), written, rules, exact_nulls=True)
    refused = _refused(before.schema, written, rules)
    assert bool(found.refused) == bool(refused), (found, refused)


def _refused(table: pa.Schema | None, written: pa.Schema, rules: SchemaRules) -> tuple[str, ...]:
    state = None if table is None else TableState(3, 1, table, (), created=10.0)
    plan = make_plan(state, [_footer(written, 1)], (), rules)
    return tuple(rejection.reason for rejection in plan.rejections)


def _footer(schema: pa.Schema, number: int) -> Footer:
    """A file of one row, in which nothing is null."""
    rows = pa.Table.from_arrays(
        [pa.array([_value(field.type)], field.type) for field in schema], schema=schema
    )
    sink = io.BytesIO()
    pq.write_table(rows, sink)
    metadata = pq.read_metadata(io.BytesIO(sink.getvalue()))
    entry = Entry(f"f{number}.parquet", len(sink.getvalue()), 0.0)
    return Footer(entry, schema, metadata, None)


def _value(kind: pa.DataType) -> object:
    if pa.types.is_struct(kind):
        return {field.name: _value(field.type) for field in kind}
    if pa.types.is_list(kind):
        return [_value(kind.value_type)]
    if pa.types.is_map(kind):
        return [("k", _value(kind.item_type))]
    if pa.types.is_string(kind):
        return "x"
    if pa.types.is_binary(kind):
        return b"x"
    return True if pa.types.is_boolean(kind) else 1


def test_too_deep_or_too_many_columns_are_refused_in_advance() -> None:
    kind: pa.DataType = pa.int64()
    for _ in range(FILE_LEVELS - 1):
        kind = pa.list_(kind)
    assert fit(None, columns(id=pa.int64(), deep=kind)) == Fit()
    (found,) = fit(None, columns(id=pa.int64(), deep=pa.list_(kind))).refused
    assert "column 'deep' is nested more than 24 levels deep; declare" in found
    wide = pa.struct([(f"k{n}", pa.int64()) for n in range(FILE_COLUMNS)])
    assert fit(None, columns(wide=wide)) == Fit()
    (found,) = fit(columns(id=pa.int64()), columns(id=pa.int64(), wide=wide)).refused
    assert "has 10,001 columns; at most 10,000 are taken" in found
