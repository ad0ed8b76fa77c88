"""Files of a replay's queue, of which some take the place of what they were ingested as before.

Such a file is claimed like any other of the queue: from then on scans leave it alone, and it
waits for a scan that has it under way. Only then it is looked up where its rows of before are
(`blizzard_py.planning.replacing`), so nothing can come between that and the commit; its batch
is a group that takes exactly these rows out.

* A file that fails keeps its rows, and has a letter: only what was ingested is replaced.
* Of files whose rows lie in the same outputs one that fails keeps all of them as they are:
  outputs go as a whole or not at all.
* What is not as it was found when the files were chosen is left alone, and said so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import replace

from blizzard_py.dead_letters.reader import stem_of
from blizzard_py.job import FinishedFile
from blizzard_py.planning.replacing import Earlier, earlier_of
from blizzard_py.sources.files.advance import KeyedWork, Work
from blizzard_py.sources.files.discovery import Scope
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.files.watermark_files import WatermarkFiles
from blizzard_py.sources.parts import Parts
from blizzard_py.sources.protocol import LEFT_STAGE, Plan, Upkeep, Withheld
from blizzard_py.state.source_state import Batch, Replaced, SourceState

# What keys of batches are called of files that are ingested and replace nothing, and of those
# whose rows name them; the other keys are those of files that go together.
_PLAIN, _NAMED = "\0plain", ""


class ReplacingFiles(WatermarkFiles):
    """The whole files of a replay."""

    def __init__(self, parts: Parts, upkeep: Upkeep, scope: Scope | None = None) -> None:
        super().__init__(parts, upkeep, scope)
        self._batches: EarlierBatches | None = None
        # Of the batch whose job was started last, by its id; asked for once it has run.
        self._earlier: dict[str, dict[str, Earlier]] = {}

    def recover(self, state: SourceState, epoch: int) -> SourceState:
        self._batches = EarlierBatches(self._parts, state.replacing) if state.replacing else None
        return super().recover(state, epoch)

    def plan(self, state: SourceState) -> Plan[Work]:
        plan = super().plan(state)
        asked = plan.state.replacing
        if not asked:
            return plan
        keys = {path: wanted.together for path, wanted in asked.items()}
        members = Counter(key for key in keys.values() if key)
        records = self._others.records_waiting()
        free = [e for e in plan.work.files if e.path not in keys or stem_of(e.path) not in records]
        there = Counter(keys.get(entry.path, _PLAIN) for entry in free)
        # What waits for a scan, for its records or another try keeps those that go with it.
        ready = [
            entry for entry in free if there[key := keys.get(entry.path, _PLAIN)] >= members[key]
        ]
        ready.sort(key=lambda entry: keys.get(entry.path, _PLAIN))
        work = KeyedWork(ready, lambda path: keys.get(path, _PLAIN), members.__contains__)
        return replace(plan, work=work)

    def replaced(
        self, state: SourceState, batch: Batch, finished: Sequence[FinishedFile]
    ) -> Replaced | Withheld | None:
        if batch.files[0].path not in state.replacing:
            return None
        earlier = self._earlier.pop(batch.batch)
        if state.replacing[batch.files[0].path].together:
            kept = _kept(finished)
            if kept is not None:
                return Withheld(kept)
        done = [earlier[file.path] for file in finished if file.outcome == "ingested"]
        batches = {each.batch: each for one in done for each in one.batches}
        named = not any(one.together for one in done)
        names = {name for one in done for name in one.names} if named else set()
        outputs = {output for each in batches.values() for output in each.outputs}
        return Replaced((), tuple(sorted(names)), tuple(sorted(outputs)), tuple(sorted(batches)))

    def advance(
        self, state: SourceState, batch: Batch, work: Work | None, now: float
    ) -> SourceState:
        state = super().advance(state, batch, work, now)
        done = {file.path for file in batch.finished if file.outcome != "retry"}
        left = {path: asked for path, asked in state.replacing.items() if path not in done}
        return replace(state, replacing=left)

    def _theirs(self, state: SourceState, batch: Batch) -> dict[str, str]:
        """Of files that replace: those whose rows are not where they were found to be."""
        paths = [entry.path for entry in batch.files if entry.path in state.replacing]
        if not paths:
            return super()._theirs(state, batch)
        if self._batches is None or not self._batches.covers(paths):
            self._batches = EarlierBatches(self._parts, state.replacing)
        found = self._batches.look()
        asked = state.replacing
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
        moved = {
            path: "the journal was cut since it was chosen; run the same again"
            for path in paths
            if not known.issuperset(asked[path].batches)
        } | {
            path: "another run has ingested it since it was chosen; run the same again"
            for path in paths
            if bool(earlier[path].together) != bool(asked[path].together)
        }
        if lacking.files:
            first = min(lacking.files)
            moved |= dict.fromkeys(
                (path for path in paths if earlier[path].together),
                f"another run has ingested it together with {first} since it was chosen;"
                " run the same again",
            )
        if moved and asked[paths[0]].together:
            moved = dict.fromkeys(paths, next(iter(moved.values())))
        return moved


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
