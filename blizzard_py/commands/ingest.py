"""``blizzard ingest``: single files, whatever they are called."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import asdict, replace
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
from blizzard_core.text import are, counted
from blizzard_py.app.configuration import load_config
from blizzard_py.app.reingest import Given
from blizzard_py.app.reingest import ingest as ingest_files
from blizzard_py.commands.options import source_options
from blizzard_py.commands.requests import (
    following,
    no_wait_option,
    print_result,
    take_over_option,
    waits,
)


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
@no_wait_option
@take_over_option
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
    no_wait: bool,
    take_over: bool,
    as_json: bool,
) -> int:
    """Ingest the files at the URIs exactly once, whatever their names, by a request.

    Late files, hidden ones, other endings, closed partitions: all are taken. They must
    lie below a source's root. The daemon that runs does it, or this command where none
    runs. A file that polls have still to do is left to them, one whose rows are in is left out.
    Given again the same command finds its request and follows it. Exit codes: 0 all are in or
    left to polls, 1 some are missing, refused or were given up, 2 bad configuration or
    usage, 7 no daemon has taken the request yet, 130 interrupted; the request stays.
    """
    how = waits(no_wait=no_wait, take_over=take_over)
    if as_json:  # a program that reads the output gets the document alone
        how = replace(how, tell=lambda _line: None)
    with following():
        found = ingest_files(
            load_config(config), uris, (pipeline, source), None if dry_run else how, insist=insist
        )
    code = max(map(_exit_code, found.values()), default=0)
    if as_json:
        print_json({**_document(found), "exit_code": code})
    else:
        _print(found, dry_run=dry_run)
    return code


def _exit_code(given: Given) -> int:
    code = 0 if given.request is None else print_result(given.request, "")
    return code or int(given.is_unmended)


def _document(found: Mapping[tuple[str, str], Given]) -> dict[str, Any]:
    return {
        "files": [
            {"source": "/".join(where), **asdict(told)}
            for where, given in found.items()
            for told in given.files
        ],
        "requests": [given.request.id for given in found.values() if given.request is not None],
        "rows": sum(given.rows for given in found.values()),
    }


def _print(found: Mapping[tuple[str, str], Given], *, dry_run: bool) -> None:
    told = [("/".join(where), file) for where, given in found.items() for file in given.files]
    print_table(
        ("source", "file", "state", "why"),
        ([name, file.path, file.state, file.reason] for name, file in told),
    )
    if not dry_run:
        states = Counter(file.state for _, file in told)
        rows = sum(given.rows for given in found.values())
        files = counted(states["ingested"], "file")
        click.echo(f"{counted(rows, 'row')} of {files} {are(rows)} in.")
        if states["present"]:
            click.echo(
                f"{counted(states['present'], 'file')} {are(states['present'])} in from before."
            )
