"""The replicas of a configuration: its group, its units, and what it refuses."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from importlib.metadata import version

from blizzard_core.checkpoint.writer_identity import this_process
from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config, ReplicaSettings
from blizzard_core.storage.opening import open_storage
from blizzard_py import metrics
from blizzard_py.app.replica_worker import REASONS, ReplicaWorker
from blizzard_py.app.request_effects import fingerprint_of
from blizzard_py.app.workers import source_pipeline
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.replicas.assignment import units_of
from blizzard_py.replicas.membership import Membership, new_replica
from blizzard_py.sources.context import SourceContext


@dataclass(frozen=True, slots=True)
class Sharing:
    """The membership of a process in a group, and its workers of sources."""

    membership: Membership
    workers: list[ReplicaWorker]


def check_replicas(config: Config, *, once: bool = False, take_over: bool = False) -> None:
    """Raise `ConfigError` where replicas would not be safe, or an option contradicts them."""
    if config.global_.replicas is None:
        return
    problems = []
    if once:
        problems.append("--once ends by itself, so it shares nothing; run it without replicas")
    if take_over:
        problems.append("--take-over is not for replicas, which take over by themselves")
    if problems:
        raise ConfigError("global.replicas", problems)


def share_sources(
    settings: ReplicaSettings, workers: Sequence[SourcePipeline], *, fresh: bool
) -> Sharing:
    """Return workers that share the sources of ``workers`` with other replicas. Opens nothing."""
    units = units_of((worker.name, _queue_of(worker.parts)) for worker in workers)
    own = new_replica(this_process().host, _digest(workers, units, settings.advanced.lease))
    storage = open_storage(settings.uri, settings.advanced.storage_options)
    membership = Membership(storage, own, units, settings.advanced.lease)
    for reason in REASONS:
        metrics.HANDOVERS.labels(reason)
    return Sharing(
        membership,
        [
            ReplicaWorker(
                partial(source_pipeline, worker.parts, fresh=fresh, replica_id=own.id), membership
            )
            for worker in workers
        ],
    )


def _queue_of(parts: SourceContext) -> str | None:
    files = parts.source.as_files
    return None if files is None or files.notifications is None else files.notifications.uri


def _digest(workers: Sequence[SourcePipeline], units: Mapping[str, str], lease: float) -> str:
    """Return a digest of the release and of all that decides rows or who works; of no secret.

    Replicas with the same digest must agree on the assignment: a source that each of two assigns to
    the other one would be nobody's. So names, units, places and the lease belong to it.
    """
    found = sorted(
        (each.name, each.id, fingerprint_of(each), each.stores.source.uri, each.stores.sink.uri)
        for worker in workers
        for each in worker.each
    )
    document = json.dumps(
        [version("blizzard-penguin"), lease, sorted(units.items()), found]
    ).encode()
    return hashlib.sha256(document).hexdigest()[:8]
