"""Guards of the commit: the fence, staging, publishing, dead letters."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any
from unittest import mock

from blizzard_core.checkpoint import fenced_writer
from blizzard_core.checkpoint.fenced_writer import FencedFile
from blizzard_core.checkpoint.writer_identity import Writer
from blizzard_core.storage.protocol import join
from blizzard_core.watermark import progress as watermark
from blizzard_py.dead_letters.writer import DeadLetterWriter
from blizzard_py.ingest import batch_jobs, batch_runner, publish, source_pipeline
from blizzard_py.ingest.batch_runner import BatchRunner
from blizzard_py.sources.files import advance
from blizzard_py.state.batch import PlannedOutput
from blizzard_py.state.state_paths import StatePaths
from tests.simulation.guards.registry import guard, nothing
from tests.simulation.world import SimulatedWorld


@guard("saves replace whatever is there, whoever wrote it")
def fenced_saves(_world: SimulatedWorld) -> Iterator[None]:
    def put(self: Any, document: Any, epoch: int, *, released: bool = False) -> None:
        data = fenced_writer.encode({**document, "writer": self._writer(epoch, released=released)})
        self._storage.put_atomic(self._path, data)

    with mock.patch.object(FencedFile, "_put", put):
        yield


@guard("a refused save is believed without looking whether it was our own")
def read_back(_world: SimulatedWorld) -> Iterator[None]:
    def put(self: Any, document: Any, epoch: int, *, released: bool = False) -> None:
        data = fenced_writer.encode({**document, "writer": self._writer(epoch, released=released)})
        self._version = self._storage.put_if(self._path, data, self._version)

    with mock.patch.object(FencedFile, "_put", put):
        yield


@guard("a start reads the checkpoint and writes nothing before it acts")
def take_over_writes(_world: SimulatedWorld) -> Iterator[None]:
    def take(self: Any, parse: Any, fresh: Any, _least: int = 0) -> Any:
        try:
            raw, self._version = self._storage.read_versioned(self._path)
        except fenced_writer.NotFound:
            self._put(fresh(), 1)
            self._epoch = 1
            return None
        document = fenced_writer.parsed(raw, self._where)
        found = fenced_writer.writer_of(document, self._where) or Writer("", 0)
        self._epoch = found.epoch + 1
        return parse(document, self._where)

    with mock.patch.object(FencedFile, "take", take):
        yield


@guard("what is staged has no epoch in its path, so a start clears what others stage")
def epochs_in_staging(_world: SimulatedWorld) -> Iterator[None]:
    def staging_of(source_id: str, _epoch: int, name: str) -> str:
        return join(StatePaths(source_id).staging, "00000000", name)

    with (
        mock.patch.object(batch_runner, "staging_of", staging_of),
        mock.patch.object(batch_jobs, "staging_of", staging_of),
        mock.patch.object(
            batch_runner,
            "clear_older",
            lambda sink, source_id, _epoch: publish.clear_older(sink, source_id, 1),
        ),
    ):
        yield


@guard("a start clears all that is staged before it has taken the checkpoint over")
def save_before_clearing(_world: SimulatedWorld) -> Iterator[None]:
    real = source_pipeline.SourcePipeline._recover

    def recover(self: Any) -> Any:
        publish.clear_older(self.sink, self.id, 10**7)
        return real(self)

    with mock.patch.object(source_pipeline.SourcePipeline, "_recover", recover):
        yield


@guard("outputs that are neither staged nor published count as published")
def both_missing_is_refused(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(BatchRunner, "_check_published", nothing):
        yield


@guard("what a crash left staged is published under the names it was to have")
def fresh_names_on_recovery(_world: SimulatedWorld) -> Iterator[None]:
    with mock.patch.object(
        batch_runner, "rename_outputs", lambda state, found, _names: (state, found)
    ):
        yield


@guard("after a crash what is staged is taken for published")
def unpublished_is_published(_world: SimulatedWorld) -> Iterator[None]:
    def nothing(_storage: Any, _outputs: list[PlannedOutput], _concurrency: int) -> Any:
        return publish.Unpublished((), ())

    with mock.patch.object(batch_runner, "unpublished", nothing):
        yield


@guard("a batch that crashed before its commit is let go of")
def running_batches_run_again(_world: SimulatedWorld) -> Iterator[None]:
    real = BatchRunner.recover

    def recover(self: Any, state: Any, found: Any) -> Any:
        if found.phase != "running":
            return real(self, state, found)
        left = tuple(b for b in state.work.in_flight if b.batch != found.batch)
        paths = [entry.path for entry in found.files]
        progress = watermark.mark_done(
            state.position.progress, paths, found.seen_ts, advance.hold_all
        )
        return self._save(state.with_work(in_flight=left).with_position(progress=progress))

    with mock.patch.object(BatchRunner, "recover", recover):
        yield


@guard("dead letters are written before the commit point")
def letters_after_the_commit(_world: SimulatedWorld) -> Iterator[None]:
    real = BatchRunner.prepare

    def prepare(self: Any, state: Any, ingesting: Any) -> Any:
        found = real(self, state, ingesting)
        self._records._own.letters.keep(found[1], state.work.retries)
        return found

    with mock.patch.object(BatchRunner, "prepare", prepare):
        yield


@guard("dead letters are not written at all")
def letters_are_durable(_world: SimulatedWorld) -> Iterator[None]:
    def keep(_self: Any, _batch: Any, _retries: Any) -> None:
        return None

    with mock.patch.object(DeadLetterWriter, "keep", keep):
        yield
