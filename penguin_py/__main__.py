"""The command ``penguin``."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table

from blizzard_py.core.cli import (
    answer,
    cell,
    command,
    config_argument,
    json_option,
    log_level_option,
    once_option,
    printable,
)
from blizzard_py.core.configfile import load_config
from penguin_py import app
from penguin_py.settings import tables_of


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="blizzard-penguin")
def main() -> None:
    """Commit the Parquet files that arrive in table directories to their Delta logs."""


@main.command()
@config_argument
@once_option
@log_level_option
@command
def run(config: Path, once: bool) -> int:
    """Poll every table and commit what is new.

    Without --once it runs until SIGTERM or SIGINT. Exit codes: 0 done, 1 a
    table failed, 2 bad configuration.
    """
    return app.run_daemon(load_config(config), once=once)


@main.command()
@config_argument
@command
def validate(config: Path) -> int:
    """Check CONFIG and report every problem at once (exit code 2)."""
    click.echo(f"{config}: ok, {len(tables_of(load_config(config)))} tables")
    return 0


@main.command()
@config_argument
@json_option
@log_level_option
@command
def plan(config: Path, as_json: bool) -> int:
    """Show which files the next poll would look at. Writes nothing."""
    return answer(app.plan(load_config(config)), _print_plan, as_json=as_json)


@main.command()
@config_argument
@json_option
@log_level_option
@command
def status(config: Path, as_json: bool) -> int:
    """Show the state of every table, from storage alone."""
    return answer(app.status(load_config(config)), _print_status, as_json=as_json)


@main.command()
@config_argument
@click.option("--dry-run", is_flag=True, help="Only report; commit nothing.")
@json_option
@log_level_option
@command
def reconcile(config: Path, dry_run: bool, as_json: bool) -> int:
    """Compare the table directories with the logs and commit what was left behind.

    Stragglers younger than reconcile_horizon_secs are committed, and so are
    quarantined files that were replaced; older files are reported as orphans.
    """
    return answer(
        app.reconcile(load_config(config), dry_run=dry_run), _print_reconcile, as_json=as_json
    )


def _print_plan(document: dict[str, Any]) -> None:
    table = Table("table", "txn", "watermark", "new files")
    for name, found in document["tables"].items():
        table.add_row(
            cell(name),
            _shown(found["txn_version"]),
            cell(found["watermark"]),
            f"{len(found['files']):,}",
        )
    Console().print(table)
    for name, found in document["tables"].items():
        left_out = found["left_out"]
        if left_out["count"]:
            text = f"{name}: {left_out['count']:,} files left out, such as {left_out['example']}"
            click.echo(printable(f"{text}: {left_out['remedy']}"))


def _print_status(document: dict[str, Any]) -> None:
    table = Table(
        "table", "state", "watermark", "last update (UTC)", "Delta version", "txn", "quarantined"
    )
    for name, found in document["tables"].items():
        updated = found["last_update_ts"]
        table.add_row(
            cell(name),
            found["state"],
            cell(found["watermark"]),
            "-" if updated is None else f"{dt.datetime.fromtimestamp(updated, dt.UTC):%F %T}",
            _shown(found["delta_version"]),
            _shown(found["txn_version"]),
            f"{found['quarantine']['count']:,}",
        )
    Console().print(table)
    for name, found in document["tables"].items():
        newest = found["quarantine"]["newest"]
        if newest is not None:
            text = f"{name}: newest in quarantine: {newest['path']}: {newest['error']}"
            click.echo(printable(text))


def _print_reconcile(document: dict[str, Any]) -> None:
    table = Table("table", "stragglers", "retried", "orphans")
    for name, found in document["tables"].items():
        counts = (f"{len(found[kind]):,}" for kind in ("stragglers", "retries", "orphans"))
        table.add_row(cell(name), *counts)
    Console().print(table)
    for name, found in document["tables"].items():
        for path in found["orphans"]:
            click.echo(printable(f"{name}: orphan: {path}"))


def _shown(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


if __name__ == "__main__":
    main()
