"""Commands about the cleaning of source files: a preview, and copies back from the archive."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from blizzard_core.errors import ConfigError
from blizzard_core.handover.published import first_name
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import is_same_place
from blizzard_core.storage.protocol import Storage, order_key
from blizzard_core.watermark.name_range import NameRange
from blizzard_py.app.operations import file_sources
from blizzard_py.cleaning.cleaner import FILES_A_READING, Cleaner, CleaningPlaces
from blizzard_py.cleaning.eligible import CleanableFile
from blizzard_py.cleaning.lists import REMEMBERED_SECS, CleaningLists
from blizzard_py.cleaning.removal import copy_file
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.journal import Journal
from blizzard_py.state.source_state import CleaningState, SourceState, under_way

_FORGOTTEN = (
    "it was cleaned more than a year ago, so its name may be forgotten, and it would be ingested"
    " again; copy it to a source of another table"
)


@dataclass(frozen=True, slots=True)
class RestoredFile:
    """A cleaned file, and the ``problem`` why it was not copied back; empty if it was."""

    path: str
    problem: str


def cleaned_sources(
    config: Config, pipeline: str | None, source: str | None
) -> list[SourceContext]:
    """Return the chosen sources with `clean`. Raises `ConfigError` if there are none."""
    problem = "cleans no files; give it a `clean` block"
    return file_sources(config, pipeline, source, lambda files: files.clean, problem)


def preview(parts: SourceContext) -> tuple[CleanableFile, ...]:
    """Return the files that the owner may clean now, at most `FILES_A_READING`. Writes nothing.

    Raises `StateError`, `StorageError`.
    """
    stores, clean = parts.stores, parts.files.clean
    state = read_state(stores.sink, parts.id) or SourceState()
    if clean is None:
        return ()
    cleaner = Cleaner(
        CleaningLists(stores.sink, parts.id),
        Journal(stores.sink, parts.id, parts.concurrency),
        CleaningPlaces(stores.source, stores.archive, clean.put_tag),
        clean.after,
    )
    barred = frozenset(under_way(state.work))
    known = state.cleaning or CleaningState()
    return cleaner.choose(known, parts.clock(), barred, FILES_A_READING).files


def restore(parts: SourceContext, first: str, last: str) -> Iterator[RestoredFile]:
    """Copy archived files between two names back to the source, and yield each.

    Both ends include all names that begin with them. Nothing is ingested by that: the names are
    processed. Raises `ConfigError` without an archive, `StateError`, `StorageError`.
    """
    archive, names = parts.stores.archive, NameRange(first, last)
    if archive is None:
        problem = f"{parts.name} has no archive; set clean.mode: archive and clean.archive_uri"
        raise ConfigError("--restore", [problem])
    since = parts.clock() - REMEMBERED_SECS
    # A file may be in several lists, and in the archive of one of them.
    problems: dict[str, str] = {}
    for made, outcomes in CleaningLists(parts.stores.sink, parts.id).outcomes():
        for path in sorted(filter(names.holds, outcomes), key=order_key):
            if outcomes[path] in {"cleaned", "gone"} and made.archive and problems.get(path) != "":
                problems[path] = (
                    _restore(path, made.archive, archive, parts.stores.source)
                    if made.id >= first_name(since) and made.at >= since
                    else _FORGOTTEN
                )
    for path in sorted(problems, key=order_key):
        yield RestoredFile(path, problems[path])


def _restore(path: str, where: str, archive: Storage, source: Storage) -> str:
    """Copy a file back; return why not, empty if it is there."""
    if not is_same_place(where, archive.uri):
        return f"it is in {where}, and clean.archive_uri is another place"
    if archive.stat(path) is None:
        return f"it is not in {where}" if source.stat(path) is None else ""
    return "" if copy_file(path, archive, source) else "the source has another file of that name"
