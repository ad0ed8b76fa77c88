"""Heartbeats: who is said to run, by whom they are written, and what they cost."""

from __future__ import annotations

import subprocess
import sys
import threading
from collections.abc import Callable
from typing import Any

import pytest

from blizzard_core.checkpoint.writer_identity import process_key, this_process
from blizzard_core.observability import heartbeat
from blizzard_core.observability.activity import Activity, FinishedBatch, PollSummary
from blizzard_core.observability.health import QUIET_SECS
from blizzard_core.observability.heartbeat import (
    BEAT_SECS,
    SILENT_SECS,
    Beating,
    Life,
    heartbeats,
    most_alive,
    read_life,
    source_heartbeat,
)
from blizzard_core.observability.stopped import ingest_problem
from tests.support.heartbeat_samples import NOW, heartbeat_of
from tests.support.memory_store import MemoryStorage

PATH = source_heartbeat("events_main")


@pytest.fixture(autouse=True)
def frequent_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have no test wait for a second until somebody looks whether a beat is due."""
    monkeypatch.setattr(heartbeat, "_CHECK_SECS", 0.01)


class Polled(Activity):
    """An activity that a test lets poll."""

    def poll(self) -> None:
        self._polled(PollSummary(NOW, 0.1, 0, 1, 0), ())

    def do(self, at: float, files: int, rows: int) -> None:
        self._did(FinishedBatch(at, "b", files, rows, 500, 1.0))


def activity() -> Polled:
    return Polled("events/main", "", lambda: NOW)


def beat(sink: MemoryStorage, **given: object) -> None:
    sink.put_atomic(PATH, heartbeat_of(**given))


def after(sink: MemoryStorage, write: Callable[[], None], count: int = 1) -> threading.Event:
    """Run ``write``, and return what is set once the store was written ``count`` times."""
    written, puts = threading.Event(), []

    def mutated(_op: str, path: str) -> None:
        puts.append(path)
        if len(puts) >= count:
            written.set()

    sink.after_mutation = mutated
    write()
    return written


def test_a_far_daemon_is_silent_after_two_missed_beats() -> None:
    sink = MemoryStorage()
    assert read_life(sink, PATH, NOW) == Life()
    beat(sink)
    assert read_life(sink, PATH, NOW + BEAT_SECS).state == "running"
    assert read_life(sink, PATH, NOW + SILENT_SECS + 1) == Life("silent", NOW, "far", 7)
    beat(sink, ended=True)
    assert read_life(sink, PATH, NOW) == Life("stopped", NOW, "far", 7)


def test_a_beat_from_the_future_shows_no_running_daemon() -> None:
    sink = MemoryStorage()
    beat(sink, at=NOW + BEAT_SECS)
    assert read_life(sink, PATH, NOW).state == "running"  # clocks differ a little
    beat(sink, at=NOW + 86_400)
    problem = ingest_problem(read_life(sink, PATH, NOW), NOW)
    assert "heartbeat was 24 h in the future: a clock was set back (host far" in problem.text


def test_a_killed_daemon_of_this_machine_is_seen_at_once() -> None:
    sink = MemoryStorage()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        beat(sink, pid=other.pid, key=process_key(other.pid))
        assert read_life(sink, PATH, NOW + 9 * SILENT_SECS).state == "running"
        other.kill()
        other.wait()
    assert read_life(sink, PATH, NOW).state == "stopped"


def test_damaged_heartbeats_are_unknown() -> None:
    sink = MemoryStorage()
    for raw in (b"{", b"[]", b"{}", b'{"at": "x"}', b'{"at": 1e99}'):
        sink.put_atomic(PATH, raw)
        assert read_life(sink, PATH, NOW) == Life()
    for wrong in (
        {"host": 1},
        {"pid": []},
        {"pid": "x"},
        {"key": 2},
        {"started": None},
        {"ended": 1},
    ):
        beat(sink, **wrong)
        assert read_life(sink, PATH, NOW) == Life()


def test_a_number_that_no_process_has_is_left_out() -> None:
    sink = MemoryStorage()
    beat(sink, pid=10**18, ended=True)
    problem = ingest_problem(read_life(sink, PATH, NOW), NOW)
    assert problem.text == "Blizzard does not run; its last heartbeat was 0 s ago"


def test_beats_go_on_when_the_clock_was_set_back() -> None:
    sink, source, now = MemoryStorage(), activity(), [NOW]
    with heartbeats([Beating(source, sink, PATH)], once=False, clock=lambda: now[0]):
        assert after(sink, source.poll).wait(30)
        now[0] -= 10 * SILENT_SECS
        assert after(sink, lambda: None).wait(30)
        assert read_life(sink, PATH, now[0]).at == now[0]


def test_the_daemon_that_runs_counts_before_a_later_one() -> None:
    runs, later = Life("running", NOW), Life("stopped", NOW + 1)
    assert most_alive([later, runs]) == runs
    assert most_alive([Life(), later]) == later
    assert most_alive([]) == Life()


def test_beats_follow_the_first_poll_and_are_marked_at_the_end() -> None:
    sink, source = MemoryStorage(), activity()
    with heartbeats([Beating(source, sink, PATH)], once=False, clock=lambda: NOW):
        pass
    assert not sink.objects  # never polled: another daemon may have it
    with heartbeats([Beating(source, sink, PATH)], once=False, clock=lambda: NOW):
        assert after(sink, source.poll).wait(30)
        assert read_life(sink, PATH, NOW) == Life(
            "running", NOW, this_process().host, this_process().pid
        )
    assert read_life(sink, PATH, NOW).state == "stopped"


def test_the_beat_of_a_daemon_that_took_over_stays_as_it_is() -> None:
    sink, source = MemoryStorage(), activity()
    with heartbeats([Beating(source, sink, PATH)], once=False, clock=lambda: NOW):
        assert after(sink, source.poll).wait(30)
        beat(sink)
    assert read_life(sink, PATH, NOW) == Life("running", NOW, "far", 7)


def test_a_second_committer_leaves_the_beat_of_one_that_runs() -> None:
    sink, free, table = MemoryStorage(), MemoryStorage(), activity()
    both = [Beating(table, sink, PATH), Beating(table, free, PATH)]
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as other:
        beat(sink, pid=other.pid, key=process_key(other.pid))
        first = sink.objects[PATH]
        with heartbeats(both, once=False, clock=lambda: NOW):
            assert after(free, table.poll).wait(30)
        assert sink.objects[PATH] == first
        other.kill()
    with heartbeats(both, once=False, clock=lambda: NOW):
        assert after(sink, lambda: None).wait(30)
    assert sink.objects[PATH] != first


def test_a_loop_without_a_sign_of_life_has_no_beats() -> None:
    sink, stuck, alive = MemoryStorage(), activity(), activity()
    stuck.poll()
    late, now = MemoryStorage(), NOW + QUIET_SECS + 1
    with heartbeats(
        [Beating(stuck, sink, PATH), Beating(alive, late, PATH)], once=False, clock=lambda: now
    ):
        alive.poll()
        alive.expects(2 * QUIET_SECS)
        assert after(late, lambda: None).wait(30)
    assert not sink.objects


def test_a_loop_that_ended_is_marked_while_others_go_on() -> None:
    sink, source = MemoryStorage(), activity()
    with heartbeats([Beating(source, sink, PATH)], once=False, clock=lambda: NOW):
        assert after(sink, source.poll).wait(30)
        assert after(sink, lambda: source.ended(1)).wait(30)
        assert read_life(sink, PATH, NOW).state == "stopped"


@pytest.mark.parametrize("down", [{"ended": True}, {"at": NOW - SILENT_SECS - 1}])
def test_a_run_with_once_deletes_the_beat_of_a_dead_daemon(down: dict[str, Any]) -> None:
    sink, source = MemoryStorage(), activity()
    source.poll()
    beat(sink)
    with heartbeats([Beating(source, sink, PATH)], once=True, clock=lambda: NOW):
        pass
    assert read_life(sink, PATH, NOW).state == "running"  # another daemon's
    beat(sink, **down)
    with heartbeats([Beating(source, sink, PATH)], once=True, clock=lambda: NOW):
        pass
    assert not sink.objects


def test_the_next_daemon_goes_on_from_the_hours_of_the_last() -> None:
    sink, first = MemoryStorage(), activity()
    first.do(NOW - 7_200, 3, 40)
    with heartbeats([Beating(first, sink, PATH)], once=False, clock=lambda: NOW):
        assert after(sink, first.poll).wait(60)
    then = activity()
    then.do(NOW, 1, 2)
    with heartbeats([Beating(then, sink, PATH)], once=False, clock=lambda: NOW):
        assert after(sink, then.poll).wait(60)
    assert then.to_json()["hours"]["rows"][-3:] == [40, 0, 2]
    assert (then.brief()["week"]["files"], then.brief()["hour"]["files"]) == (4, 1)


def test_odd_hours_of_a_heartbeat_are_left_out() -> None:
    found = activity()
    hour = str(int(NOW // 3600))
    odd = {"x": {"rows": 1.0}, "9" * 40: {"rows": 1.0}, "0": {"rows": 1.0}, hour: {"rows": -1.0}}
    found.restore_hours({**odd, str(int(hour) - 1): {"rows": 5.0}})
    assert sum(found.to_json()["hours"]["rows"]) == 5
