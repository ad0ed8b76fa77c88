"""Formats of dates and times: which are accepted, and what is wrong with the others."""

from __future__ import annotations

import re

import pytest

from blizzard_core.settings.time_formats import check_template, check_time_format, spelled_out

DATES = ["%Y-%m-%d", "%F", "%d.%m.%y", "%-d/%-m/%Y", "%d-%b-%Y", "%B %-d, %Y", "%Y%m%d", "%%%F"]
TIMES = ["%F %T", "%FT%T.%f%z", "%d/%b/%Y:%H:%M:%S %z", "%m/%d/%Y %-I:%M%p", "%F %R", "%F"]


@pytest.mark.parametrize("form", DATES)
def test_format_of_dates_is_accepted(form: str) -> None:
    check_time_format(form, has_time=False)


@pytest.mark.parametrize("form", TIMES)
def test_format_of_times_is_accepted(form: str) -> None:
    check_time_format(form, has_time=True)


WRONG = [
    ("", "has no strftime code"),
    ("%Y-%m", "has no day"),
    ("%H:%M", "has no year"),
    ("%Y-%m-%d %j", "has %j, which is unknown; use %Y"),
    ("%Y-%m-%d %", "has %, which is unknown"),
    ("%F %-M", "has %-M, which is unknown"),
    ("%F %Y", "has the year twice"),
    ("%d %b %m %Y", "has the month twice"),
    ("%F %M", "has the minute without the hour"),
    ("%F %H:%M.%f", "has the fraction without the second"),
    ("%F %z", "has the zone without the hour"),
    ("%F %I:%M", "has only one of %I and %p"),
    ("%F %R %p", "has only one of %I and %p"),
    ("%-d%-m%Y", "has codes of several widths"),
    ("%-d0.%m.%Y", "has codes of several widths"),
]


@pytest.mark.parametrize(("form", "why"), WRONG)
def test_format_with_a_fault_is_refused(form: str, why: str) -> None:
    with pytest.raises(ValueError, match=why):
        check_time_format(form, has_time=True)


def test_date_does_not_have_a_time() -> None:
    with pytest.raises(ValueError, match=r"has the hour, which a date would lose"):
        check_time_format("%F %T", has_time=False)


JAVA = [
    ("dd.MM.yyyy", "%d.%m.%Y"),
    ("yyyy-MM-dd'T'HH:mm:ss.SSSXXX", "%Y-%m-%dT%H:%M:%S.%f%z"),
    ("M/d/yy h:mm a", "%-m/%-d/%y %-I:%M %p"),
    ("d MMMM uuuu", "%-d %B %Y"),
    ("hh 'o''clock' a, dd-MMM-yyyy", "%I o'clock %p, %d-%b-%Y"),
]


@pytest.mark.parametrize(("pattern", "form"), JAVA)
def test_java_pattern_is_translated(pattern: str, form: str) -> None:
    with pytest.raises(ValueError, match=re.escape(f"write {form!r}") + "$"):
        check_time_format(pattern, has_time=True)


def test_short_codes_are_spelled_out() -> None:
    assert spelled_out("%F %T %R %%F") == "%Y-%m-%d %H:%M:%S %H:%M %%F"


@pytest.mark.parametrize(
    ("template", "problem"),
    [
        ("date=%Q", "has %Q, which is unknown; use %Y %m %d "),
        ("date=%Y-%m-%d/x=%", "has %, which is unknown"),
        ("date=%D", "has %D, which is unknown"),
        ("date=2024", "has no strftime code, so all rows would be in one directory; write 'date="),
        ("date=yyyy-MM-dd", "write 'date=%Y-%m-%d'"),
        ("yyyy/MM/dd/HH", "write '%Y/%m/%d/%H'"),
        ("year=yyyy/month=%m", "write 'year=%Y/month=%m'"),
    ],
)
def test_template_of_directories_is_checked(template: str, problem: str) -> None:
    with pytest.raises(ValueError, match=re.escape(problem)):
        check_template(template)


@pytest.mark.parametrize("template", ["s=%Y/i=%m/l=%d/d=%F/t=%H", "region=eu/d=%-d", "w=%G-%V"])
def test_sound_template_of_directories_passes(template: str) -> None:
    check_template(template)
