"""Guards of complete partitions."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from blizzard_py.ingest.completion_mirror import CompletionMirror
from penguin_py.certificates import Certificates
from tests.simulation.guards.registry import guard, nothing
from tests.simulation.world import SimulatedWorld


@guard("Penguin writes a marker for a completion without a look whether its outputs are in")
def outputs_before_markers(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(Certificates, "_missing", nothing):
        yield


@guard("Penguin looks for revocations when it is idle, and not behind its scan")
def revocations_after_scan(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(Certificates, "revoke", nothing):
        yield


@guard("a revocation is mirrored at the next start, and not before the outputs are published")
def revocations_before_outputs(_world: SimulatedWorld) -> Iterator[None]:
    real = CompletionMirror.write

    def write(self: Any, complete: Any, epoch: int) -> None:
        begun = complete is not None and any(
            each.completion.revoked_by for each in complete.partitions.values()
        )
        if not begun or not self._written:
            real(self, complete, epoch)

    with mock.patch.object(CompletionMirror, "write", write):
        yield
