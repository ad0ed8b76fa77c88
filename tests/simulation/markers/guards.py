"""Guards of complete partitions, as a million schedules find them."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from dataclasses import replace
from typing import Any
from unittest import mock

from blizzard_py.app import certificates as consumer
from blizzard_py.ingest import completion_mirror
from blizzard_py.ingest.completion_mirror import CompletionMirror
from penguin_py import certificates as producer
from penguin_py.certificates import Certificates
from tests.simulation.guards import certificates
from tests.simulation.guards.registry import always
from tests.simulation.markers.blizzard import LateFilesByJournal


@contextmanager
def markers_are_read_again() -> Iterator[None]:
    """Penguin looks for a partition's marker once, whatever other Penguins write."""
    real = Certificates._marker

    def marker(self: Any, name: str, partition: str) -> Any:
        seen = self.__dict__.setdefault("seen", {})
        if partition not in seen:
            seen[partition] = real(self, name, partition)
        return seen[partition]

    with mock.patch.object(Certificates, "_marker", marker):
        yield


@contextmanager
def absent_markers_are_read_again() -> Iterator[None]:
    """Penguin looks once for the marker of a partition, revoked or waiting, that has none."""

    def once(completion: Any, read: Any) -> bool:
        return read is None or read[0] != completion

    with mock.patch.object(producer, "_may_be_new", once):
        yield


@contextmanager
def markers_name_their_log() -> Iterator[None]:
    """`wait` believes a marker of a log that is gone."""
    with mock.patch.object(consumer, "_is_in_log", always):
        yield


@contextmanager
def open_partitions_are_mirrored() -> Iterator[None]:
    """The mirror has no partition that was never complete."""
    real = completion_mirror.completions_of

    def completions_of(known: Any, epoch: int) -> Any:
        found = real(known, epoch)
        kept = {p: c for p, c in found.partitions.items() if c.complete_ts or c.revoked_by}
        return replace(found, partitions=kept)

    with mock.patch.object(completion_mirror, "completions_of", completions_of):
        yield


@contextmanager
def partitions_are_listed() -> Iterator[None]:
    """A partition is complete without a list of what lies below its scan start."""

    def find_late(_self: Any, state: Any, *_more: Any) -> Any:
        return state, False

    with mock.patch.object(LateFilesByJournal, "find_late", find_late):
        yield


@contextmanager
def mirror_is_noted_before_take_overs() -> Iterator[None]:
    """A take-over replaces the mirror as it finds it then, which a successor may have written."""
    real = CompletionMirror.take

    def take(self: Any, complete: Any, epoch: int) -> None:
        _, self._version = self._read()
        real(self, complete, epoch)

    with mock.patch.object(CompletionMirror, "take", take):
        yield


def _shared(patch: Callable[[Any], AbstractContextManager[Any]]) -> Callable[[], Any]:
    return lambda: patch(None)


GUARDS: dict[str, Callable[[], AbstractContextManager[Any]]] = {
    "outputs_before_markers": _shared(certificates.outputs_before_markers),
    "revocations_after_scan": _shared(certificates.revocations_after_scan),
    "revocations_before_outputs": _shared(certificates.revocations_before_outputs),
    "markers_are_read_again": markers_are_read_again,
    "absent_markers_are_read_again": absent_markers_are_read_again,
    "markers_name_their_log": markers_name_their_log,
    "open_partitions_are_mirrored": open_partitions_are_mirrored,
    "partitions_are_listed": partitions_are_listed,
    "mirror_is_noted_before_take_overs": mirror_is_noted_before_take_overs,
}
