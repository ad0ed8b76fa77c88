"""``blizzard redo``, wired: Blizzard's files, and what Penguin says of the table."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

from blizzard_core.errors import BlizzardError
from blizzard_core.handover.quarantine import MISSING
from blizzard_core.settings.document import Config
from blizzard_core.storage.opening import normalize_uri
from blizzard_py.app.operations import draining, live_parts, never, sources_of
from blizzard_py.app.validation import validate_pipelines
from blizzard_py.app.wiring import NoEngine
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.job import Engine
from blizzard_py.replay import Drain, Replacing, file_parts
from blizzard_py.replay.redoing import Redoing, Redone, RedoRefused
from blizzard_py.replay.refused import refused_outputs
from blizzard_py.sources.parts import Parts
from blizzard_py.state.checkpoint_file import read_state

_REMEDY = "choose files with `blizzard backfill --replace`, --from and --to"

# So many ids a call names: a command line is not endless.
_IDS_AT_ONCE = 200


@dataclass(frozen=True, slots=True)
class Redo:
    """The results of a redo, source by source, its failures and its exit code.

    ``interrupted``: a signal came before all sources were looked at.
    """

    done: tuple[Redone, ...]
    errors: tuple[BlizzardError, ...]
    interrupted: bool = False


def redo(
    path: Path, config: Config, names: tuple[str | None, str | None], *, dry_run: bool
) -> Redo:
    """Ingest again what a committer has refused, of the sources that the names choose.

    A source of which nothing can be redone exactly, or whose configuration still gives what the
    table does not take, costs itself alone.
    """
    done: list[Redone] = []
    errors: list[BlizzardError] = []
    interrupted = False
    chosen = sources_of(config, *names)
    with ExitStack() as stack:
        running = None if dry_run else stack.enter_context(draining(config, "blizzard-redo"))
        for where in chosen:
            if running is not None and running[2].is_set():
                interrupted = True
                break
            engine, drain = (NoEngine(), never) if running is None else running[:2]
            try:
                redoing = _redoing(path, config, where, engine, drain)
                _check_mended(config, where, redoing.live)
                _check_journal(redoing.live)
                found = redoing.preview() if dry_run else redoing.run()
            except BlizzardError as error:
                errors.append(error)
            else:
                done += [] if found is None else [found]
    return Redo(tuple(done), tuple(errors), interrupted)


def _check_mended(config: Config, where: tuple[str, str], live: Parts) -> None:
    """Raise `ConfigError` if the files would be refused again."""
    if live.has_files and live.event_time is None and refused_outputs(live):
        pipelines = {where[0]: config.pipelines[where[0]]}
        validate_pipelines(config.model_copy(update={"pipelines": pipelines}))


def _check_journal(live: Parts) -> None:
    """Raise `RedoRefused` for outputs that are gone if the journal is not the table's own.

    They were published to another table then, or at another moment, and this one may have the rows
    of their files by batches of which that journal knows nothing.
    """
    if not live.has_files or live.event_time is not None:
        return
    gone = [output for output in refused_outputs(live) if output.stage == MISSING]
    if not gone:
        return
    doubt = next(Evidence(live, read_state(live.stores.sink, live.id)).unknown_work(), None)
    if doubt is not None:
        raise RedoRefused(
            f"{live.name}: {gone[0].path} was published by the journal and is gone, but {doubt}, of"
            " which the journal does not know: _blizzard is of another table or another moment, and"
            " rows would come twice. Put _blizzard and _blizzard_fence of this table back"
        )


def _redoing(
    path: Path, config: Config, where: tuple[str, str], engine: Engine, drain: Drain
) -> Redoing:
    live = live_parts(config, where)

    def give_up(outputs: Sequence[str]) -> None:
        _give_up(path, _table_of(config, where[0]), outputs)

    return Redoing(live, Replacing(live, file_parts(live, engine), drain, _REMEDY), give_up)


def _table_of(config: Config, pipeline: str) -> str:
    """Return what Penguin calls a pipeline's table. Raises `RedoRefused`."""
    uri = normalize_uri(config.pipelines[pipeline].sink.table_uri)
    if not config.tables:
        return pipeline
    for name, table in config.tables.items():
        if normalize_uri(table.table_uri) == uri:
            return name
    raise RedoRefused(
        f"pipelines.{pipeline}: {uri} is not among the tables of this configuration, so its Penguin"
        " cannot be told that outputs are given up; name it under `tables`"
    )


def _give_up(path: Path, table: str, outputs: Sequence[str]) -> None:
    """Have Penguin put it on record in the log, where nobody else writes.

    Ctrl-C is ours alone, which lets it finish: it has a process group of its own.
    """
    for first in range(0, len(outputs), _IDS_AT_ONCE):
        some = outputs[first : first + _IDS_AT_ONCE]
        options = [f"--output={output}" for output in some]
        command = [sys.executable, "-m", "penguin_py", "discard", str(path), f"--table={table}"]
        done = subprocess.run(  # noqa: S603  # our own module, and no shell
            [*command, *options],
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            check=False,
            process_group=0,
        )
        if done.returncode:
            told = done.stderr.strip() or f"it ended with {done.returncode}"
            raise BlizzardError(f"`penguin discard` did not give the outputs up: {told}")
