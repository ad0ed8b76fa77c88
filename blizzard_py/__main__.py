"""The command ``blizzard``."""

from __future__ import annotations

import datetime as dt
from pathlib import Path
from typing import Any

import click
import yaml
from rich.console import Console
from rich.table import Table

from blizzard_py import app
from blizzard_py.backfill import Range
from blizzard_py.core.cli import (
    answer,
    cell,
    command,
    config_argument,
    json_option,
    log_level_option,
    once_option,
    print_json,
    printable,
)
from blizzard_py.core.configfile import load_config
from blizzard_py.explain import lines


@click.group(context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(package_name="blizzard-penguin")
def main() -> None:
    """Ingest NDJSON files that keep arriving: none skipped, none twice."""


@main.command()
@config_argument
@once_option
@log_level_option
@command
def run(config: Path, once: bool) -> int:
    """Poll every source and ingest what is new.

    Without --once it runs until SIGTERM or SIGINT. Exit codes: 0 done, 1 a
    pipeline failed, 2 bad configuration.
    """
    return app.run_daemon(load_config(config), once=once)


@main.command()
@config_argument
@command
def validate(config: Path) -> int:
    """Check CONFIG and report every problem at once (exit code 2)."""
    loaded = load_config(config)
    click.echo(f"{config}: ok, {len(loaded.pipelines)} pipelines, {len(loaded.tables)} tables")
    return 0


@main.command()
@config_argument
@json_option
@log_level_option
@command
def plan(config: Path, as_json: bool) -> int:
    """Show what the next poll would ingest, and what finding it costs. Writes nothing."""
    return answer(app.plan(load_config(config)), _print_plan, as_json=as_json)


@main.command()
@config_argument
@json_option
@log_level_option
@command
def status(config: Path, as_json: bool) -> int:
    """Show the state of every source, from storage alone."""
    return answer(app.status(load_config(config)), _print_status, as_json=as_json)


@main.command()
@config_argument
@json_option
@log_level_option
@command
def schema(config: Path, as_json: bool) -> int:
    """Show every pipeline's columns: declared, inferred and kept, or from a sample now.

    What is printed is YAML for schema.fields. Writes nothing.
    """
    return answer(app.schema(load_config(config)), _print_schema, as_json=as_json)


@main.command()
@config_argument
@click.option("--pipeline", required=True, help="The pipeline's name.")
@click.option("--source", required=True, help="The source's name.")
@click.option("--from", "first", required=True, metavar="PREFIX", help="First partition.")
@click.option("--to", "last", required=True, metavar="PREFIX", help="Last partition, included.")
@click.option("--replay", is_flag=True, help="Ingest again what the live daemon has done.")
@log_level_option
@command
def backfill(config: Path, pipeline: str, source: str, first: str, last: str, replay: bool) -> int:
    """Ingest a closed range of partitions beside the live daemon.

    It has a checkpoint of its own, so it can be stopped and started again, and
    never touches the live watermarks. A range that is the live daemon's is
    refused unless --replay is given.
    """
    chosen = Range(first.strip("/"), last.strip("/"))
    return app.backfill(load_config(config), (pipeline, source), chosen, replay=replay)


@main.command()
@config_argument
@click.argument("uri", metavar="URI")
@json_option
@log_level_option
@command
def explain(config: Path, uri: str, as_json: bool) -> int:
    """Say what became of the file at URI, or what it waits for. Writes nothing.

    URI is a local path or one such as s3://bucket/key, taken as it stands:
    %-escapes are not decoded. Exit codes: 0 explained, whatever the answer is,
    1 the state or a store cannot be read, 2 bad configuration or usage.
    """
    found = app.explain(load_config(config), uri)
    if as_json:
        print_json(found.to_json())
    else:
        for number, line in enumerate(lines(found)):
            click.secho(line, bold=number == 0)
    return 0


def _print_plan(document: dict[str, Any]) -> None:
    table = Table("source", "state", "watermark", "new files", "bytes", "LISTs", "keys")
    for pipeline, block in document["pipelines"].items():
        for source, found in block["sources"].items():
            files = found["files"]
            table.add_row(
                cell(f"{pipeline}/{source}"),
                found["state"],
                cell(found["watermark"]),
                f"{len(files):,}",
                f"{sum(f['size'] for f in files):,}",
                str(found["list_requests"]),
                f"{found['keys_listed']:,}",
            )
    Console().print(table)


_ORIGINS = {
    "declared": "as declared in the configuration",
    "inferred": "as inferred and kept beside the checkpoint",
    "sample": "as it would be inferred now",
    "unknown": "nothing to infer the rest from yet: the sources have no new files",
}


def _print_schema(document: dict[str, Any]) -> None:
    for pipeline, found in document["pipelines"].items():
        click.echo(f"# {pipeline}: {_ORIGINS[found['origin']]}")
        if found["sample"]:
            sample = found["sample"]
            click.echo(
                f"# from {sample['records']:,} records of {len(sample['files']):,} files,"
                f" {sample['skipped_lines']:,} lines skipped"
            )
        for name, reason in found["left_out"].items():
            click.echo(f"# left out: {printable(name)!r}: {printable(reason)}")
        click.echo("fields:" if found["fields"] else "fields: []")
        for field in found["fields"]:
            click.echo(f"  - {_flow(field)}")


def _flow(value: Any) -> str:
    """YAML on one line; what a terminal would obey is escaped."""
    for readable in (True, False):
        text = yaml.safe_dump(
            value,
            default_flow_style=True,
            sort_keys=False,
            allow_unicode=readable,
            width=float("inf"),
        ).strip()
        if text.isprintable():
            break
    return text


def _print_status(document: dict[str, Any]) -> None:
    table = Table("source", "state", "watermark", "last update (UTC)", "in flight", "files", "rows")
    for pipeline, block in document["pipelines"].items():
        for source, found in block["sources"].items():
            updated = found["last_update_ts"]
            totals = found["totals"]
            table.add_row(
                cell(f"{pipeline}/{source}"),
                found["state"],
                cell(found["watermark"]),
                f"{dt.datetime.fromtimestamp(updated, dt.UTC):%Y-%m-%d %H:%M:%S}"
                if updated
                else "-",
                ", ".join(batch["phase"] for batch in found["in_flight"]) or "-",
                f"{totals['files']:,}"
                + (f" (+{totals['quarantined']:,} quarantined)" if totals["quarantined"] else ""),
                f"{totals['rows']:,}"
                + (f" (+{totals['bad_rows']:,} bad)" if totals["bad_rows"] else ""),
            )
    Console().print(table)


if __name__ == "__main__":
    main()
