"""``blizzard ingest``: single files, whatever they are called."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

from blizzard_core.cli import (
    GuidedCommand,
    command,
    config_argument,
    json_option,
    log_level_option,
    print_json,
    print_table,
)
from blizzard_core.signals import INTERRUPTED
from blizzard_core.text import are, counted
from blizzard_py.app import operations
from blizzard_py.app.configuration import load_config
from blizzard_py.commands.options import source_options
from blizzard_py.replay import Given


@click.command(
    cls=GuidedCommand,
    section="Mend",
    examples=(
        "blizzard ingest config.yaml s3://raw/events/date=2024-01-28/late.ndjson.gz --dry-run",
        "blizzard ingest config.yaml s3://raw/events/date=2024-01-28/late.ndjson.gz",
        "blizzard ingest config.yaml ./raw/_hidden/1.txt ./raw/2.ndjson --json | jq .files",
    ),
)
@config_argument
@click.argument("uris", metavar="URI...", nargs=-1, required=True)
@source_options(required=False)
@click.option(
    "--insist",
    is_flag=True,
    help="Also files of which nobody knows whether their rows are in: look there first.",
)
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@json_option
@log_level_option
@command
def ingest(
    config: Path,
    uris: tuple[str, ...],
    pipeline: str | None,
    source: str | None,
    insist: bool,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Ingest the files at the URIs exactly once, whatever their names, beside the daemon.

    Late files, hidden ones, other endings, closed partitions: all are taken. They must
    lie below a source's root. A file that a daemon has still to do is left to it, one
    whose rows are in is refused, but done where an earlier run of this command brought them.
    Killed at any moment, the same command goes on where it was. Exit codes: 0 all are in or
    left to the daemon, 1 some are missing, refused or were given up, 2 bad configuration or
    usage, 3 another replay has taken over, 130 interrupted.
    """
    loaded = load_config(config)
    found = operations.ingest(loaded, uris, (pipeline, source), insist=insist, dry_run=dry_run)
    if as_json:
        print_json(_document(found))
    else:
        _print(found, dry_run=dry_run)
    return max((given.exit_code for given in found.values()), default=0)


def _document(found: dict[tuple[str, str], Given]) -> dict[str, Any]:
    return {
        "files": [
            {"source": "/".join(where), **asdict(told)}
            for where, given in found.items()
            for told in given.files
        ],
        "rows": sum(given.rows for given in found.values()),
        "exit_code": max((given.exit_code for given in found.values()), default=0),
    }


def _print(found: dict[tuple[str, str], Given], *, dry_run: bool) -> None:
    told = [("/".join(where), file) for where, given in found.items() for file in given.files]
    print_table(
        ("source", "file", "state", "why"),
        ([name, file.path, file.state, file.reason] for name, file in told),
    )
    if any(given.exit_code == INTERRUPTED for given in found.values()):
        click.echo("Interrupted before all was done: run the same command again.")
    if not dry_run:
        states = Counter(file.state for _, file in told)
        rows = sum(given.rows for given in found.values())
        files = counted(states["ingested"], "file")
        click.echo(f"{counted(rows, 'row')} of {files} {are(rows)} in.")
        if states["done"]:
            click.echo(f"{counted(states['done'], 'file')} {are(states['done'])} in from before.")
