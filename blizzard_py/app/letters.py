"""Viewing and closing of dead letters: `dlq show` and `dlq discard`."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Iterator
from dataclasses import dataclass

from blizzard_core.settings.document import Config
from blizzard_core.storage.protocol import Storage
from blizzard_py.app.operations import chosen_letters
from blizzard_py.app.request_selector import close_letters
from blizzard_py.app.submit import RequestOrder, Waits, submit_and_follow
from blizzard_py.app.wiring import context_of
from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reader import DeadLetter, lines_of
from blizzard_py.edits.checkpoint_store import current_user
from blizzard_py.formats.names import format_of
from blizzard_py.job import JobFile
from blizzard_py.lines.failure import FileFailed
from blizzard_py.requests.progress import RequestResult
from blizzard_py.selection.letters import original
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.lines import read_records
from blizzard_py.sources.records import RecordFiles
from blizzard_py.state.source_state import Closing

# The letter of a whole file names its first bad line so.
_LINE = re.compile(r"\bline (\d+)\b")


@dataclass(frozen=True, slots=True)
class LetterView:
    """A letter with the lines around the bad one, by number, as the file has them now.

    ``line`` is the bad one's number, 0 where none is; ``note`` says why lines are missing.
    """

    letter: DeadLetter
    line: int
    lines: tuple[tuple[int, bytes], ...]
    note: str


def show_letters(
    config: Config, where: tuple[str, str], letter_id: str, line: int | None, context: int
) -> Iterator[LetterView]:
    """Yield the letters of an object, or of one line, one in memory at a time.

    Raises `ConfigError` for an object that is not there, `UnreadableDeadLetter`, `StorageError`.
    """
    live = context_of(config, where)
    for found in chosen_letters(live, letter_id, replayed=True):
        for letter in reader.read(live.stores.dlq, found):
            if line in {None, letter.line}:
                yield _shown(live, letter, context)


def _shown(live: SourceContext, letter: DeadLetter, context: int) -> LetterView:
    named = _LINE.search(letter.error)
    line = letter.line or (int(named[1]) if named else 0)
    found_original = original(live, letter)
    own = ((line, letter.raw),) if letter.raw else ()
    if not line or not live.has_files:
        return LetterView(found_original, line, own, "")
    numbers = range(max(1, line - context), line + context + 1)
    try:
        lines, note = _around(live, letter, numbers)
    except FileFailed as error:
        lines, note = {}, f"the file cannot be read: {error.reason}"
    except ValueError as error:
        lines, note = {}, str(error)
    lines |= dict(own)
    behind = max(lines, default=0)
    if behind > line and not lines[behind]:
        del lines[behind]  # what is behind the last line's end
    return LetterView(found_original, line, tuple(sorted(lines.items())), note)


def _around(
    live: SourceContext, letter: DeadLetter, numbers: range
) -> tuple[dict[int, bytes], str]:
    """Return the lines of a letter's file, and a note about missing ones."""
    store, path = _home_of(live, letter)
    entry = None if store is None else store.stat(path)
    if store is None or entry is None:
        return {}, "the file is gone"
    form = live.ingest.format
    if store is live.stores.dlq:
        form = format_of(form).replay_settings()
    most = live.ingest.tolerance.limits.expansion
    found = read_records(store, JobFile(path, entry.size), numbers, most, form)
    lines = {number: record.raw for number, record in found.items()}
    written = dt.datetime.fromisoformat(letter.timestamp).timestamp()
    note = "the file was replaced after the letter was written; these are its present lines"
    return lines, note if entry.modified > written else ""


def _home_of(live: SourceContext, letter: DeadLetter) -> tuple[Storage | None, str]:
    """Return the store and path of a letter's file."""
    records, source = RecordFiles(live), live.stores.source
    name = records.path_of(letter.uri)
    if name is not None:
        return live.stores.dlq, records.place(name)
    if letter.uri.startswith(f"{source.uri}/"):
        return source, letter.uri.removeprefix(f"{source.uri}/")
    return None, letter.uri


@dataclass(frozen=True, slots=True)
class DiscardedLetters:
    """One object of ``letters`` that is closed."""

    id: str
    kind: str
    letters: int


def discard_letters(
    config: Config, where: tuple[str, str], letter_id: str | None, why: str, waits: Waits | None
) -> tuple[list[DiscardedLetters], RequestResult | None]:
    """Close the letters of an object, or all, by a request; without ``waits`` only say which.

    Raises `ConfigError`, and what `submit_and_follow` raises.
    """
    live = context_of(config, where)
    chosen = chosen_letters(live, letter_id)
    found = [
        DiscardedLetters(each.id, each.kind, lines_of(live.stores.dlq, each)) for each in chosen
    ]
    if waits is None or not chosen:
        return found, None
    ids = [each.id for each in chosen]
    if live.event_time is None:
        return found, submit_and_follow(
            config, where, RequestOrder("close_letters", {"letters": ids}, why=why), waits
        )
    # Of event time nothing is brought again, so nobody else has to do with them.
    at = dt.datetime.fromtimestamp(waits.clock(), dt.UTC).isoformat(timespec="seconds")
    close_letters(live, ids, Closing(why, current_user(), at))
    return found, None
