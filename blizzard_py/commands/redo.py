"""``blizzard redo``: what was published and refused is ingested again."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import click

from blizzard_core.cli import (
    GuidedCommand,
    command,
    config_argument,
    json_option,
    log_level_option,
    print_error,
    print_json,
)
from blizzard_core.redact import redacted
from blizzard_core.signals import INTERRUPTED
from blizzard_core.text import counted, printable
from blizzard_py.app.configuration import load_config
from blizzard_py.app.redo import redo as redo_refused
from blizzard_py.commands.options import source_options
from blizzard_py.commands.replacing import answer_replacement


@click.command(
    cls=GuidedCommand,
    section="Mend",
    examples=(
        "blizzard redo config.yaml --quarantined --dry-run",
        "blizzard redo config.yaml --quarantined",
        "blizzard redo config.yaml --quarantined --pipeline events --source main",
    ),
)
@config_argument
@click.option("--quarantined", is_flag=True, help="What Penguin has in quarantine of our files.")
@source_options(required=False)
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@json_option
@log_level_option
@command
def redo(
    config: Path,
    quarantined: bool,
    pipeline: str | None,
    source: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Ingest the source files of refused Parquet files again, exactly once.

    Mend the configuration or the table first: while the table would refuse the files again
    nothing is done. The refused Parquet files are given up for good (`penguin discard`), and the
    source files they were made of come again; what other Parquet files hold of these is replaced
    in the same commit. It runs beside both daemons; killed at any moment the same command goes
    on. Penguin commits. Exit codes: 0 done or nothing to do, 1 something was refused or failed,
    2 bad configuration, 3 another replay has taken over, 130 interrupted.
    """
    if not quarantined:
        raise click.UsageError("give --quarantined: it is all that can be redone")
    found = redo_refused(config, load_config(config), (pipeline, source), dry_run=dry_run)
    codes = [0, *(error.exit_code for error in found.errors)]
    codes += [INTERRUPTED] if found.interrupted else []
    if as_json:
        sources = [asdict(each) for each in found.done]
        errors = [redacted(str(error)) for error in found.errors]
        print_json({"sources": sources, "errors": errors, "dry_run": dry_run})
        return max((*codes, *(each.replacement.exit_code for each in found.done)))
    if found.interrupted:
        click.echo("Interrupted before all was done: run the same command again.")
    elif not found.done and not found.errors:
        click.echo("Nothing is in quarantine.")
    for each in found.done:
        rows = sum(output.rows for output in each.outputs)
        files = counted(len(each.outputs), "refused Parquet file")
        click.echo(printable(f"{each.source}: {files} with {counted(rows, 'row')}"))
        codes.append(answer_replacement(each.replacement, as_json=False))
    for error in found.errors:
        print_error(str(error))
    return max(codes)
