"""``blizzard replay --refused``: ingest the source files of refused outputs again.

The journal says which files these are: all that were ingested in a batch of which a committer has
refused an output. Rows of some of them may be in other outputs, which are in the table. So they are
requested with ``replace``, and their present rows leave in the commit that brings all. Where rows
do not name their file, all files of these batches are replaced together.

The steps, and the effect of a death after each:

1. files that cannot be replaced exactly are refused; nothing was written;
2. the committer discards the refused outputs in the table's log: whatever happens to their files
   and to the table, they are never committed. Nothing is requested before that step, since a group
   waits until each output whose rows it replaces is there or discarded. After a death the next run
   begins again, and discarding twice changes nothing. Outputs refused meanwhile are discarded too,
   those refused later by the next run;
3. the files are requested. From the batch's commit on the refused outputs no longer count
   (`blizzard_py.selection.refused`), so nothing is ingested twice.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from blizzard_core.errors import BlizzardError
from blizzard_core.handover.quarantine import MISSING
from blizzard_core.settings.document import Config
from blizzard_core.signals import INTERRUPTED
from blizzard_core.storage.opening import normalize_uri
from blizzard_core.storage.protocol import order_key
from blizzard_py.app.operations import sources_of
from blizzard_py.app.reingest import ReingestResult, bring
from blizzard_py.app.request_selector import REPLACED_AT_MOST
from blizzard_py.app.submit import RequestOrder, Waits
from blizzard_py.app.validation import validate_pipelines
from blizzard_py.app.wiring import context_of
from blizzard_py.edits.rebuild.evidence import Evidence
from blizzard_py.selection.refused import RefusedOutput, refused_outputs, replaced_outputs
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.earlier_batches import earlier_of
from blizzard_py.sources.files.earlier import EarlierBatches
from blizzard_py.sources.story import way_out
from blizzard_py.state.checkpoint_file import read_state
from blizzard_py.state.record_names import is_short

# So many ids a call names: a command line is not endless.
_IDS_AT_ONCE = 200
# How many files a refusal names.
_EXAMPLES = 5


class RefusedFilesRefused(BlizzardError):
    """Refused rows cannot be replaced exactly; nothing was changed. The message has a remedy."""


@dataclass(frozen=True, slots=True)
class RefusedFiles:
    """The refused outputs of one source, and the outcomes of their files."""

    source: str
    outputs: tuple[RefusedOutput, ...]
    brought: ReingestResult


def bring_refused(
    path: Path,
    config: Config,
    names: tuple[str | None, str | None],
    why: str,
    waits: Waits | None,
) -> tuple[list[RefusedFiles], list[BlizzardError]]:
    """Ingest the files of refused outputs again, for the sources with these names.

    Without ``waits`` only show them. A source fails alone if nothing of it can be replaced exactly,
    or if its configuration still gives what the table refuses. After a signal nothing more is
    requested.
    """
    done: list[RefusedFiles] = []
    errors: list[BlizzardError] = []
    for where in sources_of(config, *names):
        if any(_is_interrupted(each) for each in done):
            reason = "interrupted before it was looked at; give the command again"
            errors.append(RefusedFilesRefused(f"{'/'.join(where)}: {reason}"))
            continue
        try:
            found = _bring_refused(path, config, where, why, waits)
        except BlizzardError as error:
            errors.append(error)
        else:
            done += [] if found is None else [found]
    return done, errors


def _is_interrupted(found: RefusedFiles) -> bool:
    request = found.brought.request
    return request is not None and request.exit_code == INTERRUPTED


def _bring_refused(
    path: Path, config: Config, where: tuple[str, str], why: str, waits: Waits | None
) -> RefusedFiles | None:
    live = context_of(config, where)
    _check_mended(config, where, live)
    _check_journal(live)
    give_up = partial(_give_up, path, _table_of(config, where[0]))
    # Refused only after the batch that replaces it was committed, whose group waits for it.
    late = [] if waits is None else replaced_outputs(live)
    if late:
        give_up([output.output_id for output in late])
    outputs = refused_outputs(live)
    if not outputs:
        return None
    result = bring(config, where, order_of(live, outputs, why), None)
    if waits is None:
        return RefusedFiles(live.name, tuple(outputs), result)
    outputs = give_up_all(live, outputs, give_up)
    return RefusedFiles(
        live.name, tuple(outputs), bring(config, where, order_of(live, outputs, why), waits)
    )


def give_up_all(
    live: SourceContext, outputs: list[RefusedOutput], give_up: Callable[[Sequence[str]], None]
) -> list[RefusedOutput]:
    """Give up all that is refused, also what the committer refuses while it does that."""
    given: set[str] = set()
    while True:
        fresh = [output.output_id for output in outputs if output.output_id not in given]
        if not fresh:
            return outputs
        give_up(fresh)
        given.update(fresh)
        outputs = refused_outputs(live) or outputs


def order_of(live: SourceContext, outputs: Sequence[RefusedOutput], why: str = "") -> RequestOrder:
    """Return the request for the present files. Raises `RefusedFilesRefused`."""
    if not live.can_reingest:
        raise RefusedFilesRefused(f"{live.name}: {outputs[0].path}: {way_out(live)}")
    paths = _company(live, {path for output in outputs for path in output.files})
    missing = [path for path in paths if is_short(path) or live.stores.source.stat(path) is None]
    if missing:
        more = f" and {len(missing) - _EXAMPLES:,} more" if len(missing) > _EXAMPLES else ""
        raise RefusedFilesRefused(
            f"{live.name}: {len(missing):,} of the files whose rows were refused, or lie in"
            f" the same outputs, are gone from {live.stores.source.uri}:"
            f" {', '.join(missing[:_EXAMPLES])}{more}. Bring them back under these names; or mend"
            " the table, and replace the Parquet file by one that fits"
        )
    return RequestOrder(
        "reingest", {"files": paths}, {"mode": "replace"}, why or "refused by Penguin"
    )


def _company(live: SourceContext, paths: set[str]) -> list[str]:
    """Return the paths with those that have to come along, in order."""
    while len(paths) <= REPLACED_AT_MOST:
        found = EarlierBatches(live, paths).look()
        _, lacking = earlier_of(sorted(paths), found)
        if paths.issuperset(lacking.files):
            break
        paths = paths.union(lacking.files)
    return sorted(paths, key=order_key)


def _check_mended(config: Config, where: tuple[str, str], live: SourceContext) -> None:
    """Raise `ConfigError` if the files would be refused again."""
    if live.can_reingest and refused_outputs(live):
        pipelines = {where[0]: config.pipelines[where[0]]}
        validate_pipelines(config.model_copy(update={"pipelines": pipelines}))


def _check_journal(live: SourceContext) -> None:
    """Raise `RefusedFilesRefused` for outputs that are gone if the journal is not the table's own.

    Such outputs were published to another table or at another moment. Other batches may have
    brought their rows into this table, and the journal would not know.
    """
    if not live.can_reingest:
        return
    missing = [output for output in refused_outputs(live) if output.stage == MISSING]
    if not missing:
        return
    doubt = next(Evidence(live, read_state(live.stores.sink, live.id)).unknown_work(), None)
    if doubt is not None:
        raise RefusedFilesRefused(
            f"{live.name}: the journal says that {missing[0].path} was published, and it is"
            f" missing. But {doubt}, which the journal does not know. So _blizzard is of another"
            " table or another moment, and rows would come twice. Restore _blizzard and"
            " _blizzard_fence of this table"
        )


def _table_of(config: Config, pipeline: str) -> str:
    """Return what Penguin calls a pipeline's table. Raises `RefusedFilesRefused`."""
    uri = normalize_uri(config.pipelines[pipeline].sink.table_uri)
    if not config.tables:
        return pipeline
    for name, table in config.tables.items():
        if normalize_uri(table.table_uri) == uri:
            return name
    raise RefusedFilesRefused(
        f"pipelines.{pipeline}: {uri} is not among the tables of this configuration, so its Penguin"
        " cannot be told that outputs are given up; name it under `tables`"
    )


def _give_up(path: Path, table: str, outputs: Sequence[str]) -> None:
    """Have Penguin record the outputs as discarded in the log, which only Penguin writes.

    Ctrl-C ends only this process, which lets Penguin finish in its own process group.
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
            reason = done.stderr.strip() or f"it ended with {done.returncode}"
            raise BlizzardError(f"`penguin discard` did not give the outputs up: {reason}")
