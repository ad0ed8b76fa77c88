"""Sentences and exit codes of ``status`` for a daemon that is down, or commits nothing. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass
from itertools import islice
from typing import Any, Literal

from blizzard_core.errors import NOT_COMMITTING, NOT_INGESTING
from blizzard_core.observability.health import FAILURES_TO_UNREADY
from blizzard_core.observability.heartbeat import SILENT_SECS, Life, most_alive
from blizzard_core.observability.notices import Notice
from blizzard_core.observability.uncommitted import Committed, Uncommitted
from blizzard_core.text import counted, plain_span

# Rows that wait longer are a problem, unless the committer polls more rarely.
BEHIND_SECS = 900.0
# So many polls may pass until rows are committed: one may have begun before they came.
_POLLS = 2
# How many sources without a daemon a page names.
NOTICES_SHOWN = 3


@dataclass(frozen=True, slots=True)
class DaemonProblem:
    """A daemon that is down or does not commit, and the sentence that says so.

    ``rows_wait`` if rows wait for their commit.
    """

    daemon: Literal["blizzard", "penguin"]
    text: str
    rows_wait: bool = False

    def to_json(self) -> dict[str, Any]:
        """Return an entry of ``problems`` in ``status --json``."""
        return asdict(self)


def commit_problem(
    waiting: Uncommitted, committed: Committed, now: float, poll_interval: float = 0.0
) -> DaemonProblem | None:
    """Return why rows do not reach the table; None while Penguin works.

    A Penguin that was never seen may be run with ``--once`` by a timer: then only old rows count.
    ``poll_interval`` is that of the table.
    """
    patience = max(BEHIND_SECS, _POLLS * poll_interval)
    life = committed.life
    waits = None if waiting.oldest is None else now - waiting.oldest
    if waits is None:
        if not life.is_down:
            return None
        return DaemonProblem(
            "penguin", f"nothing waits for a commit, but {_life('Penguin', life, now)}"
        )
    never = life.state == "unknown" and committed.saved is None
    if not (life.is_down or never or waits > patience):
        return None
    if life.is_down:
        why = _life("Penguin", life, now)
    elif never:
        why = "no Penguin has ever saved anything here. Start `penguin run`"
    elif life.state == "running":
        why = f"Penguin runs, and last saved {_ago(committed.saved, now)}. `penguin plan` says why"
    else:
        why = f"Penguin last saved {_ago(committed.saved, now)}"
    return DaemonProblem("penguin", f"{uncommitted_text(waiting, now)}; {why}", rows_wait=True)


def ingest_problem(
    life: Life, now: float, error: Mapping[str, Any] | None = None
) -> DaemonProblem | None:
    """Return that Blizzard is down or only fails; None if it works, or runs only with ``--once``.

    ``error`` is the source's last one, which no success has followed. A daemon gets over single
    ones; a run with ``--once`` ended with it.
    """
    if life.is_down:
        return DaemonProblem("blizzard", _life("Blizzard", life, now))
    if error is None or (life.state == "running" and error["times"] < FAILURES_TO_UNREADY):
        return None
    times = f"{error['times']:,} times in a row" if error["times"] > 1 else "in its last poll"
    ended = _ago(error["at"] or None, now)
    return DaemonProblem("blizzard", f"Blizzard failed {times}, {ended}; `last_error` says why")


def exit_code_of(problems: Iterable[Mapping[str, Any]]) -> int:
    """Return the exit code of ``status`` for the problems of its document; Penguin's is first."""
    daemons = {each["daemon"] for each in problems}
    if "penguin" in daemons:
        return NOT_COMMITTING
    return NOT_INGESTING if daemons else 0


def committer_notices(documents: Iterable[Mapping[str, Any]], now: float) -> list[Notice]:
    """Return a notice for Blizzard's page if no Penguin runs. ``life`` is of each saved state."""
    life = most_alive(Life(**each["life"]) for each in documents)
    return [_notice("penguin", _life("Penguin", life, now))] if life.is_down else []


def source_notices(documents: Iterable[Mapping[str, Any]], now: float) -> list[Notice]:
    """Return notices for Penguin's page about sources that no Blizzard runs."""
    lives = {each["name"]: Life(**each["life"]) for each in documents}
    down = {name: life for name, life in lives.items() if life.is_down}
    return [
        _notice("blizzard", f"{name}: {_life('Blizzard', life, now)}")
        for name, life in islice(down.items(), NOTICES_SHOWN)
    ]


def _notice(program: str, text: str) -> Notice:
    return Notice("warn", text, f"Start `{program} run`; the end of its log says why it ended.")


def uncommitted_text(waiting: Uncommitted, now: float) -> str:
    """Return what waits for its commit, and for how long."""
    more = "" if waiting.complete else "at least "
    what = f"{counted(waiting.files or 0, 'file')}, {counted(waiting.rows, 'row')}"
    if not waiting.files and waiting.batches:
        what = counted(waiting.batches, "replacement group")
    since = "" if waiting.oldest is None else f" for {plain_span(now - waiting.oldest)}"
    return f"{more}{what} published and not committed{since}"


def _life(daemon: str, life: Life, now: float) -> str:
    told = life.host is not None and life.pid is not None
    where = f" (host {life.host}, pid {life.pid:.0f})" if told else ""
    if life.state == "silent":
        return f"{daemon}'s last heartbeat was {_ago(life.at, now)}{where}"
    return f"{daemon} does not run; its last heartbeat was {_ago(life.at, now)}{where}"


def _ago(moment: float | None, now: float) -> str:
    if moment is None:
        return "at an unknown time"
    if moment - now > SILENT_SECS:
        return f"{plain_span(moment - now)} in the future: a clock was set back"
    return f"{plain_span(now - moment)} ago"
