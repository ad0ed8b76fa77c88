"""``blizzard rename``: state that survives other names and other places."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import command, json_option, print_json
from blizzard_core.text import printable
from blizzard_py.commands.options import SourceChoice, dry_run_option, source_options

if TYPE_CHECKING:
    from blizzard_py.edits.rename import Renamed


@command(
    section="Repair",
    examples=(
        (
            "blizzard rename config.yaml --from events_main "
            "--pipeline clicks --source main --dry-run"
        ),
        (
            "blizzard rename config.yaml --pipeline events --source main "
            "--moved-from s3://old-bucket/raw"
        ),
    ),
)
@source_options(required=True)
@click.option(
    "--from",
    "old_id",
    metavar="OLD_ID",
    help="Present name of the state: {pipeline}_{source}, or an `id`.",
)
@click.option(
    "--moved-from",
    metavar="OLD_URI",
    help="Old source_uri; the new one has the same files under the same names.",
)
@dry_run_option
@json_option
def rename(
    chosen: SourceChoice,
    old_id: str | None,
    moved_from: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Keep a source's state when its name changes, or its files move.

    CONFIG already has the new names. Checkpoint, journal, ledger and dead letters move to the new
    id, and the old id is closed. A running daemon is fenced. If the command is interrupted, run it
    again. Exit codes: 1 refused, 3 another writer took over.
    """
    from blizzard_py.app import operations
    from blizzard_py.app.event_time import refuse_edit

    loaded, where = chosen.load(), chosen.where
    refuse_edit(loaded, where, "a rename")
    found = operations.rename_of(loaded, where, old_id, moved_from)
    done = found.plan() if dry_run else found.run()
    if as_json:
        print_json({**asdict(done), "dry_run": dry_run})
    else:
        _print(done, dry_run=dry_run)
    return 0


def _print(done: Renamed, *, dry_run: bool) -> None:
    if done.over:
        click.echo(printable(f"{done.old_id} was renamed to {done.new_id} before."))
        return
    if done.begun:
        click.echo("An earlier run has begun this.")
    if done.old_id != done.new_id:
        click.echo(
            printable(
                f"{done.old_id} -> {done.new_id}: {done.journal:,} batches of the journal,"
                f" {done.letters:,} objects of dead letters"
            )
        )
    if done.old_uri not in {None, done.new_uri}:
        click.echo(printable(f"{done.old_uri} -> {done.new_uri}"))
    click.echo("Nothing was written." if dry_run else "Done.")
