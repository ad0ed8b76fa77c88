"""The names of files that polls take, by format, codec and pattern."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from blizzard_core.limits import IGNORED_NAMES
from blizzard_core.settings.sources import SourceSettings
from blizzard_core.storage.protocol import Entry
from blizzard_py.sources.files import file_names
from blizzard_py.sources.files.file_names import FileFilter, accepts, can_count, why_ignored
from blizzard_py.sources.ignored_names import IgnoredNames
from tests.support.flat_settings import nested


def source(**given: Any) -> SourceSettings:
    return SourceSettings.model_validate(nested(SourceSettings, {"source_uri": "x", **given}))


@pytest.mark.parametrize(
    ("given", "taken", "ignored"),
    [
        (
            {"format": "csv"},
            ["d=1/a.csv", "a.tsv", "a.txt", "a.csv.gz", "A.CSV", "a.Csv.GZ"],
            ["a.json", "a"],
        ),
        ({"format": {"type": "json"}}, ["a.json", "a.json.zst"], ["a.ndjson", "a.csv"]),
        ({"format": "csv", "compression": "gzip"}, ["a.csv.gz"], ["a.csv", "a.csv.zst"]),
        ({"include": ["**/*.dat"]}, ["d=1/a.dat"], ["a.ndjson", "a.dat/b.json"]),
        ({"include": ["**/e_??.CSV"]}, ["e_01.CSV"], ["e_1.CSV", "e_01.csv"]),
    ],
)
def test_names_follow_the_format(given: Any, taken: list[str], ignored: list[str]) -> None:
    settings = source(**given)
    accept, possible = accepts(settings), can_count(settings)
    for path in taken:
        assert accept(path)
        assert possible(path)
        assert why_ignored(path, settings) is None
    for path in ignored:
        assert not accept(path)
        assert why_ignored(path, settings)


def test_ignored_names_are_counted_with_an_example() -> None:
    accept = FileFilter(source())
    paths = ["b.log", "a", "a", "1.ndjson", "d/", "2024_$folder$", "c.NDJSON"]
    assert [path for path in paths if accept(Entry(path, 1, 0.0))] == ["1.ndjson", "c.NDJSON"]
    found = accept.ignored
    assert (found.files, found.first, found.wanted) == (2, "a", False)
    assert found.note.startswith("2 files ignored, such as a: its ending is not one that")
    assert found.note.endswith("; include reads other names")
    assert FileFilter(source()).ignored.to_json() is None
    chosen = FileFilter(source(include=["**/*.dat"]))
    assert (chosen(Entry("a.csv", 1, 0.0)), chosen.ignored.wanted) == (False, True)


def test_ignored_names_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(file_names, "IGNORED_NAMES", 3)
    accept = FileFilter(source())
    assert not any(accept(Entry(f"{number}.log", 1, 0.0)) for number in range(10))
    assert accept.ignored.files == 3


def test_a_full_count_says_at_least() -> None:
    note = IgnoredNames(IGNORED_NAMES, "a.txt", "no NDJSON").note
    assert note.startswith("at least 10,000 files ignored")
    assert IgnoredNames(3, "a.txt", "no NDJSON").note.startswith("3 files ignored")


def test_reasons_name_the_setting() -> None:
    assert "include matches it: **/*.dat" in (
        why_ignored("a.csv", source(include=["**/*.dat"])) or ""
    )
    assert "format: csv" in (why_ignored("a.json", source(format="csv")) or "")


def test_files_of_another_format_may_have_been_ingested_once() -> None:
    assert can_count(source(format="csv"))("d=1/a.ndjson.gz")
    assert not can_count(source(format="csv"))("d=1")
    assert not can_count(source(format="csv"))("d=1/_a.csv")


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"type": "csv", "sep": ";"}, "sep is delimiter here"),
        ({"type": "csv", "nullValue": "x"}, "nullValue is null_value here"),
        ({"type": "csv", "multiLine": True}, "quotes may always hold line ends"),
        ({"type": "csv", "mode": "PERMISSIVE"}, "error_handling.on_bad_record"),
        ({"type": "csv", "delimiter": "||"}, "delimiters of several are not read"),
        ({"type": "csv", "delimiter": '"'}, "must differ"),
        ({"type": "csv", "encoding": "idna"}, "is no encoding of text"),
        ({"type": "csv", "encoding": "utf-7"}, "is no encoding of text"),
        ({"type": "csv", "columns": ["a"]}, "columns goes with header: false"),
        ({"type": "csv", "date_format": "dd.MM.yyyy"}, "%d.%m.%Y"),
        ({"type": "csv", "thousands": "."}, "decimal and thousands must differ"),
        ("excel97", "ndjson"),
    ],
)
def test_options_that_cannot_be_are_refused(given: Any, message: str) -> None:
    with pytest.raises(ValidationError) as caught:
        source(format=given)
    assert message in str(caught.value)


def test_files_out_of_time_are_ignored_with_the_reason() -> None:
    settings = source(modified_after="2026-01-01 00:00:00+01:00", modified_before="2026-01-02T00Z")
    first, end = settings.advanced.modified_between
    assert (first, end) == (1_767_222_000.0, 1_767_312_000.0)
    accept = FileFilter(settings)
    times = {"a": first - 0.5, "b": first, "c": end - 0.5, "d": end}
    assert [n for n, at in times.items() if accept(Entry(f"{n}.ndjson", 1, at))] == ["b", "c"]
    assert accept.ignored.files == 2
    assert accept.ignored.wanted
    assert accept.ignored.reason == (
        "it was modified at 2025-12-31T22:59:59Z, before modified_after (2025-12-31T23:00:00Z)"
    )
    assert "not before modified_before" in (why_ignored("d.ndjson", settings, end) or "")


@pytest.mark.parametrize(
    ("given", "problem"),
    [
        ({"modified_after": "2026-01-01"}, "must be a time with its zone"),
        ({"modified_after": "2026-01-01T00:00:00"}, "must be a time with its zone"),
        ({"modified_after": "7d"}, "advanced.min_age"),
        (
            {"modified_after": "2026-01-02T00:00Z", "modified_before": "2026-01-02T00:00Z"},
            "modified_after must be earlier",
        ),
    ],
)
def test_bad_times_are_refused(given: Any, problem: str) -> None:
    with pytest.raises(ValueError, match=problem):
        source(**given)
