"""SQL text that is made of foreign parts is what it is meant to be, or refused."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from typing import Any

import pytest

from blizzard_core.errors import ConfigError, SourceError
from blizzard_py.connections.protocol import ReadSelection
from blizzard_py.connections.sql.address import address
from blizzard_py.connections.sql.connection import cuts
from blizzard_py.connections.sql.statements import (
    TRUE,
    between,
    check_filter,
    identifier,
    relation,
    within,
)
from blizzard_py.reading import Access, Window

START = datetime(2024, 1, 1, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("a = 1) OR (b = 2", ""),
        ("a = ')' ) OR (b = 2", ""),
        (") --", ""),
        ("a = 'it\\'s') OR (b = 2", "mysql_hex"),
    ],
)
def test_a_filter_that_breaks_out_is_refused(text: str, dialect: str) -> None:
    with pytest.raises(SourceError, match="closes a parenthesis"):
        check_filter(text, dialect)


@pytest.mark.parametrize(
    ("text", "dialect"),
    [
        ("", ""),
        ("(a = 1) OR (b = 2)", ""),
        ("a = ':-)' OR \"b)\" = 2 -- :-)", ""),
        ("a = 'it''s :-)' /* ) */", ""),
        ("a = 'it\\'s :-)' # )", "mysql_hex"),
        ("`a)` = 1", "mysql"),
    ],
)
def test_other_filters_are_left_alone(text: str, dialect: str) -> None:
    check_filter(text, dialect)


@pytest.mark.parametrize("name", ["orders", "public.orders", 'shop."My Table"', "`a b`", "[a b].c"])
def test_relation_uses_the_table_name_unchanged(name: str) -> None:
    assert relation(ReadSelection(table=name)) == f"{name} t1"


@pytest.mark.parametrize("name", ["", "a b", "a;b", "a--", "(SELECT 1)", 'a".b', "a.b.c.d"])
def test_relation_rejects_invalid_table_names(name: str) -> None:
    with pytest.raises(SourceError, match="not a table's name"):
        relation(ReadSelection(table=name))


def test_names_of_columns_are_quoted_by_dialect() -> None:
    assert identifier('a"b', "postgresql") == '"a""b"'
    assert identifier("a`b", "mysql") == "`a``b`"
    assert identifier("a`b", "sqlite") == "`a``b`"
    assert identifier("a]b", "sqlserver") == "[a]]b]"
    with pytest.raises(SourceError):
        identifier("a\0b", "")


def test_a_window_without_columns_has_all_rows_of_the_filter() -> None:
    assert within(Window(), ReadSelection(table="t"), "") == TRUE
    assert within(Window(), ReadSelection(table="t", filter="a = 1"), "") == "(a = 1)"


def test_a_watermark_column_has_a_plain_name() -> None:
    with pytest.raises(SourceError, match="cannot be a watermark column"):
        within(Window(up_to={"a b": 1}), ReadSelection(table="t", columns=("a b",)), "")


@pytest.mark.parametrize(
    ("low", "high", "parts", "expected"),
    [
        (0, 100, 4, [25, 50, 75]),
        (0, 2, 5, [1]),
        (0, 0, 4, []),
        (None, 5, 4, []),
        (-(2**63), 2**63 - 1, 2, [-1]),
        (Decimal(0), Decimal(1), 2, [Decimal("0.5")]),
        (0.0, 1.0, 2, [Decimal("0.5")]),
        (float("nan"), 1.0, 2, []),
        (START, START + timedelta(hours=2), 2, [START + timedelta(hours=1)]),
        (START.date(), START.date() + timedelta(days=10), 2, [START.date() + timedelta(days=5)]),
    ],
)
def test_ranges_are_cut_in_equal_parts(low: Any, high: Any, parts: int, expected: Any) -> None:
    assert list(cuts(low, high, parts)) == expected


def test_text_cannot_be_cut() -> None:
    with pytest.raises(SourceError, match="numbers or times"):
        cuts("a", "b", 2)


def test_nulls_belong_to_the_first_range_alone() -> None:
    assert between("a", None, 5, "") == '("a" < 5 OR "a" IS NULL)'
    assert between("a", 5, 9, "") == '"a" >= 5 AND "a" < 9'
    assert between("a", 9, None, "") == '"a" >= 9'
    assert between("a", None, None, "") == TRUE


def test_address_parses_a_uri() -> None:
    found = address(
        Access("postgresql", "postgresql://u%40x:p%3Aw@one:1,[::1]:2,two/db%20x?sslmode=require")
    )
    assert found.hosts == (("one", "1"), ("::1", "2"), ("two", ""))
    assert (found.user, found.password, found.database) == ("u@x", "p:w", "db x")
    assert found.settings == {"sslmode": "require"}
    assert "p:w" not in repr(found)
    assert found.label.name == "postgresql://one:1,::1:2,two/db x"


@pytest.mark.parametrize("uri", ["", "shop", "postgresql:/x", "postgresql://h:12x/db"])
def test_uris_that_are_none_are_refused(uri: str) -> None:
    with pytest.raises(ConfigError):
        address(Access("postgresql", uri))
