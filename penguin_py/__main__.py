"""The command ``penguin``."""

from __future__ import annotations

from blizzard_core.signals import keep_little_memory, started

started()  # the imports below take a second

from dataclasses import asdict
from functools import partial
from pathlib import Path
from typing import Any

import click

from blizzard_core.cli import (
    CONTEXT,
    GuidedGroup,
    answer,
    completion_of,
    config_argument,
    environment_notes,
    fencing_notes,
    json_option,
    metrics_address_option,
    once_option,
    online_option,
    print_problems,
    print_table,
    rows_waiting,
)
from blizzard_core.text import counted, in_utc, printable
from penguin_py.keyed_commands import keyed, print_keyed

# The findings of a sweep, in the order of their columns.
_FOUND = ("stragglers", "retries", "overdue", "orphans")

_STREAMS = (
    "a streaming reader of the table stops at such a commit, or with skipChangeCommits (Spark)"
    " passes it over with the rows that it brings"
)


@click.group(
    cls=GuidedGroup,
    context_settings=CONTEXT,
    examples=(
        "penguin plan config.yaml             # what the next poll would commit and refuse",
        "penguin run config.yaml              # until SIGTERM; --once drains and exits",
        "penguin status config.yaml           # from storage alone",
    ),
)
@click.version_option(package_name="blizzard-penguin")
def main() -> None:
    """Commit the Parquet files that arrive in table directories to their Delta logs.

    CONFIG is the YAML file that both daemons read, or a folder of such files. Exit codes: 0 done, 1
    a table failed, 2 bad configuration or usage, 4 a secret was renewed, 5 published outputs are
    gone, 130 interrupted.
    """


@main.command(
    section="Run",
    examples=("penguin run config.yaml --once",),
)
@config_argument
@once_option
@metrics_address_option
def run(config: Path, once: bool, metrics_address: str | None) -> int:
    """Poll every table and commit what is new.

    Without --once it runs until SIGTERM or SIGINT. Exit codes: 1 a table failed, 4 a secret was
    renewed, 5 with --once: published files are gone.
    """
    keep_little_memory()
    from blizzard_core.settings.load import load_config
    from penguin_py import app

    where = str(config.absolute())
    return app.run_daemon(load_config(config), once=once, where=where, address=metrics_address)


@main.command(
    section="Set up", examples=("penguin validate config.yaml --online",), log_level=False
)
@config_argument
@online_option
def validate(config: Path, online: bool) -> int:
    """Check CONFIG and report every problem at once (exit code 2). --online is `doctor`."""
    if online:
        return _examine(config, as_json=False)
    from blizzard_core.settings.checks.tables import keyed_notes
    from blizzard_core.settings.load import load_config
    from penguin_py.settings import check_stores, tables_of

    loaded = load_config(config)
    tables = tables_of(loaded)
    check_stores(tables)
    click.echo(f"{config}: ok. Checked {counted(len(tables), 'table')}.")
    for note in fencing_notes((table.uri, table.storage_options) for table in tables):
        click.echo(f"note: {note}", err=True)
    for note in (*environment_notes(table.uri for table in tables), *keyed_notes(loaded)):
        click.echo(f"note: {note}", err=True)
    for table in tables:
        if table.replacing:
            names = ", ".join(table.replacing)
            click.echo(f"note: {table.name}: {names} replaces rows; {_STREAMS}", err=True)
    return 0


@main.command(section="Set up", examples=("penguin doctor config.yaml",))
@config_argument
@json_option
def doctor(config: Path, as_json: bool) -> int:
    """Try everything that a first commit needs: stores and Delta logs.

    Prints a line for each check. A note does not stop the daemon. Probe objects are below
    _doctor-ID/, which no daemon reads, and are deleted at the end. The daemons may run. Exit codes:
    1 a check failed, 2 bad configuration, 10 a bucket does not exist.
    """
    return _examine(config, as_json=as_json)


def _examine(config: Path, *, as_json: bool) -> int:
    from blizzard_core.doctor.findings import print_findings
    from blizzard_core.settings.load import load_config
    from penguin_py.doctor import examine

    return print_findings(partial(examine, load_config(config)), as_json=as_json)


@main.command(
    section="Inspect",
    examples=("penguin plan config.yaml --json | jq .tables",),
)
@config_argument
@json_option
def plan(config: Path, as_json: bool) -> int:
    """Show which files the next poll would look at, and what it would refuse. Writes nothing.

    Footers are read as for the next commit, of max_files_per_commit files at most.
    """
    from blizzard_core.settings.load import load_config
    from penguin_py import app

    return answer(app.plan(load_config(config)), _print_plan, as_json=as_json)


@main.command(
    section="Inspect",
    examples=("penguin status config.yaml --json | jq .tables",),
)
@config_argument
@json_option
def status(config: Path, as_json: bool) -> int:
    """Show the state of every table and of the rows that wait for their commit.

    Reads storage alone, even if no daemon runs. Exit codes: 1 the state of a table cannot be read,
    5 published files are gone, 8 published rows are not committed or Penguin is down, 9 Blizzard is
    down. After 8 and 9 a sentence says why.
    """
    from blizzard_core.observability.stopped import exit_code_of
    from blizzard_core.settings.load import load_config
    from penguin_py import app

    found = app.status(load_config(config))
    code = answer(found, _print_status, as_json=as_json) or _code_of(found[0])
    problems = [each for table in found[0]["tables"].values() for each in table["problems"]]
    return code or exit_code_of(problems)


@main.command(
    section="Repair",
    examples=("penguin reconcile config.yaml --dry-run      # what was left behind",),
)
@config_argument
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@json_option
def reconcile(config: Path, dry_run: bool, as_json: bool) -> int:
    """Compare the table directories with the logs and commit what was left behind.

    Stragglers younger than reconcile_horizon are committed, and so are quarantined files that were
    replaced; older files are reported as orphans. --dry-run also reads the footers of the next
    commit's files, and shows what it would refuse.
    """
    from blizzard_core.settings.load import load_config
    from penguin_py import app

    found = app.reconcile(load_config(config), dry_run=dry_run)
    return answer(found, _print_reconcile, as_json=as_json) or _code_of(found[0])


@main.command(
    section="Repair",
    examples=(
        "penguin discard config.yaml --table events --group events_main --dry-run",
        "penguin discard config.yaml --table events --output events/main/01a2…/1/00000-0/0",
    ),
)
@config_argument
@click.option("--table", "name", required=True, help="The table.")
@click.option("--output", "outputs", multiple=True, help="The id of an output. Repeatable.")
@click.option("--group", "source", help="The id of a source: its next group, which is blocked.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@json_option
def discard(
    config: Path,
    name: str,
    outputs: tuple[str, ...],
    source: str | None,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Discard outputs, or the next group of a source, that can never be committed.

    Everything that can be committed is committed first; groups that wait for the discarded ones
    continue. A discarded output is never committed, even if its file is repaired later: ingest its
    source files again (`blizzard backfill --replace`). The daemon may run.
    """
    from blizzard_core.settings.load import load_config
    from penguin_py import app

    if not outputs and source is None:
        raise click.UsageError("give --output or --group; `penguin status` names what waits")
    found = app.discard(load_config(config), name, outputs, source, dry_run=dry_run)
    document = {**asdict(found), "dry_run": dry_run}
    document["committed"] = [] if dry_run else sorted({*outputs}.difference(found.outputs))
    return answer((document, []), _print_discarded, as_json=as_json)


def _code_of(document: dict[str, Any]) -> int:
    """Return the exit code; missing published outputs mean missing rows."""
    from blizzard_core.errors import REFUSED

    return REFUSED if any(found["missing"] for found in document["tables"].values()) else 0


def _print_missing(name: str, found: dict[str, Any]) -> None:
    """Print a line for each output that was deleted before its commit."""
    for path in found["missing"]:
        why = "deleted before it was committed; `blizzard replay CONFIG --refused`"
        click.echo(printable(f"{name}: missing: {path}: {why}"))


def _print_discarded(document: dict[str, Any]) -> None:
    verb = "would be discarded" if document["dry_run"] else "is discarded"
    if document["group"] is not None:
        source, seq = document["group"]
        click.echo(printable(f"group {seq:,} of {source} {verb}"))
    if document["lost"]:
        click.echo(
            "Its manifest is lost, so the rows that it was to replace are unknown. For a source of"
            " units, read the group's units again from their beginning with `blizzard backfill`."
            " If rows name neither their file nor their unit, `blizzard explain` shows the outputs"
            " that it was to replace: delete their rows first."
        )
    for output in document["outputs"]:
        click.echo(printable(f"output {output} {verb}"))
    for output in document["committed"]:
        click.echo(printable(f"output {output} was committed just now, so it is not discarded"))
    if document["rows"]:
        rows = counted(document["rows"], "row")
        click.echo(f"Removed with it: {rows} of outputs that the group was to replace whole")


def _print_plan(document: dict[str, Any]) -> None:
    print_table(
        ("table", "txn", "watermark", "new files"),
        (
            [name, _shown(found["txn_version"]), found["watermark"], f"{len(found['files']):,}"]
            for name, found in document["tables"].items()
        ),
    )
    for name, found in document["tables"].items():
        left_out = found["left_out"]
        if left_out["count"]:
            files = counted(left_out["count"], "file")
            text = f"{name}: {files} left out, such as {left_out['example']}"
            click.echo(printable(f"{text}: {left_out['remedy']}"))
        _print_refusals(name, found)
        for source, group in found["groups"].items():
            if group["due"] is not None:
                click.echo(f"{name}: group {group['due']:,} of {source} is due")
        _print_blocked(name, found)
    print_keyed(document)


def _print_blocked(name: str, found: dict[str, Any]) -> None:
    """Print a line for each source whose next group cannot be applied."""
    for source, group in found["groups"].items():
        if group["blocked"] is not None:
            click.echo(printable(f"{name}: blocked: groups of {source}: {group['blocked']}"))


def _print_refusals(name: str, found: dict[str, Any]) -> None:
    """Print a line for each file that would not be committed."""
    for refused in found["refused"]:
        click.echo(printable(f"{name}: refused: {refused['path']}: {refused['error']}"))
    for path in found["waiting"]:
        why = "is not ours, and younger than foreign_min_age"
        click.echo(printable(f"{name}: waits: {path}: {why}"))
    for failed in found["unreadable"]:
        click.echo(printable(f"{name}: cannot be read now: {failed['path']}: {failed['error']}"))
    if found["not_looked_into"]:
        files = counted(found["not_looked_into"], "file")
        click.echo(f"{name}: {files} behind the next commit not looked into")


def _print_status(document: dict[str, Any]) -> None:
    print_table(
        (
            "table",
            "state",
            "watermark",
            "uncommitted rows",
            "last update (UTC)",
            "Delta version",
            "txn",
            "quarantined",
        ),
        (_status_row(name, found) for name, found in document["tables"].items()),
    )
    print_problems({name: found["problems"] for name, found in document["tables"].items()})
    for name, found in document["tables"].items():
        newest = found["quarantine"]["newest"]
        if newest is not None:
            text = f"{name}: newest in quarantine: {newest['path']}: {newest['error']}"
            click.echo(printable(text))
        if count := found["quarantine"]["settled"]:
            click.echo(
                f"{name}: {count:,} more in quarantine were ingested again or discarded;"
                " nothing is missing"
            )
        _print_missing(name, found)
        _print_blocked(name, found)
    print_keyed(document)


def _status_row(name: str, found: dict[str, Any]) -> list[str | None]:
    updated = found["last_update_ts"]
    return [
        name,
        found["state"],
        found["watermark"],
        rows_waiting(found["uncommitted"]),
        None if updated is None else in_utc(updated),
        _shown(found["delta_version"]),
        _shown(found["txn_version"]),
        f"{found['quarantine']['count']:,}",
    ]


def _print_reconcile(document: dict[str, Any]) -> None:
    print_table(
        ("table", "stragglers", "retried", "overdue", "orphans"),
        (
            [name, *(f"{len(found[kind]):,}" for kind in _FOUND)]
            for name, found in document["tables"].items()
        ),
    )
    for name, found in document["tables"].items():
        for path in found["orphans"]:
            click.echo(printable(f"{name}: orphan: {path}"))
        _print_missing(name, found)
        if found["dry_run"]:
            _print_refusals(name, found)


def _shown(number: int | None) -> str:
    return "-" if number is None else f"{number:,}"


main.add_command(keyed)
main.add_command(completion_of(main, "penguin"))


if __name__ == "__main__":
    main(prog_name="penguin")
