"""Durations in a configuration: one notation, and what is refused."""

from __future__ import annotations

import pytest
from pydantic import TypeAdapter, ValidationError

from blizzard_core.settings.base import (
    CalendarSpan,
    Seconds,
    format_seconds,
    parse_duration,
    to_micros,
)
from blizzard_core.settings.query_sources import TableSourceSettings
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.settings.units import FileUnits

SECS = TypeAdapter(Seconds)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("30s", 30_000_000),
        ("5m", 300_000_000),
        ("1h30m", 5_400_000_000),
        ("7d", 604_800_000_000),
        ("2w", 1_209_600_000_000),
        ("250ms", 250_000),
        ("10 minutes", 600_000_000),
        ("1 hour 30 minutes", 5_400_000_000),
        ("1.5 seconds", 1_500_000),
        ("2 Weeks", 1_209_600_000_000),
        ("250milliseconds", 250_000),
        ("hours=1, minutes=30", 5_400_000_000),
        ("P30D", 2_592_000_000_000),
        ("P1DT12H", 129_600_000_000),
        ("PT5M", 300_000_000),
        ("PT0.5S", 500_000),
        ("0 seconds", 0),
        ("0", 0),
        (" 1m ", 60_000_000),
    ],
)
def test_durations(text: str, expected: int) -> None:
    assert to_micros(text) == expected


@pytest.mark.parametrize(
    ("text", "months"), [("months=1", 1), ("1 year 2 months", 14), ("P1Y2M", 14), ("1mo", 1)]
)
def test_months_are_no_length_of_time(text: str, months: int) -> None:
    assert parse_duration(text) == CalendarSpan(months, 0)
    with pytest.raises(ValueError, match="differ in length"):
        to_micros(text)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("", "must be a duration"),
        ("P", "must be a duration"),
        ("PT", "must be a duration"),
        ("minutes", "must be a duration"),
        ("1 minute and more", "must be a duration"),
        ("nan", "must be a duration"),
        ("10", "with its unit: 10s, 10m, 10h or 10d"),
        ("-1s", "must be at least 0"),
        ("1M", "unit"),
        ("3 fortnights", "unit"),
        ("0.1 microseconds", "finer"),
        ("0.5 months", "part of a month"),
        ("101 years", "more than 100 years"),
        ("36526d", "more than 100 years"),
    ],
)
def test_invalid_durations_raise_an_error_with_the_reason(text: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        parse_duration(text)


def test_a_number_says_no_unit() -> None:
    assert SECS.validate_python(0) == SECS.validate_python("0") == 0
    for value in (60, 1.5):
        with pytest.raises(ValidationError, match=f"with its unit: {value}s"):
            SECS.validate_python(value)


@pytest.mark.parametrize("text", ["0", "0.00001s", "1.5s", "90s", "5m", "90m", "1d", "36h"])
def test_seconds_are_shown_as_they_are_written(text: str) -> None:
    assert format_seconds(SECS.validate_python(text)) == text
    assert SECS.dump_python(SECS.validate_python(text), mode="json") == text


def test_a_duration_stays_within_its_bounds() -> None:
    with pytest.raises(ValidationError, match="at most 28d"):
        FileUnits(cooldown="29d")  # type: ignore[arg-type]  # as in a file
    with pytest.raises(ValidationError, match="at least 0"):
        SourceSettings.model_validate({"source_uri": "/raw", "advanced": {"min_age": "-1s"}})


def test_a_source_that_reads_again_has_an_interval_of_its_own() -> None:
    block = {"kind": "table", "connection": "shop", "table": "orders", "snapshot": True}
    assert TableSourceSettings.model_validate(block).poll_interval == 3600


@pytest.mark.parametrize("key", ["poll_interval_secs", "order_guard", "min_age"])
def test_a_key_has_one_name_and_one_place(key: str) -> None:
    with pytest.raises(ValidationError, match="Extra inputs"):
        SourceSettings.model_validate({"source_uri": "/raw", key: 1})
