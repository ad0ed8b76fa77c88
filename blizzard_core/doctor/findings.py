"""Findings of `doctor`: one line for each check, with its result and a remedy."""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from threading import Event
from typing import Any, Literal

import click

from blizzard_core.errors import BlizzardError, ConfigError
from blizzard_core.redact import redacted
from blizzard_core.signals import INTERRUPTED, end_at_once, stop_on_signals
from blizzard_core.text import counted, json_safe, one_line, printable

Result = Literal["ok", "note", "failed"]

# At an interruption requests may end within this time, and probe objects are deleted.
_GRACE_SECS = 30
_COLOURS = {"ok": "green", "note": "yellow", "failed": "red"}


@dataclass(frozen=True, slots=True)
class CheckResult:
    """One check of one subject (a store, a source, this machine) and what came out.

    A note does not stop the daemons. ``exit_code`` counts if the check failed.
    """

    subject: str
    check: str
    result: Result
    text: str
    exit_code: int = 1


def failed(subject: str, check: str, error: BlizzardError) -> list[CheckResult]:
    """Return a failed check for each problem of the error."""
    problems = error.problems if isinstance(error, ConfigError) else (str(error),)
    return [
        CheckResult(subject, check, "failed", text.removeprefix(f"{subject}: "), error.exit_code)
        for text in problems
    ]


def exit_code_of(findings: Iterable[CheckResult]) -> int:
    """Return the highest exit code of failed checks; 0 without any."""
    return max((each.exit_code for each in findings if each.result == "failed"), default=0)


def print_findings(
    examine: Callable[[Event], Iterable[CheckResult]],
    *,
    as_json: bool,
    grace_secs: float = _GRACE_SECS,
) -> int:
    """Print what ``examine`` finds, which ends early when the event is set; the exit code.

    A line appears as soon as it is found. ``grace_secs`` after an interruption the process ends.
    """
    stop = _Stop(grace_secs)
    findings: list[CheckResult] = []
    try:
        with stop_on_signals(stop, grace_secs):
            for each in examine(stop):
                findings.append(each)
                if not as_json:
                    _show(each)
    finally:
        stop.cancel()
    if as_json:
        click.echo(json_safe(json.dumps(_to_json(findings), ensure_ascii=False, indent=2)))
    else:
        _summarize(findings)
    if stop.is_set():
        click.echo("interrupted: the rest was not tried", err=True)
        return INTERRUPTED
    return exit_code_of(findings)


class _Stop(Event):
    """The event of an interruption. The process ends if it is still busy ``grace_secs`` later.

    A store that does not answer may keep a thread for minutes, and each try of a deletion, too.
    """

    def __init__(self, grace_secs: float) -> None:
        super().__init__()
        self._timer = threading.Timer(grace_secs, _give_up)
        self._timer.daemon = True

    def set(self) -> None:
        """Set the event; the first time also start the clock."""
        if not self.is_set():
            super().set()
            self._timer.start()

    def cancel(self) -> None:
        """Let the process go on."""
        self._timer.cancel()


def _give_up() -> None:
    click.echo(
        "interrupted: a store does not answer; probe objects (_doctor-ID/) may stay until a later"
        " run deletes them",
        err=True,
    )
    end_at_once()


def _to_json(findings: Sequence[CheckResult]) -> dict[str, Any]:
    return {
        "exit_code": exit_code_of(findings),
        "checks": [
            {
                "subject": each.subject,
                "check": each.check,
                "result": each.result,
                "text": redacted(each.text),
            }
            for each in findings
        ],
    }


def _show(each: CheckResult) -> None:
    head = click.style(f"{each.result:<6}", fg=_COLOURS[each.result])
    line = printable(one_line(redacted(f"{each.subject}: {each.check}: {each.text}")))
    click.echo(f"{head}  {line}")
    sys.stdout.flush()


def _summarize(findings: Sequence[CheckResult]) -> None:
    failures = sum(each.result == "failed" for each in findings)
    notes = sum(each.result == "note" for each in findings)
    outcome = f"{counted(failures, 'check')} failed" if failures else "nothing failed"
    click.echo(f"{counted(len(findings), 'check')}, {outcome}, {counted(notes, 'note')}")
