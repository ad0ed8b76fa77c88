"""The command ``penguin keyed``, and the lines of ``plan`` and ``status`` on keyed tables."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import click

from blizzard_core import cli
from blizzard_core.text import counted, iso, printable


@click.group(
    cls=cli.GuidedGroup,
    section="Repair",
    examples=("penguin keyed rebuild config.yaml --table orders_keyed --dry-run",),
)
def keyed() -> None:
    """Repair tables with the current row of each key."""


@keyed.command(
    section="Repair", examples=("penguin keyed rebuild config.yaml --table orders_keyed",)
)
@cli.config_argument
@click.option("--table", "name", required=True, help="The keyed table: PIPELINE_keyed.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@cli.json_option
def rebuild(config: Path, name: str, dry_run: bool, as_json: bool) -> int:
    """Rebuild a keyed table from all changes that are there, in one commit.

    For other `keys`, `sequence_by` or `deletes`, a change table that was recreated, and rows that
    left it. The daemon may run.
    """
    from blizzard_core.settings.load import load_config  # noqa: PLC0415  # takes a second
    from penguin_py import app  # noqa: PLC0415  # as above

    found = app.rebuild(load_config(config), name, dry_run=dry_run)
    verb, rows = "would be" if dry_run else "was", counted(found["rows"], "row")
    text = f"{name} {verb} rebuilt from {rows} of changes"
    return cli.answer(({"table": name, **found}, []), lambda _: click.echo(text), as_json=as_json)


def print_keyed(document: dict[str, Any]) -> None:
    """Print a line for each keyed table: how far it is, what waits, what the last merge did."""
    for name, found in document.get("keyed", {}).items():
        click.echo(printable(f"{name}: {_line(found) if found else 'no changes yet'}"))


def _line(found: dict[str, Any]) -> str:
    parts = [counted(found["rows"], "row"), _position(found)]
    if waits := found.get("next"):
        share = waits["touched_bytes"] / waits["bytes"] if waits["bytes"] else 0.0
        parts.append(
            f"next: {counted(waits['rows'], 'row')}, {counted(waits['keys'], 'key')}; touches"
            f" {waits['touched_files']:,} of {counted(waits['files'], 'file')} ({share:.0%})"
        )
    if (outcomes := found["outcomes"]) and "next" not in found:
        counts = ", ".join(f"{n:,} {name.replace('_', ' ')}" for name, n in outcomes.items())
        at = iso(found["updated"])
        parts.append(f"last merge at {at}: {counts}; {found['share']:.0%} rewritten")
    if found["lag_secs"] and found["wait_secs"]:
        parts.append(f"next merge in {found['wait_secs']:.0f} s")
    return "; ".join(parts)


def _position(found: dict[str, Any]) -> str:
    if found["starts_over"]:
        return "all changes will be merged again"
    if found["merged"] < 0:
        return "nothing is merged yet"
    text = f"{found['lag_secs'] / 60:.0f} min behind" if found["lag_secs"] else "up to date"
    return f"merged up to change version {found['merged']:,}, {text}"
