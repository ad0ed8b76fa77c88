"""Reports of requests: of each page the newest owner's counts, and lines are read as written."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_py.requests.codec import RequestInvalid
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.report import (
    ReportLine,
    current_names,
    lines_of,
    lines_to_bytes,
    outcomes_name,
    page_name,
)
from tests.support.memory_store import MemoryStorage

ID = "0000000a.1"
BATCH = "0192a000-0000-7000-8000-000000000001"


def test_of_each_page_the_one_of_the_highest_epoch_counts() -> None:
    names = [page_name(0, 7), page_name(0, 12), page_name(1, 9), outcomes_name(BATCH), "notes.txt"]
    assert current_names(reversed(names)) == [page_name(0, 12), page_name(1, 9), f"{BATCH}.ndjson"]


def test_outcomes_come_behind_all_pages() -> None:
    mailbox = Mailbox(MemoryStorage(), "events_main")
    mailbox.put_report(ID, outcomes_name(BATCH), [ReportLine("a", "ingested", rows=3)])
    mailbox.put_report(
        ID, page_name(0, 2), [ReportLine("a", "taken"), ReportLine("b", "left", "x")]
    )
    mailbox.put_report(ID, page_name(0, 1), [ReportLine("a", "refused")])
    assert list(mailbox.report(ID)) == [
        ReportLine("a", "taken"),
        ReportLine("b", "left", "x"),
        ReportLine("a", "ingested", rows=3),
    ]


@given(st.lists(st.builds(ReportLine, st.text(), st.text(), st.text(), st.integers(0, 1 << 40))))
def test_lines_are_read_as_they_were_written(lines: list[ReportLine]) -> None:
    assert list(lines_of(lines_to_bytes(lines), "report")) == lines


@pytest.mark.parametrize("raw", [b"{", b'{"path": 1, "state": "x"}', b'{"path": "a"}', b"[]"])
def test_invalid_report_line_raises_an_error(raw: bytes) -> None:
    with pytest.raises(RequestInvalid, match="report"):
        list(lines_of(raw, "report"))
