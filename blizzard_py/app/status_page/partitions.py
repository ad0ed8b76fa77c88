"""Partitions of a source by the state of their files, from its newest batches. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any, Literal, TypeAlias

from blizzard_core.storage.protocol import order_key
from blizzard_core.text import printable
from blizzard_py.state.journal import BatchDocument
from blizzard_py.state.record_names import is_of_records

# The newest so many partitions are shown.
PARTITIONS = 240
# Of one batch, so many partitions and files that were not ingested are counted.
_EACH = 1_000

State = Literal["rejected", "dead-lettered", "late", "missing", "waiting", "ingested"]
_STATES: Mapping[str, State] = {
    "ingested": "ingested",
    "quarantined": "dead-lettered",
    "reported": "late",
    "missing": "missing",
}
# The number of files of a partition in each state, and the latest of them.
Counts: TypeAlias = dict[str, dict[State, tuple[int, str]]]


def folder_of(path: str) -> str:
    """Return the partition of a file's path."""
    return path.rpartition("/")[0]


def count_files(batch: BatchDocument) -> Counts:
    """Return the files of a batch by partition and state."""
    found: Counts = {}
    for file in batch.files:
        state = _STATES.get(file.outcome)
        if state is not None and not is_of_records(file.path):
            _add(found, state, file.path)
    return found


def _add(found: Counts, state: State, path: str, count: int = 1) -> None:
    folder = folder_of(path)
    if folder in found or len(found) < _EACH:
        states = found.setdefault(folder, {})
        states[state] = (states.get(state, (0, ""))[0] + count, path)


def failed_paths(batch: BatchDocument) -> dict[str, State]:
    """Return the files of a batch that were not ingested."""
    failed = (
        (file.path, state)
        for file in batch.files
        if (state := _STATES.get(file.outcome)) is not None and state != "ingested"
    )
    return dict(list(failed)[:_EACH])


def merge(
    batches: Iterable[tuple[Counts, Mapping[str, State], Collection[str], bool]],
) -> Counts:
    """Return the sum of batches, the newest first.

    Of each are given the counts, its failed files, the files that it brought by request, and
    whether Penguin has rejected any of its output. A file that a later batch has brought counts
    there only.
    """
    found: Counts = {}
    brought: set[str] = set()
    for counts, failed, ingested, is_rejected in batches:
        mended = Counter(
            (folder_of(path), state) for path, state in failed.items() if path in brought
        )
        for folder, states in counts.items():
            for state, (count, path) in states.items():
                gone = mended[folder, state]
                if count > gone:
                    rejected = is_rejected and state == "ingested"
                    _put(found, folder, "rejected" if rejected else state, count - gone, path)
        brought.update(ingested)
    return found


def _put(found: Counts, folder: str, state: State, count: int, path: str) -> None:
    states = found.setdefault(folder, {})
    known, latest = states.get(state, (0, path))
    states[state] = (known + count, latest)


def shown_partitions(found: Counts, place: str) -> dict[str, Any]:
    """Return the newest partitions for the page; ``uri`` is a file that explains the state."""
    names: Sequence[str] = sorted(found, key=order_key)[-PARTITIONS:]
    return {
        "more": len(found) - len(names),
        "list": [
            {
                "name": printable(name),
                "states": {
                    state: {"files": count, "uri": printable(f"{place}/{path}")}
                    for state, (count, path) in found[name].items()
                },
            }
            for name in names
        ],
    }
