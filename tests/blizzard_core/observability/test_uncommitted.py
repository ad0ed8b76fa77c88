"""Rows that wait for their commit, and the sentences about daemons that are down."""

from __future__ import annotations

import json
import uuid
from typing import Any

import pytest

from blizzard_core.cli import PROBLEMS_SHOWN, print_problems
from blizzard_core.errors import NOT_COMMITTING, NOT_INGESTING
from blizzard_core.observability.heartbeat import Life, table_heartbeat
from blizzard_core.observability.stopped import (
    BEHIND_SECS,
    DaemonProblem,
    commit_problem,
    exit_code_of,
    ingest_problem,
    uncommitted_text,
)
from blizzard_core.observability.uncommitted import (
    READ_AT_MOST,
    Committed,
    Uncommitted,
    read_committed,
    waiting_groups,
    waiting_of,
)
from tests.support.heartbeat_samples import heartbeat_of
from tests.support.memory_store import MemoryStorage

NOW = 1_700_000_000.0
NEVER_SEEN = Life()
STATE = "_penguin/events_checkpoint.json"


def batch(sink: MemoryStorage, number: int, rows: int = 10, **given: Any) -> str:
    """Write the journal of a batch with one output, as at ``NOW + number``; its output id."""
    name = str(uuid.UUID(int=(int((NOW + number) * 1000) << 80) | (7 << 76) | (1 << 63) | number))
    output = {"final": f"{number}.parquet", "rows": rows, "output_id": f"id-{number}"}
    document = {"batch": name, "files": [], "outputs": [output], **given}
    path = f"_blizzard/journal/events_main/{name}.json"
    sink.objects[path] = (json.dumps(document).encode(), NOW + number)
    return f"id-{number}"


def mirror(sink: MemoryStorage, settled: float | None, *ids: str) -> None:
    chores = {} if settled is None else {"poll": settled}
    document = {"chores": chores, "output_ids": ids, "log": {"version": 0}}
    sink.objects[STATE] = (json.dumps(document).encode(), NOW)


def waiting(sink: MemoryStorage, *refused: str) -> Uncommitted:
    return waiting_of(sink, "events_main", read_committed(sink, NOW), refused)


def test_everything_waits_where_no_penguin_ever_committed() -> None:
    sink = MemoryStorage()
    assert waiting(sink) == Uncommitted()
    batch(sink, 1, rows=500)
    batch(sink, 2, rows=50)
    assert waiting(sink) == Uncommitted(2, 550, 2, NOW + 1)


def test_what_was_published_since_the_last_settled_poll_waits() -> None:
    sink = MemoryStorage()
    batch(sink, 1)
    during = batch(sink, 5)
    batch(sink, 6)
    batch(sink, 7)
    mirror(sink, NOW + 5, during)
    assert waiting(sink, "7.parquet") == Uncommitted(1, 10, 1, NOW + 6)
    assert read_committed(sink, NOW).to_json() == {
        "state": "unknown", "at": None, "host": None, "pid": None, "saved": NOW, "version": 0,
    }  # fmt: skip


def test_a_state_without_the_time_of_its_poll_leaves_it_unknown() -> None:
    sink = MemoryStorage()
    batch(sink, 1)
    mirror(sink, None)
    assert waiting(sink).files is None
    sink.objects[STATE] = (b"{", NOW)
    assert waiting(sink).files is None


def test_a_lost_state_of_a_table_with_commits_leaves_it_unknown() -> None:
    sink = MemoryStorage()
    batch(sink, 1)
    commit = {"commitInfo": {"operation": "WRITE"}}
    sink.put_atomic(f"_delta_log/{0:020d}.json", json.dumps(commit).encode())
    assert waiting(sink).rows == 10  # of another writer
    commit["commitInfo"]["penguin"] = {"app_id": "penguin-events"}  # type: ignore[assignment]  # JSON
    sink.put_atomic(f"_delta_log/{0:020d}.json", json.dumps(commit).encode())
    assert waiting(sink).files is None


def test_damaged_batches_are_left_out_and_many_are_read_in_part() -> None:
    sink = MemoryStorage()
    sink.page_keys = 1000
    for number in range(READ_AT_MOST + 5):
        batch(sink, number)
    found = waiting(sink)
    assert (found.batches, found.complete) == (READ_AT_MOST, False)
    assert uncommitted_text(found, NOW + 60).startswith("at least 256 files, 2,560 rows published")
    sink = MemoryStorage()
    batch(sink, 1)
    for path in list(sink.objects):
        sink.objects[path] = (b"{", NOW)
    assert waiting(sink) == Uncommitted(complete=False)


def test_a_committer_that_died_within_a_long_poll_is_noticed() -> None:
    sink = MemoryStorage()
    sink.page_keys = 1000
    ids = [batch(sink, number) for number in range(4 * READ_AT_MOST)]
    mirror(sink, NOW, *ids[:-5])
    found = waiting(sink)
    assert found.batches > 0
    assert not found.complete
    now = NOW + 4 * READ_AT_MOST + BEHIND_SECS + 1
    assert commit_problem(found, read_committed(sink, now), now) is not None


def test_a_poll_of_a_clock_that_was_set_back_is_unknown() -> None:
    sink = MemoryStorage()
    batch(sink, 1)
    mirror(sink, NOW + 60)
    assert waiting(sink).files == 0  # clocks differ a little
    mirror(sink, NOW + 86_400)
    assert waiting(sink).files is None


def test_a_damaged_group_waits_and_hides_no_other_state() -> None:
    sink = MemoryStorage()
    sink.objects[f"_blizzard/groups/events_main/{1:020d}.json"] = (b"{", NOW)
    found = waiting_groups(sink, "events_main", read_committed(sink, NOW))
    assert found == Uncommitted(0, 0, 1, NOW, complete=False)
    text = "at least 1 replacement group published and not committed for 60 s"
    assert uncommitted_text(found, NOW + 60) == text


def committed(life: Life = NEVER_SEEN, saved: float | None = None) -> Committed:
    return Committed(life, saved, None, 0.0, (), {})


@pytest.mark.parametrize(
    ("found", "waits", "said"),
    [
        (committed(), 5, "no Penguin has ever saved anything here"),
        (committed(Life("stopped", NOW - 1440)), 5, "Penguin does not run; its last heartbeat was"),
        (committed(Life("silent", NOW - 1440, "far", 7)), 5, "was 24 min ago (host far, pid 7)"),
        (committed(saved=NOW - 1440), BEHIND_SECS + 1, "Penguin last saved 24 min ago"),
        (committed(Life("running", NOW), NOW - 7300), BEHIND_SECS + 1, "last saved 2 h ago"),
        (committed(Life("running", NOW), NOW), 5, None),
        (committed(saved=NOW), 5, None),
    ],
    ids=["never", "stopped", "silent", "old", "blocked", "at work", "by a timer"],
)
def test_rows_that_wait_name_the_reason(found: Committed, waits: float, said: str | None) -> None:
    problem = commit_problem(Uncommitted(2, 550, 2, NOW - waits), found, NOW)
    assert (problem is None) == (said is None)
    if problem is not None and said is not None:
        assert problem.text.startswith("2 files, 550 rows published and not committed for ")
        assert said in problem.text


def test_rows_may_wait_for_two_polls_of_a_rare_committer() -> None:
    waiting, hourly = Uncommitted(1, 5, 1, NOW - 7000), committed(Life("running", NOW), NOW - 7000)
    assert commit_problem(waiting, hourly, NOW) is not None
    assert commit_problem(waiting, hourly, NOW, 3600) is None
    assert commit_problem(waiting, hourly, NOW + 300, 3600) is not None


def test_a_daemon_is_down_even_if_nothing_waits() -> None:
    down = Life("stopped", NOW - 60)
    idle = commit_problem(Uncommitted(), committed(down), NOW)
    ingest = ingest_problem(down, NOW)
    assert idle is not None
    assert ingest is not None
    assert "nothing waits for a commit" in idle.text
    assert exit_code_of([ingest.to_json()]) == NOT_INGESTING
    assert exit_code_of([ingest.to_json(), idle.to_json()]) == NOT_COMMITTING
    assert exit_code_of([]) == 0
    for life in (Life(), Life("running", NOW)):
        assert commit_problem(Uncommitted(), committed(life), NOW) is None
        assert ingest_problem(life, NOW) is None


@pytest.mark.parametrize(
    ("state", "times", "said"),
    [
        ("running", 2, None),
        ("running", 12, "Blizzard failed 12 times in a row, 60 s ago; `last_error` says why"),
        ("unknown", 1, "Blizzard failed in its last poll, 60 s ago; `last_error` says why"),
        ("stopped", 9, "Blizzard does not run; its last heartbeat was 60 s ago"),
    ],
)
def test_a_daemon_that_only_fails_is_a_problem(state: Any, times: int, said: str | None) -> None:
    error = {"at": NOW - 60, "kind": "StorageError", "error": "denied", "times": times}
    problem = ingest_problem(Life(state, NOW - 60), NOW, error)
    assert (None if problem is None else problem.text) == said


def test_the_committer_that_runs_counts() -> None:
    sink = MemoryStorage()
    sink.put_atomic(table_heartbeat("a"), heartbeat_of(at=NOW - 9999, ended=True))
    sink.put_atomic(table_heartbeat("b"), heartbeat_of(at=NOW))
    assert read_committed(sink, NOW).life == Life("running", NOW, "far", 7)
    assert read_committed(sink, NOW, table_heartbeat("new")).life.state == "running"
    # Of several with partitions of their own each answers for itself.
    assert read_committed(sink, NOW, table_heartbeat("a")).life.state == "stopped"


def test_rows_that_wait_come_first_of_many_problems(capsys: pytest.CaptureFixture[str]) -> None:
    idle, waits = DaemonProblem("penguin", "idle"), DaemonProblem("penguin", "rows", rows_wait=True)
    down = DaemonProblem("blizzard", "down")
    found = {f"idle{number}": [idle.to_json()] for number in range(PROBLEMS_SHOWN)}
    print_problems({**found, "a": [idle.to_json(), down.to_json()], "b": [waits.to_json()]})
    first, second, *_, last = capsys.readouterr().err.splitlines()
    assert (first, second) == ("error: b: rows", "error: a: down")
    assert last == "error: 3 more, in `status --json` under `problems`"
