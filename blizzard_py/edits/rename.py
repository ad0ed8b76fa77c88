"""``blizzard rename``: a source keeps its state when its names change, or its files move.

State is named after pipeline and source (or the source's ``id``). A rename takes it from
the old id to the new one:

1. the old checkpoint becomes a *tombstone* in one fenced save: it names the new id and holds the
   whole state. Every release refuses to run on it, so the old name has no owner any more, and the
   rename only goes forward;
2. journals, segments, dead letters and the inferred schema are copied;
3. ``_blizzard_fence/{old id}~moved.json`` names the new id, and the checkpoint is created under
   the new id;
4. the tombstone drops the state, and stays.

After a crash the same command goes on. Everything is copied again while the tombstone holds the
state and there is no new checkpoint. After that only step 4 remains.

A rename is refused in three cases:

* while a batch is being published, because its outputs are staged under the old name;
* for a stale checkpoint, which could not be noticed under the new name;
* if there was work under the new name, which would count as work of this source.

The copied objects of the old name stay; delete them when you like.

**Files that moved.** A checkpoint belongs to the files below one ``source_uri``. With
``moved_from`` it is used for the same files, under the same names, at another URI. The newest done
names of every tracked partition must be there. Dead letters name files by URI, so they are
rewritten.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from blizzard_core.checkpoint import document as checkpoint
from blizzard_core.checkpoint.fenced_writer import FencedFile, writer_of
from blizzard_core.errors import FencedError
from blizzard_core.storage.opening import normalize_uri
from blizzard_py.edits.renamed_documents import (
    RenameRefused,
    check_current,
    check_free,
    check_requests,
    copy_folder,
    copy_letters,
    count_below,
    move_checkpoint,
    move_identity,
    newest_done,
    tombstone,
    tombstone_epoch,
    without,
)
from blizzard_py.ingest.completion_mirror import remove_certificates
from blizzard_py.ingest.group_publishing import GroupManifests
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_document import MOVED_DOCUMENT, MOVED_TO, state_from_json
from blizzard_py.state.committers import applied_groups
from blizzard_py.state.fence_record import FenceFile
from blizzard_py.state.source_state import Identity, SourceState, checkpoint_path
from blizzard_py.state.state_paths import StatePaths, checkpoints, schema_path

# Files that a refusal names.
_EXAMPLES = 3


@dataclass(frozen=True, slots=True)
class Renamed:
    """The result of a rename: ids, URIs, and how many objects it copies.

    ``begun`` means that an earlier run died in the middle, ``over`` that nothing is left to do.
    """

    old_id: str
    new_id: str
    old_uri: str | None
    new_uri: str
    journal: int
    letters: int
    begun: bool = False
    over: bool = False


class Rename:
    """Moves the state of one source, whose configuration ``parts`` are made of, to its id.

    ``old_id`` may be the same, if only the files have moved.
    """

    def __init__(self, parts: SourceContext, old_id: str, moved_from: str | None = None) -> None:
        self._parts = parts
        self._old = old_id
        self._new = parts.id
        self._moved_from = moved_from
        self._sink = parts.stores.sink
        self._dlq = parts.stores.dlq

    def plan(self) -> Renamed:
        """Return what `run` would do. Writes nothing. Raises `RenameRefused`, `StateError`."""
        document = self._document(self._old)
        if document is None:
            known = ", ".join(checkpoints(self._sink)) or "none"
            raise RenameRefused(
                f"{self._where(self._old)} does not exist; there are states named {known}"
            )
        target = document.get(MOVED_TO)
        if target is not None:
            self._check_goal(document)
        held = document.get(MOVED_DOCUMENT) if target is not None else document
        if held is None:
            return self._summarize({}, over=True)
        state = state_from_json(held, self._where(self._old))
        self._check(state)
        by_windows = state.kind.columns is not None and state.ids.group_seq
        if self._old != self._new and (state.kind.units is not None or by_windows):
            raise RenameRefused(
                f"{self._old} is in the table's rows and identifies those that this source"
                f" replaces. No other id could replace them: give the source `id: {self._old}`"
            )
        if target is None and self._old != self._new:
            check_requests(self._sink, self._old)
            check_free(self._sink, self._old, self._new)
            self._check_groups()
            check_current(self._parts, self._old)
        return self._summarize(held, is_started=target is not None)

    def run(self) -> Renamed:
        """Do it, or what a run that died has left. Raises `RenameRefused`, `FencedError`."""
        plan = self.plan()
        if plan.over:
            return plan
        if self._old == self._new:
            self._readdress(plan)
        else:
            self._rename(plan)
        return plan

    # -- other names ---------------------------------------------------------------

    def _rename(self, plan: Renamed) -> None:
        """Carry out steps 1 to 4."""
        document = self._buried()
        if self._document(self._new) is None:
            self._check_groups()  # the old name has no owner that could write more
            self._copy(plan, state_from_json(document, self._where(self._old)))
            FenceFile(self._sink, self._old).announce(self._new)
            self._create(document)
        self._require_new_writer()
        self._sink.delete_tree(StatePaths(self._old).staging)
        if "complete" in document:
            remove_certificates(self._sink, self._old)
        self._let_go()

    def _buried(self) -> dict[str, Any]:
        """Step 1: the state that the tombstone in the place of the old one holds from now on."""
        document = self._document(self._old) or {}
        if MOVED_TO not in document:
            file = FencedFile(self._sink, checkpoint_path(self._old))
            document = self._take_over(file, self._old)
        if MOVED_TO in document:
            # Of this command as it was given before, or of another one that was faster.
            self._check_goal(document)
            held: dict[str, Any] = document.get(MOVED_DOCUMENT) or {}
            return held
        self._check(state_from_json(document, self._where(self._old)))
        without_writer = without(document, "writer")
        file.save(tombstone(self._new, file.epoch, self._parts.clock(), without_writer))
        return without_writer

    def _copy(self, plan: Renamed, state: SourceState) -> None:
        """Step 2."""
        width = self._parts.concurrency
        at, to = StatePaths(self._old), StatePaths(self._new)
        for kind in ("journal", "ledger", "cleaning", "processed", "row_digests"):
            copy_folder(self._sink, getattr(at, kind), getattr(to, kind), width)
        before, after = self._records_of(self._old), self._records_of(self._new)
        copy_folder(self._dlq, before, after, width)
        heads = [*self._heads(plan), (f"{self._dlq.uri}/{before}/", f"{self._dlq.uri}/{after}/")]
        copy_letters(self._dlq, self._old, self._new, heads)
        self._copy_schema(state.source)

    def _copy_schema(self, known: Identity | None) -> None:
        """Copy the inferred columns of the old pipeline, which are the table's."""
        target = schema_path(self._parts.pipeline)
        if known is None or self._sink.stat(target) is not None:
            return
        old = schema_path(known.pipeline)
        if self._sink.stat(old) is not None:
            self._sink.put_atomic(target, self._sink.read(old))

    def _create(self, document: Mapping[str, Any]) -> None:
        """Step 3: the checkpoint under its new id, unless a run that died or is faster made it."""
        if self._document(self._new) is None:
            file = FencedFile(self._sink, checkpoint_path(self._new))
            identity = self._identity_of(self._new, document)
            # Files of running batches are new again. Groups are numbered under the old name.
            kept = without(document, "in_flight", "group_seq")
            moved = move_checkpoint(kept, identity, self._roots_of(self._old, document))
            file.replace(moved, None, self._buried_in() + 1)

    def _require_new_writer(self) -> None:
        """Raise `FencedError` if somebody began anew under the new id meanwhile."""
        found = writer_of(self._document(self._new) or {}, self._where(self._new))
        if found is None or found.epoch <= self._buried_in():
            raise FencedError(
                f"{self._where(self._new)}: another daemon has started under this name; stop that"
                " daemon, move this checkpoint away and run the rename again"
            )

    def _let_go(self) -> None:
        """Step 4; an older checkpoint of the old name is refused from now on, too."""
        document = self._document(self._old)
        if document is not None and MOVED_DOCUMENT in document:
            file = FencedFile(self._sink, checkpoint_path(self._old))
            self._take_over(file, self._old)
            epoch = self._buried_in()
            # First, or nobody would do it who runs this again after a death in between.
            FenceFile(self._sink, self._old).move(document[MOVED_TO])
            file.save(tombstone(document[MOVED_TO], epoch, self._parts.clock(), None))

    # -- another place ---------------------------------------------------------------

    def _readdress(self, plan: Renamed) -> None:
        """Move the state to a new place that has the same files.

        It is fenced before letters are rewritten, so that nobody writes one with the old place
        meanwhile; the checkpoint is saved last, and until then all is done again.
        """
        file = FencedFile(self._sink, checkpoint_path(self._new))
        document = self._take_over(file, self._new)
        self._check(state_from_json(document, self._where(self._new)))
        identity = self._identity_of(self._new, document)
        former = self._roots_of(self._new, document)
        copy_letters(self._dlq, self._new, self._new, self._heads(plan))
        file.save(move_checkpoint(document, identity, former))

    def _heads(self, plan: Renamed) -> list[tuple[str, str]]:
        """Return which beginnings of letters' URIs become which."""
        # The operator's word counts as well: also where the state was taken over before, for
        # letters that somebody who was paused has brought back.
        places = {plan.old_uri, self._moved_from and normalize_uri(self._moved_from)}
        return [(f"{old}/", f"{plan.new_uri}/") for old in places - {None, plan.new_uri} if old]

    # -- what both need --------------------------------------------------------------

    def _take_over(self, file: FencedFile, source_id: str) -> dict[str, Any]:
        """Take over a checkpoint and return its document; if it is missing, write nothing."""

        def fail_if_missing() -> Mapping[str, Any]:
            raise RenameRefused(
                f"{self._where(source_id)} is missing; restore it, then run this again"
            )

        return file.take(lambda found, _where: found, fail_if_missing) or {}

    def _check(self, state: SourceState) -> None:
        """Raise `RenameRefused` unless the state can be taken over as it is."""
        if any(batch.phase == "publishing" for batch in state.work.in_flight):
            raise RenameRefused(
                f"{self._old}: a batch is being published; let the daemon finish it under the old"
                " names (`blizzard run --once`), then run this again"
            )
        known = None if state.source is None else state.source.uri
        uri = self._parts.stores.source.uri
        if self._moved_from is None:
            if known not in {None, uri}:
                raise RenameRefused(
                    f"{self._old} is of the files below {known}, the configuration says {uri}; if"
                    f" these are the same files under the same names, add --moved-from {known}"
                )
            return
        if not self._parts.has_files:
            if known not in {None, uri, self._moved_from}:
                raise RenameRefused(f"{self._old} is of {known} and not of {self._moved_from}")
            return  # that its rows are the same is the operator's word: they have no names
        if known not in {None, uri, normalize_uri(self._moved_from)}:
            raise RenameRefused(
                f"{self._old} is of the files below {known} and not of {self._moved_from}"
            )
        names = newest_done(state)
        source = self._parts.stores.source
        missing = [path for path in names if source.stat(path) is None]
        if missing:
            raise RenameRefused(
                f"{len(missing):,} of the {len(names):,} newest files done are not below {uri},"
                f" among them {', '.join(missing[:_EXAMPLES])}; copy them there, too, or check the"
                " URI: under other names everything would be ingested again"
            )

    def _check_goal(self, buried: Mapping[str, Any]) -> None:
        """Raise `RenameRefused` if a tombstone says that the state moves to another name."""
        if buried[MOVED_TO] != self._new:
            raise RenameRefused(
                f"{self._old} was renamed to {buried[MOVED_TO]} before; use that name's"
                " configuration"
            )

    def _check_groups(self) -> None:
        """Raise `RenameRefused` while groups under the old name are not in the table.

        Committers know of no order between two names, so an older reading could come last.
        """
        newest = GroupManifests(self._sink, self._old).newest()
        applied = applied_groups(self._sink, self._old)
        if newest > applied:
            raise RenameRefused(
                f"{self._old}: it has replacements up to number {newest}, and the table has them"
                f" only up to {applied}. Run Penguin (`penguin status` shows what blocks it), then"
                " give this command again"
            )

    def _roots_of(self, old: str, document: Mapping[str, Any]) -> tuple[str | None, ...]:
        """Return where files and records lay whose names stand in rows of the state's outputs."""
        known = state_from_json(document, self._where(old)).source
        records = f"{self._dlq.uri}/{self._records_of(self._old)}"
        moved = records if self._old != self._new else None
        return (None if known is None else known.uri, moved)

    def _summarize(
        self, document: Mapping[str, Any], *, is_started: bool = False, over: bool = False
    ) -> Renamed:
        source = document.get("source") or {}
        return Renamed(
            self._old,
            self._new,
            source.get("uri"),
            self._parts.stores.source.uri,
            count_below(self._sink, StatePaths(self._old).journal),
            count_below(self._dlq, self._old),
            is_started,
            over,
        )

    def _document(self, source_id: str) -> dict[str, Any] | None:
        return checkpoint.load(self._sink, checkpoint_path(source_id), lambda found, _: found)

    def _identity_of(self, source_id: str, document: Mapping[str, Any]) -> Identity:
        """Return the identity of the state under the new id."""
        known = state_from_json(document, self._where(source_id)).source
        is_moved = self._moved_from is not None
        return move_identity(known, self._parts.identity, is_moved=is_moved)

    def _buried_in(self) -> int:
        """Return the epoch of the tombstone; the new checkpoint begins above it."""
        return tombstone_epoch(self._document(self._old), self._where(self._old))

    @staticmethod
    def _records_of(live_id: str) -> str:
        """Return the folder of single-record files in a source's dead-letter queue."""
        return f"{live_id}~records"

    def _where(self, source_id: str) -> str:
        return f"{self._sink.uri}/{checkpoint_path(source_id)}"
