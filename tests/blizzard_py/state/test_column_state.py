"""Column state of a query source in the checkpoint: round trip and refused values."""

from __future__ import annotations

import json
from typing import Any

import pytest

from blizzard_core.errors import StateError
from blizzard_core.watermark.progress import Progress
from blizzard_py.reading import ReadMarks, ReadTask
from blizzard_py.state.batch import Batch, BatchResults
from blizzard_py.state.checkpoint_document import state_from_json, state_to_json
from blizzard_py.state.column_state import ColumnState, SeenSegment, StoredWindow
from blizzard_py.state.source_state import KindState, PendingWork, Position, SourceState

AT = {"updated_at": {"__datetime__": "2026-05-04T11:59:58.120000+00:00"}}
FULL = ColumnState(
    watermark=AT,
    names=("updated_at",),
    bound="settled",
    seq=17,
    boundaries=("2026-05-01T11:59:58.120000Z",),
    seen=(SeenSegment("00000003~x", 812, AT),),
    seen_from={},
    at_known=True,
    origin=AT,
    window=StoredWindow("settled", AT, AT, AT, AT, True, False, 1.5),
    tasks=(ReadTask("0", "SELECT 1", {"statement": "SELECT 1", "ids": [1, None]}, 7),),
    done=("0",),
)


def document(columns: ColumnState | None) -> dict[str, Any]:
    return json.loads(json.dumps(state_to_json(SourceState(kind=KindState(columns=columns)), 1.0)))


@pytest.mark.parametrize("columns", [None, ColumnState(), FULL])
def test_it_comes_back_as_it_was(columns: ColumnState | None) -> None:
    assert state_from_json(document(columns), "here").kind.columns == columns


def test_marks_of_a_batch_come_back_as_they_were() -> None:
    results = BatchResults(committed_ts=1.0, marks=(ReadMarks("000000000000#0", "staged", 3),))
    marked = Batch("b", 1, "publishing", 1.0, (), 1.0, results=results)
    state = SourceState(position=Position(Progress()), work=PendingWork(in_flight=(marked,)))
    stored = json.loads(json.dumps(state_to_json(state, 1.0)))
    assert state_from_json(stored, "here").work.in_flight == (marked,)


@pytest.mark.promise("G-139")
@pytest.mark.parametrize(
    ("place", "value", "told"),
    [
        ("seq", -1, "seq"),
        ("watermark", [], "watermark"),
        ("bound", "soon", "bound"),
        ("later", 1, "has later, which this release does not know"),
        ("seen", [{"segment": "../x", "count": 1}], r"seen\[0\]\.segment"),
        ("window", {}, "window"),
    ],
)
def test_invalid_column_state_error_names_the_field(place: str, value: Any, told: str) -> None:
    odd = document(FULL)
    odd["columns"][place] = value
    with pytest.raises(StateError, match=told):
        state_from_json(odd, "here")
