"""Batches of files that replace their earlier rows.

Such a file is in ``replacing`` of the state and is claimed, by a running batch or in the queue.
Only then its earlier rows are located (`blizzard_py.sources.earlier_batches`), so nothing can come
between that and the commit. Its batch is a group that removes exactly these rows.

* A file that fails keeps its rows and gets a dead letter: only ingested files are replaced.
* If rows of several files are in the same outputs and one file fails, none is replaced. An output
  is removed completely or not at all.
* Files whose rows have changed since the files were chosen are left alone and reported.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace

from blizzard_core.storage.protocol import Entry
from blizzard_py.job import LEFT_STAGE, FinishedFile
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.earlier_batches import Earlier, earlier_of
from blizzard_py.sources.files.advance import KeyedWork
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.protocol import Withheld
from blizzard_py.state.batch import Batch, Replaced
from blizzard_py.state.record_names import stem_of
from blizzard_py.state.source_state import SourceState

# Keys of batches: one for files that replace nothing, one for files whose rows name them. Every
# other key is shared by files that must be replaced together.
_PLAIN, _NAMED = "\0plain", ""

_CUT = (
    "the journal no longer holds the batches that it was ingested in; see `blizzard backfill"
    " --replace`, which takes it with --assume-named"
)


class Replacements:
    """The replacements of a source.

    For files without a request no operator has checked the rows. Rows that cannot be accounted for
    are assumed to be of batches that the journal no longer holds.
    """

    def __init__(self, parts: SourceContext) -> None:
        self._parts = parts
        self._batches: EarlierBatches | None = None
        # Of the batch whose job was started last, by its id; asked for once it has run.
        self._earlier: dict[str, dict[str, Earlier]] = {}

    def know(self, batches: EarlierBatches) -> None:
        """Go by batches that somebody has looked up, so that they are not read once more."""
        self._batches = batches

    def forget(self) -> None:
        """Forget what was read: it is not to be believed any more."""
        self._batches = None

    @staticmethod
    def work(state: SourceState, files: Sequence[Entry]) -> KeyedWork:
        """Return the files as work: replacing files separate from others, each group together."""
        keys = {path: wanted.together for path, wanted in state.work.replacing.items()}
        members = Counter(key for key in keys.values() if key)
        there = Counter(keys.get(entry.path, _PLAIN) for entry in files)
        ready = [e for e in files if there[key := keys.get(e.path, _PLAIN)] >= members[key]]
        ready.sort(key=lambda entry: keys.get(entry.path, _PLAIN))
        return KeyedWork(ready, lambda path: keys.get(path, _PLAIN), members.__contains__)

    @staticmethod
    def concerns(state: SourceState, batch: Batch) -> bool:
        """Return whether the batch is one that replaces; files of both kinds share none."""
        return bool(batch.files) and batch.files[0].path in state.work.replacing

    def changed_files(self, state: SourceState, batch: Batch) -> dict[str, str]:
        """Return the files of a batch whose rows have moved since the request, with the reason."""
        replacing = state.work.replacing
        paths = [entry.path for entry in batch.files]
        if self._batches is None or not self._batches.covers(paths):
            self._batches = EarlierBatches(self._parts, replacing)
        found = self._batches.look()
        vouched = {path for path in paths if replacing[path].insist}
        earlier, lacking = earlier_of(paths, found, vouched)
        names = self._batches.names_of_rows(vouched)
        self._earlier = {
            batch.batch: {
                path: replace(one, names=(*one.names, *names.get(path, ())))
                for path, one in earlier.items()
            }
        }
        known = {each.batch for each in found}
        without = [path for path in paths if path not in vouched and not _has_batch(earlier, path)]
        cut = {path for path in paths if not known.issuperset(replacing[path].batches)}
        cut.update(self._batches.cut(without, found) if without else ())
        if without and not batch.request:
            cut |= self._batches.untold(without)
        moved = {
            path: why
            for path in paths
            if (
                why := _CUT
                if path in cut
                else _company(earlier[path], replacing[path].together, lacking=bool(lacking.files))
            )
        }
        if moved and replacing[paths[0]].together:
            moved = dict.fromkeys(paths, next(iter(moved.values())))
        return moved

    def replacement(
        self, state: SourceState, batch: Batch, finished: Sequence[FinishedFile]
    ) -> Replaced | Withheld:
        """See `Source.replacement`. `changed_files` of the batch was called."""
        earlier = self._earlier.pop(batch.batch)
        if state.work.replacing[batch.files[0].path].together != _NAMED:
            outcomes = _group_outcomes(finished)
            if outcomes is not None:
                return Withheld(outcomes)
        done = [earlier[file.path] for file in finished if file.outcome == "ingested"]
        batches = {each.batch: each for one in done for each in one.batches}
        named = not any(one.together for one in done)
        names = {name for one in done for name in one.names} if named else set()
        outputs = {output for each in batches.values() for output in each.outputs}
        return Replaced(
            source_files=tuple(sorted(names)),
            outputs=tuple(sorted(outputs)),
            batches=tuple(sorted(batches)),
            ever=any(state.work.replacing[entry.path].insist for entry in batch.files),
        )

    @staticmethod
    def without_finished(state: SourceState, batch: Batch) -> SourceState:
        """Return the state without the replacements that the batch finished."""
        done = {file.path for file in batch.results.finished if file.outcome != "retry"}
        remaining = {path: each for path, each in state.work.replacing.items() if path not in done}
        return state.with_work(replacing=remaining)


def _has_batch(earlier: Mapping[str, Earlier], path: str) -> bool:
    """Return whether a batch is known that ingested the file itself, and not only records of it."""
    return any(stem_of(path) not in batch.of_records for batch in earlier[path].batches)


def _company(earlier: Earlier, together: str, *, lacking: bool) -> str:
    """Return why a file cannot go alone, or with those that it was to go with; empty if it can."""
    if bool(earlier.together) == bool(together) and not (together and lacking):
        return ""
    return (
        "rows that it was ingested as do not name their file, and lie in the same outputs as those"
        " of others; `blizzard backfill --replace` says which have to come along"
    )


def _group_outcomes(finished: Sequence[FinishedFile]) -> tuple[FinishedFile, ...] | None:
    """Return the outcomes of a group in which a file failed; None if all can be ingested."""
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
