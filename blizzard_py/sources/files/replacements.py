"""Batches of files that take the place of what these were ingested as before.

Such a file stands in ``replacing`` of the state and is claimed, by a batch that runs or in a queue:
from then on other runs leave it alone, and what they had under way was waited for. Only then it is
looked up where its rows of before are (`blizzard_py.sources.earlier_batches`), so nothing can come
between that and the commit; its batch is a group that takes exactly these rows out.

* A file that fails keeps its rows, and has a letter: only what was ingested is replaced.
* Of files whose rows lie in the same outputs one that fails keeps all of them as they are:
  outputs go as a whole or not at all.
* What is not as it was found when the files were chosen is left alone, and said so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from blizzard_core.storage.protocol import Entry
from blizzard_py.job import FinishedFile, JobFile
from blizzard_py.sources.earlier_batches import Earlier, earlier_of
from blizzard_py.sources.files.advance import KeyedWork, Work
from blizzard_py.sources.files.discovery import Scope
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.files.source import FileSource
from blizzard_py.sources.files.watermark_files import WatermarkFiles
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import LEFT_STAGE, Plan, Upkeep, Withheld
from blizzard_py.state.source_state import Batch, Replaced, SourceState

# What keys of batches are called of files that are ingested and replace nothing, and of those
# whose rows name them; the other keys are those of files that go together.
_PLAIN, _NAMED = "\0plain", ""

_CUT = (
    "the journal no longer holds the batches that it was ingested in; see `blizzard backfill"
    " --replace`, which takes it with --insist"
)


class Replacements:
    """The replacements of one run of a source.

    Where files were not ``chosen`` by somebody who has looked, what nobody can account for is
    taken for rows that were cut from the journal.
    """

    def __init__(self, parts: Parts, *, chosen: bool = True) -> None:
        self._parts = parts
        self._chosen = chosen
        self._batches: EarlierBatches | None = None
        # Of the batch whose job was started last, by its id; asked for once it has run.
        self._earlier: dict[str, dict[str, Earlier]] = {}

    def forget(self) -> None:
        """Forget what was read: it is not to be believed any more."""
        self._batches = None

    @staticmethod
    def work(state: SourceState, files: Sequence[Entry]) -> KeyedWork:
        """The files as work: those that replace apart from the others, and together who has to."""
        keys = {path: wanted.together for path, wanted in state.replacing.items()}
        members = Counter(key for key in keys.values() if key)
        there = Counter(keys.get(entry.path, _PLAIN) for entry in files)
        ready = [e for e in files if there[key := keys.get(e.path, _PLAIN)] >= members[key]]
        ready.sort(key=lambda entry: keys.get(entry.path, _PLAIN))
        return KeyedWork(ready, lambda path: keys.get(path, _PLAIN), members.__contains__)

    @staticmethod
    def concerns(state: SourceState, batch: Batch) -> bool:
        """Return whether the batch is one that replaces; files of both kinds share none."""
        return batch.files[0].path in state.replacing

    def moved(self, state: SourceState, batch: Batch) -> dict[str, str]:
        """The files of a batch whose rows are not where they were found to be, with the reason."""
        asked = state.replacing
        paths = [entry.path for entry in batch.files]
        if self._batches is None or not self._batches.covers(paths):
            self._batches = EarlierBatches(self._parts, asked)
        found = self._batches.look()
        vouched = {path for path in paths if asked[path].insist}
        earlier, lacking = earlier_of(paths, found, vouched)
        names = self._batches.vouched(vouched)
        self._earlier = {
            batch.batch: {
                path: replace(one, names=(*one.names, *names.get(path, ())))
                for path, one in earlier.items()
            }
        }
        known = {each.batch for each in found}
        without = [path for path in paths if not (earlier[path].batches or path in vouched)]
        cut = {path for path in paths if not known.issuperset(asked[path].batches)}
        cut.update(self._batches.cut(without, found) if without else ())
        if without and not self._chosen:
            cut |= self._batches.untold(without)
        moved = {
            path: why
            for path in paths
            if (
                why := _CUT
                if path in cut
                else _company(earlier[path], asked[path].together, lacking=bool(lacking.files))
            )
        }
        if moved and asked[paths[0]].together:
            moved = dict.fromkeys(paths, next(iter(moved.values())))
        return moved

    def replaced(
        self, state: SourceState, batch: Batch, finished: Sequence[FinishedFile]
    ) -> Replaced | Withheld:
        """See `Source.replaced`; for a batch of which `moved` was asked."""
        earlier = self._earlier.pop(batch.batch)
        if state.replacing[batch.files[0].path].together != _NAMED:
            kept = _kept(finished)
            if kept is not None:
                return Withheld(kept)
        done = [earlier[file.path] for file in finished if file.outcome == "ingested"]
        batches = {each.batch: each for one in done for each in one.batches}
        named = not any(one.together for one in done)
        names = {name for one in done for name in one.names} if named else set()
        outputs = {output for each in batches.values() for output in each.outputs}
        return Replaced(
            source_files=tuple(sorted(names)),
            outputs=tuple(sorted(outputs)),
            batches=tuple(sorted(batches)),
            ever=any(state.replacing[entry.path].insist for entry in batch.files),
        )

    @staticmethod
    def settled(state: SourceState, batch: Batch) -> SourceState:
        """The state without what the batch has done with."""
        done = {file.path for file in batch.finished if file.outcome != "retry"}
        left = {path: asked for path, asked in state.replacing.items() if path not in done}
        return replace(state, replacing=left)


def _company(earlier: Earlier, together: str, *, lacking: bool) -> str:
    """Return why a file cannot go alone, or with those that it was to go with; empty if it can."""
    if bool(earlier.together) == bool(together) and not (together and lacking):
        return ""
    return (
        "rows that it was ingested as do not name their file, and lie in the same outputs as those"
        " of others; `blizzard backfill --replace` says which have to come along"
    )


def _kept(finished: Sequence[FinishedFile]) -> tuple[FinishedFile, ...] | None:
    """The outcomes of files that go together where not all can; None if all can."""
    bad = [file for file in finished if file.outcome != "ingested"]
    if not bad:
        return None
    final = next((file for file in bad if file.outcome != "retry"), None)
    if final is None:
        why = f"waits for {bad[0].path}, whose rows lie in the same outputs: {bad[0].error}"
        again = (replace(f, outcome="retry", rows=0, bad_rows=0, error=why) for f in finished)
        return tuple(f if f in bad else g for f, g in zip(finished, again, strict=True))
    why = (
        f"left as it was, since {final.path} could not be ingested and their rows lie in the same"
        f" outputs: {final.error}"
    )
    return tuple(
        file
        if file in bad and file.outcome != "retry"
        else replace(file, outcome="reported", rows=0, bad_rows=0, error=why, stage=LEFT_STAGE)
        for file in finished
    )


_RECORDS = "a replay is bringing single records of it; if none runs, `blizzard dlq replay` ends it"


class Replacing(FileSource):
    """Takes those apart that stand in ``replacing`` of the state, and leaves the others alone.

    To be mixed in before a kind of files. What a replay of single records has of a file goes
    with the file's rows, so the file waits until that is over.
    """

    # Whether somebody has looked at files before they were taken.
    chosen = True

    def __init__(self, parts: Parts, upkeep: Upkeep, scope: Scope | None = None) -> None:
        super().__init__(parts, upkeep, scope)
        self._replacements = Replacements(parts, chosen=self.chosen)
        # What waited when it was looked last.
        self._waiting: set[str] = set()

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        self._replacements.forget()
        return super().recover(state, epoch)

    def plan(self, state: SourceState) -> Plan[Work]:
        plan = super().plan(state)
        known, files = self._asked(plan)
        asked = known.replacing
        if not asked and known is plan.state:
            return plan
        busy = self._others.records_under_way(asked) if asked else set()
        if busy - self._waiting:
            self._log.info("files_wait", files=len(busy), why=_RECORDS, example=min(busy))
        self._waiting = busy
        free = [entry for entry in files if entry.path not in busy]
        return replace(plan, state=known, work=self._replacements.work(known, free))

    def placed(self, state: SourceState, batch: Batch) -> tuple[list[JobFile], list[FinishedFile]]:
        asked = [entry.path for entry in batch.files if entry.path in state.replacing]
        # Before it is looked where rows are: what was brought by now is found then.
        busy = self._others.records_under_way(asked) if asked else set()
        files, lost = super().placed(state, batch)
        wait = [FinishedFile(f.path, "retry", error=_RECORDS) for f in files if f.path in busy]
        return [file for file in files if file.path not in busy], [*lost, *wait]

    def replaced(
        self, state: SourceState, batch: Batch, finished: Sequence[FinishedFile]
    ) -> Replaced | Withheld | None:
        if not self._replacements.concerns(state, batch):
            return None
        return self._replacements.replaced(state, batch, finished)

    def advance(
        self, state: SourceState, batch: Batch, work: Work | None, now: float
    ) -> SourceState:
        return self._replacements.settled(super().advance(state, batch, work, now), batch)

    def _asked(self, plan: Plan[Work]) -> tuple[SourceState, Sequence[Entry]]:
        """The plan's state with what is to be replaced, and its files without those of others."""
        return plan.state, plan.work.files

    def _theirs(self, state: SourceState, batch: Batch) -> dict[str, str]:
        if not self._replacements.concerns(state, batch):
            return super()._theirs(state, batch)
        return self._replacements.moved(state, batch)


class ReplacingFiles(Replacing, WatermarkFiles):
    """Files in a replay's queue. What scans find they have ingested before, or they wait."""
