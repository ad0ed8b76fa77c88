"""The command ``penguin keyed``, and the lines of ``plan`` and ``status`` on keyed tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from blizzard_core.cli import (
    GuidedGroup,
    answer,
    command,
    config_argument,
    json_option,
    log_level_option,
)
from blizzard_core.text import counted, iso, printable

_NOTHING = "no changes yet"


@click.group(
    cls=GuidedGroup,
    section="Repair",
    examples=("penguin keyed rebuild config.yaml --table orders_keyed --dry-run",),
)
def keyed() -> None:
    """Repair tables with the current row of each key."""


@keyed.command(
    section="Repair",
    examples=("penguin keyed rebuild config.yaml --table orders_keyed",),
)
@config_argument
@click.option("--table", "name", required=True, help="The keyed table: PIPELINE_keyed.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@json_option
@log_level_option
@command
def rebuild(config: Path, name: str, dry_run: bool, as_json: bool) -> int:
    """Rebuild a keyed table from all changes that are there, in one commit.

    For other `keys`, `sequence_by` or `deletes`, a change table that was recreated, and rows that
    left it. The daemon may run.
    """
    from blizzard_core.settings.load import load_config  # noqa: PLC0415  # takes a second
    from penguin_py import app  # noqa: PLC0415  # as above

    found = app.rebuild(load_config(config), name, dry_run=dry_run)
    return answer(({"table": name, **found}, []), _print_rebuilt, as_json=as_json)


def _print_rebuilt(document: dict[str, Any]) -> None:
    verb = "would be rebuilt" if document["dry_run"] else "was rebuilt"
    rows = counted(document["rows"], "row")
    click.echo(f"{document['table']} {verb} from {rows} of changes")


def print_keyed(document: dict[str, Any]) -> None:
    """Print a line for each keyed table: how far it is, what waits, what the last merge did."""
    for name, found in document.get("keyed", {}).items():
        click.echo(printable(f"{name}: {_NOTHING if found is None else _line(found)}"))


def _line(found: dict[str, Any]) -> str:
    parts = [
        counted(found["rows"], "row"),
        "all changes will be merged again" if found["starts_over"] else _position(found),
    ]
    waits = found.get("next")
    if waits is not None:
        share = waits["touched_bytes"] / waits["bytes"] if waits["bytes"] else 0.0
        parts.append(
            f"next: {counted(waits['rows'], 'row')}, {counted(waits['keys'], 'key')}; touches"
            f" {waits['touched_files']:,} of {counted(waits['files'], 'file')} ({share:.0%})"
        )
    outcomes = found["outcomes"]
    if outcomes is not None and "next" not in found:
        counts = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in outcomes.items())
        at = "" if found["updated"] is None else f" at {iso(found['updated'])}"
        parts.append(f"last merge{at}: {counts}; {found['share']:.0%} rewritten")
    if found["lag_secs"] and found["wait_secs"]:
        parts.append(f"next merge in {found['wait_secs']:.0f} s")
    return "; ".join(parts)


def _position(found: dict[str, Any]) -> str:
    if found["merged"] < 0:
        return "nothing is merged yet"
    behind = found["lag_secs"]
    text = f"{behind / 60:.0f} min behind" if behind else "up to date"
    return f"merged up to change version {found['merged']:,}, {text}"
