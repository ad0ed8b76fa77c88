"""Several sources in one checkpoint: each sees its own, and what becomes of it is put back."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from blizzard_core.errors import StateError
from blizzard_core.storage.protocol import Entry
from blizzard_py.job import FinishedFile, StagedBadRecords
from blizzard_py.state.batch import Batch, PlannedOutput
from blizzard_py.state.checkpoint_document import SHARED, state_from_json, state_to_json
from blizzard_py.state.composite_state import (
    of_source,
    part_of,
    qualify_batch,
    qualify_path,
    split_path,
    with_source,
)
from blizzard_py.state.journal_tally import JournalTally
from blizzard_py.state.source_state import (
    IssuedIds,
    KindState,
    PendingWork,
    Position,
    ProcessedNames,
    QueuedFile,
    Retry,
    SourceState,
    Summary,
    Totals,
)
from blizzard_py.state.stream_state import (
    OperatorState,
    QueryBatch,
    SourceStream,
    StreamState,
)

OUTPUT = PlannedOutput("staged", "final.parquet", 3, 99, "id")
LINE = QueryBatch(batch=1, files=2, rows=3, used_watermark_ms=0, watermark_ms=5)


def batch(name: str, *paths: str) -> Batch:
    entries = tuple(Entry(path, 10, 1.0) for path in paths)
    return Batch(name, 1, "running", 5.0, entries, 4.0)


def state() -> SourceState:
    members = {
        "app": SourceState(summary=Summary(totals=Totals(files=1))),
        "web": SourceState(work=PendingWork(queue=(QueuedFile("w/late", 1, 0.0),))),
    }
    return SourceState(
        position=Position(reset_ts=3.0),
        work=PendingWork(
            in_flight=(batch("b1", "app:1", "web:d/2"), batch("b2", "web:3")),
            retries={"app:7": Retry(2, 9.0), "web:7": Retry(1)},
        ),
        ids=IssuedIds(last_batch="b2"),
        kind=KindState(
            stream=StreamState(query={}, state_rows=4, late_rows=5, unaccounted_rows=1),
        ),
        members=members,
    )


def test_a_path_says_whose_it_is() -> None:
    assert split_path(qualify_path("app", "d=1/a:b.ndjson")) == ("app", "d=1/a:b.ndjson")


def test_each_source_sees_its_own_files_alone() -> None:
    app, web = of_source(state(), "app"), of_source(state(), "web")
    assert [[e.path for e in b.files] for b in app.work.in_flight] == [["1"]]
    assert [[e.path for e in b.files] for b in web.work.in_flight] == [["d/2"], ["3"]]
    assert (app.work.retries, web.work.retries) == ({"7": Retry(2, 9.0)}, {"7": Retry(1)})
    assert {app.ids.last_batch, web.ids.last_batch} == {"b2"}
    assert {app.position.reset_ts, web.position.reset_ts} == {3.0}


@pytest.mark.parametrize("name", ["app", "web"])
def test_putting_back_what_was_seen_changes_nothing(name: str) -> None:
    before = state()
    after = with_source(before, name, of_source(before, name))
    assert state_to_json(after, 1.0) == state_to_json(before, 1.0)


def test_change_of_one_source_leaves_the_others_unchanged() -> None:
    own = of_source(state(), "web")
    mine = batch("b3", "x")
    changed = own.with_work(
        retries={"8": Retry(1)}, in_flight=(*own.work.in_flight, mine), queue=()
    ).with_ids(last_batch="b3")
    after = with_source(state(), "web", changed)
    assert of_source(after, "web") == changed
    assert of_source(after, "app").with_ids(last_batch="b2") == of_source(state(), "app")
    assert after.work.in_flight[-1].files[0].path == "web:x"
    # A batch of one source alone that has ended leaves; others that share theirs do not.
    ended = with_source(after, "web", changed.with_work(in_flight=changed.work.in_flight[:1]))
    assert [one.batch for one in ended.work.in_flight] == ["b1"]


def test_committed_batch_is_split_by_source_with_outputs_once() -> None:
    done = replace(batch("b1", "app:1", "web:2"), phase="publishing").with_results(
        outputs=(OUTPUT,),
        finished=(FinishedFile("app:1", "ingested", 3), FinishedFile("web:2", "quarantined")),
        letters=(
            StagedBadRecords("s1", (("app:1", 2),)),
            StagedBadRecords("s2", (("web:2", 1),)),
        ),
        settled=LINE,
    )
    app, web = part_of(done, "app", is_first=True), part_of(done, "web", is_first=False)
    assert app is not None
    assert (app.results.outputs, web.results.outputs) == ((OUTPUT,), ())
    assert [f.path for f in (*app.results.finished, *web.results.finished)] == ["1", "2"]
    assert app.results.letters == (StagedBadRecords("s1", (("1", 2),)),)
    assert web.results.letters == (StagedBadRecords("s2", (("2", 1),)),)
    assert app.results.settled == web.results.settled == LINE
    assert qualify_batch(web, "web").files == done.files[1:]
    # The first one has it also without files of its own, and the others then have none of it.
    theirs = replace(done, files=done.files[1:]).with_results(
        finished=done.results.finished[1:], letters=()
    )
    assert part_of(theirs, "app", is_first=True) is not None
    assert part_of(theirs, "bus", is_first=False) is None
    assert part_of(batch("b9", "web:1"), "app", is_first=True) is None


def test_query_totals_count_with_the_first_source() -> None:
    stream = StreamState(
        query={},
        max_event_time_ms=9,
        late_rows=5,
        unaccounted_rows=1,
        state_rows=4,
        operators=(OperatorState("agg", 4),),
        history=(LINE,),
        sources={
            "app": SourceStream(max_event_time_ms=9, late_rows=2),
            "web": SourceStream(max_event_time_ms=7, late_rows=3, ahead_rows=1),
        },
    )
    whole = state().with_kind(stream=stream)
    app, web = of_source(whole, "app").kind.stream, of_source(whole, "web").kind.stream
    assert app is not None
    assert web is not None
    assert (app.max_event_time_ms, app.late_rows, app.state_rows, app.unaccounted_rows) == (
        *(9, 2, 4),
        1,
    )
    assert (web.max_event_time_ms, web.late_rows, web.ahead_rows) == (7, 3, 1)
    assert (web.state_rows, web.unaccounted_rows, web.operators) == (0, 0, ())
    assert (app.line, web.line) == (LINE, None)


def test_a_saved_state_is_read_as_it_was() -> None:
    before = state().with_kind(stream=None)
    document = json.loads(json.dumps(state_to_json(before, 5.0)))
    again = json.dumps(state_to_json(state_from_json(document, "here"), 5.0), sort_keys=True)
    assert again == json.dumps(document, sort_keys=True)
    found = state_from_json(document, "here")
    for name in before.members:
        assert of_source(found, name).with_summary(last_update_ts=None) == of_source(before, name)


def test_member_state_read_alone_is_refused() -> None:
    with pytest.raises(StateError, match="neither their number nor their names may change"):
        state_from_json({SHARED: "pages~sources", "source": "web"}, "here")
    broken = {**state_to_json(state(), 5.0), "members": {"web": {"schema_version": 1, "x": 2}}}
    with pytest.raises(StateError, match=r"here: members\.web"):
        state_from_json(broken, "here")


def test_a_source_counts_its_journal_from_the_first_batch_of_all() -> None:
    begun = SourceState(names=ProcessedNames(unfolded=JournalTally()))
    assert of_source(begun, "app").names.unfolded == JournalTally()
    later = begun.with_names(unfolded=JournalTally().with_batch("b1"))
    assert of_source(later, "app").names.unfolded is None  # nobody knows what it has
    assert of_source(SourceState(), "app").names.unfolded is None
