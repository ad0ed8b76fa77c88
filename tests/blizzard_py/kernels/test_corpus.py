"""Every input of the corpus ends as `CORPUS.md` says, with json's values."""

from __future__ import annotations

import datetime as dt
import json
import math
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from tests.support.corpus import (
    CASES,
    DOCUMENT,
    END,
    FIELDS,
    LINES,
    START,
    Case,
    Outcome,
    ingest,
    name_of,
    table,
)
from tests.support.ingest_job_harness import IngestJobHarness, lines

pytestmark = pytest.mark.usefixtures("both_paths")

NUMBERED = list(enumerate(CASES))


@pytest.fixture(scope="module")
def outcome(both_paths: str, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return ingest(tmp_path_factory.mktemp(both_paths))


@pytest.fixture(scope="module")
def of_files(both_paths: str, tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return ingest(tmp_path_factory.mktemp(both_paths), "quarantine_file")


def titles(numbered: tuple[int, Case]) -> str:
    return numbered[1].title


@pytest.mark.parametrize("numbered", NUMBERED, ids=titles)
def test_every_input_has_its_documented_fate(outcome: Outcome, numbered: tuple[int, Case]) -> None:
    number, case = numbered
    name = name_of(number)
    file = outcome.files[name]
    assert file.outcome == ("quarantined" if case.fate == "file" else "ingested")
    assert (file.rows, file.bad_rows) == (case.expected_rows, case.expected_bad), file.error
    assert len(outcome.rows.get(name, [])) == case.expected_rows
    assert len(outcome.letters.get(name, [])) == case.expected_bad
    if case.fate == "record" and not case.suffix:
        [letter] = outcome.letters[name]
        assert (letter["line"], letter["offset"], letter["length"]) == (2, 10, len(case.data))


@pytest.mark.parametrize("numbered", NUMBERED, ids=titles)
def test_with_quarantine_file_a_bad_record_takes_its_file_along(
    of_files: Outcome, numbered: tuple[int, Case]
) -> None:
    number, case = numbered
    file = of_files.files[name_of(number)]
    assert file.outcome == ("ingested" if case.fate == "ingested" else "quarantined")
    assert file.rows == (case.expected_rows if case.fate == "ingested" else 0)
    assert file.bad_rows == 0
    if case.fate == "record":
        assert file.stage == "parse"
        assert file.error.startswith("line ")


def expected(value: Any, kind: str) -> Any:
    """Return Python's value of a JSON value in a column of that type."""
    if value is None:
        return None
    if kind in {"float32", "float64"}:
        return float(value)
    if kind == "timestamp":
        when = dt.datetime.fromisoformat(value)
        return when if when.tzinfo else when.replace(tzinfo=dt.UTC)
    return dt.date.fromisoformat(value) if kind == "date" else value


@pytest.mark.parametrize(
    "numbered", [n for n in NUMBERED if n[1].fate == "ingested" and n[1] in LINES], ids=titles
)
def test_values_are_those_of_pythons_json(outcome: Outcome, numbered: tuple[int, Case]) -> None:
    number, case = numbered
    row = next(r for r in outcome.rows[name_of(number)] if r["_source_line"] == 2)
    document = json.loads(case.data)
    for field in FIELDS:
        value = expected(document.get(field.name), field.type)
        if isinstance(value, float) and math.isnan(value):
            assert math.isnan(row[field.name])
        else:
            assert row[field.name] == value, field.name
            assert type(row[field.name]) is type(value)


def test_the_document_has_the_table_that_the_kernels_make(outcome: Outcome) -> None:
    text = DOCUMENT.read_text()
    _, _, rest = text.partition(START)
    assert rest.partition(END)[0] == table(outcome), "run: python -m tests.support.corpus"


def test_the_corpus_is_as_large_as_it_says() -> None:
    assert len(CASES) >= 60
    assert not [title for title, n in Counter(case.title for case in CASES).items() if n > 1]
    assert {case.fate for case in CASES} == {"ingested", "record", "file"}


def test_a_rotten_file_is_one_letter_and_no_record(tmp_path: Path) -> None:
    world = IngestJobHarness(tmp_path, max_bad_fraction=0.1)
    world.put("at.ndjson", lines(*range(9)) + b"oops\n")
    world.put("over.ndjson", lines(*range(8)) + b"oops\n")
    report = world.run_task()
    at, over = report.files
    assert (at.outcome, at.rows, at.bad_rows) == ("ingested", 9, 1)
    assert (over.outcome, over.rows, over.bad_rows) == ("quarantined", 0, 0)
    assert over.error.startswith("1 of 9 lines are bad, which is more than max_bad_fraction = 0.1")
    assert over.error.endswith("first line 9: not a JSON object: the line does not start with '{'")
    assert [letter["path"] for letter in world.letters(report)] == [f"{world.source}/at.ndjson"]
