"""``blizzard doctor`` and ``blizzard notifications``."""

from __future__ import annotations

from functools import partial
from pathlib import Path

import click

from blizzard_core.cli import command, config_argument, json_option


@command(
    section="Set up",
    examples=(
        "blizzard doctor config.yaml",
        "blizzard doctor config.yaml --json | jq '.checks[] | select(.result == \"failed\")'",
    ),
)
@config_argument
@click.option(
    "--write-sources",
    is_flag=True,
    help="Also write probe objects to the sources, to try the order of their listings.",
)
@json_option
def doctor(config: Path, write_sources: bool, as_json: bool) -> int:
    """Try everything that a first batch needs: stores, tables, APIs, columns.

    Prints a line for each check. A note does not stop the daemon. Sources are listed and read.
    Tables, dead letters, archives and sources with `clean` are also written to, below _doctor-ID/,
    which no daemon reads and which is deleted at the end. The daemons may run. Exit codes: 1 a
    check failed, 2 bad configuration, 10 a bucket does not exist.
    """
    return examine(config, write_sources=write_sources, as_json=as_json)


def examine(config: Path, *, write_sources: bool = False, as_json: bool = False) -> int:
    """Print the findings of a configuration; the exit code."""
    from blizzard_core.doctor.findings import print_findings
    from blizzard_py.app import doctor as app
    from blizzard_py.app.configuration import load_config

    check = partial(app.examine, load_config(config), writes_sources=write_sources)
    return print_findings(check, as_json=as_json)


@command(section="Set up", examples=("blizzard notifications config.yaml",))
@config_argument
def notifications(config: Path) -> int:
    """Print what notifications need: policies, rights, filters, checks.

    Blizzard creates nothing in your cloud. Asks no service.
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.notification_setup import setup_lines

    for line in setup_lines(load_config(config)):
        click.echo(line)
    return 0
