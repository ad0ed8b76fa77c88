"""``blizzard checkpoint``: show and change a source's state."""

from __future__ import annotations

import json
import time
from collections.abc import Callable
from contextlib import closing
from functools import partial
from typing import TYPE_CHECKING, Any

import click

from blizzard_core.cli import GuidedGroup, json_option, print_json
from blizzard_py.commands.checkpoint_history import diff, log, rollback
from blizzard_py.commands.options import (
    SourceChoice,
    confirm,
    dry_run_option,
    print_changed,
    source_options,
    why_option,
    yes_option,
)

if TYPE_CHECKING:
    from blizzard_core.settings.document import Config
    from blizzard_py.ingest.source_view import SourceView
    from blizzard_py.state.source_state import SourceState

    StateEdit = Callable[[SourceState], SourceState]


@click.group(
    cls=GuidedGroup,
    section="Repair",
    examples=(
        "blizzard checkpoint show config.yaml --pipeline events --source main",
        (
            "blizzard checkpoint set config.yaml --pipeline events --source main "
            "--partition date=2024-01-28 --watermark 1706450400-a.ndjson.gz --dry-run"
        ),
    ),
)
def checkpoint() -> None:
    """Show, edit, reset, rebuild or roll back a source's saved state."""


for _command in (log, diff, rollback):
    checkpoint.add_command(_command)


@checkpoint.command(
    "show",
    examples=("blizzard checkpoint show config.yaml --pipeline events --source main",),
)
@source_options(required=True)
@json_option
def show(chosen: SourceChoice, as_json: bool) -> int:
    """Show the complete state of one source. Writes nothing."""
    from blizzard_py.app.wiring import owner_context
    from blizzard_py.commands.checkpoint_output import print_state
    from blizzard_py.edits.checkpoint_store import CheckpointStore

    owner = owner_context(chosen.load(), chosen.where)
    store = CheckpointStore(owner.stores.sink, owner.id)
    seen, where = store.load(), store.where
    copies = [each.entry.path for each in store.copies()]
    if as_json:
        print_json({"uri": where, "checkpoint": seen.document, "backups": copies})
    else:
        print_state(where, seen, copies)
    return 0


@checkpoint.command(
    "set",
    examples=(
        (
            "blizzard checkpoint set config.yaml --pipeline events --source main "
            "--partition date=2024-01-28 --watermark 1706450400-a.ndjson.gz --dry-run"
        ),
        (
            "blizzard checkpoint set config.yaml --pipeline events --source main "
            "--partition date=2024-01-28 --watermark ''     # ingest the partition again"
        ),
    ),
)
@source_options(required=True)
@click.option("--partition", default="", help="The partition, if the source has any.")
@click.option(
    "--watermark",
    metavar="NAME",
    help="Last name done, relative to the partition; '' for none.",
)
@click.option(
    "--column",
    "columns",
    multiple=True,
    metavar="NAME=JSON",
    help="For a table or an API: a column's value, as `checkpoint show` prints it; repeatable.",
)
@click.option("--unit", metavar="NAME", help="For work units: name, as `blizzard plan` shows it.")
@click.option("--high", metavar="TIME", help="With --unit: its high watermark, or none.")
@why_option
@yes_option
@dry_run_option
def set_watermark(
    chosen: SourceChoice,
    partition: str,
    watermark: str | None,
    columns: tuple[str, ...],
    unit: str | None,
    high: str | None,
    why: str,
    yes: bool,
    dry_run: bool,
) -> int:
    """Move a partition's watermark: everything up to NAME counts as done.

    For a table or an API use --column, once for each column; for work units use --unit and --high
    (`none` reads the unit again as a whole).

    Forward, files in between are skipped; back, they are ingested again. The effect on present
    files is shown first. A running daemon stops with exit code 3; start it again afterwards.
    """
    from blizzard_py.app import unit_operations
    from blizzard_py.app.operations import watermark_columns
    from blizzard_py.edits import checkpoint_edit

    if (unit is None) != (high is None) or (unit and (watermark is not None or columns)):
        raise click.UsageError("--unit and --high go together, and with neither of the others")
    if unit is None and (watermark is None) == (not columns):
        raise click.UsageError("give --watermark for files, or --column for a table or an API")
    values = dict(map(_column_value, columns))
    loaded, where = chosen.load(), chosen.where
    names = watermark_columns(loaded, where) if columns else ()

    def edit_of(found: SourceView) -> StateEdit:
        if unit is not None and high is not None:
            return unit_operations.high_edit(found, unit, high)
        if watermark is None:
            return partial(checkpoint_edit.set_columns, watermark=values, names=names)
        below = partition.strip("/")
        checkpoint_edit.require_known(found, below)
        return partial(checkpoint_edit.with_watermark, partition=below, name=watermark)

    return _edit(loaded, where, edit_of, why, yes=yes, dry_run=dry_run)


def _column_value(given: str) -> tuple[str, Any]:
    """``updated_at={"__datetime__": "…"}``; a text that is no JSON is taken for itself."""
    from blizzard_py.sources.tables.windows import from_stored, to_stored

    name, equals, text = given.partition("=")
    if not equals or not name:
        raise click.UsageError(f"--column {given!r} must be NAME=JSON")
    try:
        value = json.loads(text)
    except ValueError:
        value = text
    # Refuse a value that the checkpoint cannot store.
    return name, to_stored(from_stored({name: value}))[name]


@checkpoint.command(
    "reset",
    examples=(
        "blizzard checkpoint reset config.yaml --pipeline events --source main --dry-run",
        (
            "blizzard checkpoint reset config.yaml --pipeline pages --source web --event-time"
            " --dry-run"
        ),
    ),
)
@source_options(required=True)
@click.option("--units", is_flag=True, help="Start work units over, as configured now.")
@click.option("--adopt", is_flag=True, help="With --units: keep rows that belong to no unit.")
@click.option("--event-time", "windows", is_flag=True, help="Drop open windows and keys only.")
@why_option
@yes_option
@dry_run_option
def reset(
    chosen: SourceChoice,
    units: bool,
    adopt: bool,
    windows: bool,
    why: str,
    yes: bool,
    dry_run: bool,
) -> int:
    """Start a source over, as if nothing had been ingested.

    The table keeps its rows, so they come twice unless you delete them. A running daemon stops with
    exit code 3.

    For a source of work units, the first reading afterwards replaces everything that the source has
    published; rows are missing until their units are read again.

    For a pipeline over event time only the query's state can be reset (--event-time): open windows
    are never published, and the query may change. Files stay done, and the watermark stays.
    """
    from blizzard_py.app.configuration import source_of
    from blizzard_py.commands.event_time import forget
    from blizzard_py.edits import checkpoint_edit, unit_edits

    loaded, where = chosen.load(), chosen.where
    edit: StateEdit = checkpoint_edit.reset
    if adopt and not units:
        raise click.UsageError("--adopt goes with --units")
    if windows:
        if units:
            raise click.UsageError("--event-time goes without --units")
        return forget(loaded, where, why, yes=yes, dry_run=dry_run)
    if units:
        if not source_of(loaded, where).is_by_units:
            raise click.UsageError("--units is for sources with `units:`")
        edit = partial(unit_edits.start_over, adopt=adopt)
    return _edit(loaded, where, lambda _found: edit, why, yes=yes, dry_run=dry_run)


@checkpoint.command(
    "rebuild",
    examples=(
        "blizzard checkpoint rebuild config.yaml --pipeline events --source main --dry-run",
        (
            "blizzard checkpoint rebuild config.yaml --pipeline events --source main "
            "--done-before date=2024-01-28"
        ),
    ),
)
@source_options(required=True)
@click.option(
    "--done-before",
    metavar="PARTITION_OR_PATH",
    help="Declare every file below it done, where no evidence exists.",
)
@yes_option
@dry_run_option
@json_option
def rebuild(
    chosen: SourceChoice,
    done_before: str | None,
    yes: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Rebuild a lost or damaged checkpoint from the journal, the ledger and the table.

    These say which files are done; all others at the source are new. Unfinished batches are
    published, or their files are retried or dead-lettered, so that no row comes twice. For a query
    over event time, its saved state stays, and files that the checkpoint has passed are done. Stop
    the daemon first; a running one is fenced. Exit code 1: the evidence is not sufficient.
    """
    from blizzard_py.app.wiring import owner_context
    from blizzard_py.commands.checkpoint_output import print_rebuilt, rebuilt_document
    from blizzard_py.edits.rebuild import Rebuild

    if as_json and not (yes or dry_run):
        raise click.UsageError(
            "--json cannot ask for a confirmation; add --dry-run, or --yes to confirm"
        )
    owner = owner_context(chosen.load(), chosen.where)
    found = Rebuild(owner, chosen.where[1])
    rebuilt = found.plan(done_before)
    if as_json:
        backup = None if dry_run else found.write(rebuilt)
        print_json({**rebuilt_document(rebuilt), "dry_run": dry_run, "backup": backup})
        return 0
    print_rebuilt(rebuilt)
    confirm("/".join(chosen.where), yes=yes, dry_run=dry_run)
    print_changed("Rebuilt.", owner.stores.sink, found.write(rebuilt))
    return 0


def _edit(
    config: Config,
    where: tuple[str, str],
    edit_of: Callable[[SourceView], StateEdit],
    why: str,
    *,
    yes: bool,
    dry_run: bool,
) -> int:
    from blizzard_py.app.event_time import refuse_edit
    from blizzard_py.app.wiring import context_of, view_of
    from blizzard_py.commands.checkpoint_output import print_effect
    from blizzard_py.edits import checkpoint_edit

    refuse_edit(config, where, "an edited checkpoint")
    with closing(view_of(context_of(config, where))) as found:
        edit = edit_of(found)
        seen = checkpoint_edit.read_checkpoint(found)
        after = edit(seen.state)
        checkpoint_edit.require_not_publishing(found, seen.state)
        print_effect(found, seen.state, after)
        confirm(found.name, yes=yes, dry_run=dry_run)
        backup = checkpoint_edit.change(found, seen, edit, time.time(), why.strip())
        print_changed("Changed.", found.sink, backup)
        return 0
