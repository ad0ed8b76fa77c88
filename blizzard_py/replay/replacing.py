"""``--replace``: files that were ingested before come again, and take the place of what they had.

They go through the replay of whole files (`blizzard_py.replay`), so what holds there holds
here: one save takes them, killed at any moment the same command goes on, and the live daemon
may run beside it. Each batch is one Delta commit: its new rows come and the earlier rows of
just its files go (`blizzard_py.sources.files.replacements`).

Whatever cannot be replaced exactly is refused before anything is read or written
(`blizzard_py.replay.choosing`).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from blizzard_core.log import get_logger
from blizzard_core.storage.protocol import Entry, is_hidden, order_key
from blizzard_py.dead_letters import reader
from blizzard_py.dead_letters.reader import DeadLetterObject
from blizzard_py.dead_letters.reasons import reason_of
from blizzard_py.replay.choosing import (
    NO_LETTERS,
    Choosing,
    Chosen,
    Letters,
    ReplacedFile,
    ReplaceRefused,
)
from blizzard_py.replay.ownership import check_live
from blizzard_py.replay.run import Drain, drain_taken
from blizzard_py.replay.taken import Taken
from blizzard_py.sources.files.discovery import accepts
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.ranges import Range
from blizzard_py.state.committers import blocked_by
from blizzard_py.state.journal import BatchDocument, Journal
from blizzard_py.state.siblings import RECORDS_SUFFIX
from blizzard_py.state.source_state import ToReplace, under_way

_FAILED = frozenset({"kept", "quarantined", "taken"})


@dataclass(frozen=True, slots=True)
class Replacement:
    """The outcome of all files: ``rows`` that came and were ``replaced``, in ``groups`` commits.

    Of a preview ``groups`` is None and ``outputs`` counts those that go as a whole. ``blocked``
    is why no group of the source gets into the table at present, if a committer says so.
    """

    files: tuple[ReplacedFile, ...]
    rows: int = 0
    replaced: int = 0
    outputs: int = 0
    groups: int | None = None
    exit_code: int = 0
    blocked: str | None = None


@dataclass(frozen=True, slots=True)
class Replacing:
    """Replaces files of one source: ``live`` are its parts, ``files`` those of its replay.

    ``remedy`` is how more files can be chosen.
    """

    live: Parts
    files: Parts
    drain: Drain
    remedy: str
    insist: bool = False

    def preview(self, wanted: Mapping[str, Entry], letters: Letters = NO_LETTERS) -> Replacement:
        """Return what `run` would do. Writes nothing.

        Raises `ReplaceRefused`, `StateError`, `StorageError`.
        """
        begun = set(under_way(Taken(self.files).peek())).intersection(wanted)
        fresh = {path: entry for path, entry in wanted.items() if path not in begun}
        chosen = self._choosing.chosen(fresh, letters, None)
        told = [ReplacedFile(path, "taken", "run the same again") for path in sorted(begun)]
        told += self._left(chosen)
        for path in chosen.entries:
            new = not chosen.told(path, "left").by
            told.append(chosen.told(path, "would ingest" if new else "would replace"))
        outputs = {
            output
            for each in chosen.earlier.values()
            if each.together
            for batch in each.batches
            for output in batch.outputs
        }
        rows = sum(each.rows for each in chosen.earlier.values())
        return Replacement(tuple(_sorted(told)), 0, rows, len(outputs), blocked=self._blocked())

    def run(self, wanted: Mapping[str, Entry], letters: Letters = NO_LETTERS) -> Replacement:
        """Replace the files, and finish what an earlier run left.

        Raises `FencedError` if another replay of the source takes over, `ReplaceRefused`,
        `StateError`, `StorageError`; after all but a refusal run it again.
        """
        check_live(self.live)
        ledger = Taken(self.files)
        before = ledger.peek()
        begun = set(under_way(before)).intersection(wanted)
        fresh = {path: entry for path, entry in wanted.items() if path not in begun}
        self._choosing.chosen(fresh, letters, None)  # refused before anything is written
        journal = Journal(self.live.stores.sink, self.files.id, self.live.concurrency)
        # What is being published may be told of already.
        known = set(journal.batches()) - {batch.batch for batch in before.in_flight}
        code = drain_taken(self.files, self.drain)
        if code:
            taken = (ReplacedFile(path, "taken", "run the same again") for path in sorted(begun))
            return Replacement(tuple(taken), exit_code=code)
        chosen = self._taken(ledger, fresh, letters)
        code = drain_taken(self.files, self.drain)
        after = ledger.peek()
        done = list(journal.documents(sorted(set(journal.batches()) - known)))
        told = (*self._left(chosen), *self._ended(chosen, begun, done, set(under_way(after))))
        found = _report(told, done, after.totals.rows - before.totals.rows, code)
        return replace(found, blocked=self._blocked())

    @property
    def _choosing(self) -> Choosing:
        return Choosing(self.live, self.files, self.remedy, self.insist)

    def _blocked(self) -> str | None:
        return blocked_by(self.live.stores.sink, self.live.letters_id)

    def _taken(self, ledger: Taken, fresh: Mapping[str, Entry], letters: Letters) -> Chosen:
        """The files are claimed by one save, whatever has happened since they were looked at."""
        state = ledger.open()
        chosen = self._choosing.chosen(fresh, letters, ledger.now())
        if not chosen.entries and not letters.objects:
            return chosen
        replacing = {
            path: ToReplace(
                tuple(batch.batch for batch in each.batches), each.together, self.insist
            )
            for path, each in chosen.earlier.items()
        }
        done = [name for name, paths in letters.objects.items() if paths.isdisjoint(chosen.left)]
        ledger.add(state, list(chosen.entries.values()), letters_taken=done, replacing=replacing)
        log = get_logger(pipeline=self.live.pipeline, source=self.live.source_name)
        log.info("files_taken", files=len(chosen.entries), replacing=True)
        return chosen

    def _left(self, chosen: Chosen) -> Iterator[ReplacedFile]:
        return (ReplacedFile(path, "left", why) for path, why in chosen.left.items())

    def _ended(
        self,
        chosen: Chosen,
        begun: set[str],
        done: Sequence[BatchDocument],
        left: set[str],
    ) -> Iterator[ReplacedFile]:
        outcomes = {file.path: file for document in done for file in document.files}
        for path in (*chosen.entries, *sorted(begun)):
            found = outcomes.get(path)
            had = chosen.told(path, "kept")
            if path in left or found is None:
                yield replace(had, state="taken", reason="not done yet; run the same again")
            elif found.outcome == "ingested":
                yield replace(had, state="replaced" if had.by or path in begun else "ingested")
            elif had.by or path in begun:
                yield replace(had, reason=found.error)
            else:
                yield replace(had, state="quarantined", reason=found.error)


def files_in(parts: Parts, chosen: Range) -> dict[str, Entry]:
    """The files of the source in a range, whose ends may be files. Raises `StorageError`."""
    source = parts.stores.source
    accept = accepts(parts.files.advanced.compression)
    first = source.stat(chosen.first) if accept(chosen.first) else None
    pages = source.list_range(chosen.gap.after, chosen.gap.until)
    listed = (entry for page in pages for entry in page.entries)
    there = ([] if first is None else [first]) + list(listed)
    return {e.path: e for e in there if accept(e.path) and not is_hidden(e.path)}


def _report(
    told: Sequence[ReplacedFile], done: Sequence[BatchDocument], rows: int, code: int
) -> Replacement:
    replaced = sum(file.rows for file in told if file.state == "replaced")
    groups = sum(
        bool(each.group and (each.outputs or each.group.replaced.batches)) for each in done
    )
    failed = any(file.state in _FAILED for file in told)
    files = tuple(_sorted(told))
    return Replacement(files, rows, replaced, 0, groups, code or int(failed))


def _sorted(told: Sequence[ReplacedFile]) -> list[ReplacedFile]:
    return sorted(told, key=lambda file: order_key(file.path))


def files_of_letters(
    live: Parts, found: Iterable[DeadLetterObject]
) -> tuple[dict[str, Entry], Letters]:
    """The files that dead letters tell of, also by single records of them, as they are now.

    One that is gone is among them: it ends with a letter that says so. Raises `ReplaceRefused`,
    `UnreadableDeadLetter`, `StorageError`.
    """
    source = live.stores.source
    roots = (f"{live.stores.dlq.uri}/{live.id}{RECORDS_SUFFIX}/", f"{source.uri}/")
    objects: dict[str, frozenset[str]] = {}
    failed: set[str] = set()
    for each in found:
        paths: set[str] = set()
        if reason_of(live.stores.dlq, live.letters_id, each.id) is not None:
            objects[each.id] = frozenset()  # closed, and brought back by who slept
            continue
        for letter in reader.read(live.stores.dlq, each):
            root = next((root for root in roots if letter.uri.startswith(root)), None)
            if root is None:
                raise ReplaceRefused(
                    f"{letter.uri} is not below {source.uri}; if the source's files were moved from"
                    " there, run `blizzard rename` with --moved-from again, which rewrites letters"
                )
            path = letter.uri.removeprefix(root)
            paths.add(reader.original_of(path) if root == roots[0] else path)
            if each.kind != "records" and root != roots[0] and not letter.kept:
                failed.add(path)
        objects[each.id] = frozenset(paths)
    wanted = sorted({path for paths in objects.values() for path in paths}, key=order_key)
    there = ((path, source.stat(path)) for path in wanted)
    entries = {path: entry or Entry(path, 0, live.clock()) for path, entry in there}
    return entries, Letters(objects, frozenset(failed))
