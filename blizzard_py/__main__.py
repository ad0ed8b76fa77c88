"""The command ``blizzard``."""

from __future__ import annotations

from blizzard_core.signals import keep_little_memory, started

started()  # what follows takes a second

import datetime as dt
import sys
from pathlib import Path

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
    print_json,
)
from blizzard_core.text import counted, printable
from blizzard_py.commands import certificates, doctor
from blizzard_py.commands.backfill import backfill
from blizzard_py.commands.checkpoint import checkpoint
from blizzard_py.commands.clean import clean
from blizzard_py.commands.convert import convert
from blizzard_py.commands.demo import demo
from blizzard_py.commands.dlq import dlq
from blizzard_py.commands.event_time import state, watermark
from blizzard_py.commands.files import files
from blizzard_py.commands.ingest import ingest
from blizzard_py.commands.init import init
from blizzard_py.commands.rename import rename
from blizzard_py.commands.replay import replay
from blizzard_py.commands.requests import requests
from blizzard_py.commands.up import up
from blizzard_py.commands.watch import watch


@click.group(
    cls=GuidedGroup,
    context_settings=CONTEXT,
    examples=(
        "blizzard init --source-uri ./raw --table-uri ./lake/events",
        "blizzard validate blizzard.yaml      # every problem at once, with its line",
        "blizzard plan blizzard.yaml          # what the next poll would ingest",
        "blizzard up blizzard.yaml            # both daemons and their page, until Ctrl-C",
        "blizzard run blizzard.yaml           # until SIGTERM; `penguin run` commits",
    ),
)
@click.version_option(package_name="blizzard-penguin")
def main() -> None:
    """Ingest files, tables and APIs into Delta Lake, each row exactly once.

    CONFIG is the YAML file that both daemons read, or a folder of such files. Exit codes: 0 done, 1
    a pipeline failed, 2 bad configuration or usage, 3 another daemon took over, 130 interrupted.
    """


@main.command(
    section="Run",
    examples=(
        "blizzard run config.yaml --once",
        "blizzard run config.yaml --fresh             # ingest all again: the checkpoint is gone",
        "blizzard run config.yaml --log-level debug",
    ),
)
@config_argument
@once_option
@click.option(
    "--fresh",
    is_flag=True,
    help="Start from nothing if a checkpoint is missing, even if earlier work exists.",
)
@click.option(
    "--take-over",
    is_flag=True,
    help="Replace a running daemon, which stops with exit code 3 at its next save.",
)
@metrics_address_option
@click.option("--penguin-page", hidden=True, metavar="HOST:PORT")  # `up` gives it
def run(
    config: Path,
    once: bool,
    fresh: bool,
    take_over: bool,
    metrics_address: str | None,
    penguin_page: str | None,
) -> int:
    """Poll every source and ingest new data.

    Without --once it runs until SIGTERM or SIGINT.

    If a source's checkpoint is missing but its journal or its rows exist, the source is refused,
    because everything would be ingested again; --fresh starts it from nothing. If another daemon
    runs a source, that source is skipped; --take-over replaces the daemon.

    Exit codes: 1 a pipeline failed, 2 bad configuration or a source refused, 3 another daemon runs
    a source or took it over, 4 a secret was renewed. With --once: 5 Penguin has refused published
    files (`blizzard replay --refused`), 7 work units failed and will be retried.
    """
    keep_little_memory()
    from blizzard_core.checkpoint.writer_identity import allow_takeover, refuse_if_running
    from blizzard_py.app import daemon as app
    from blizzard_py.app.configuration import load_config

    admission = allow_takeover if take_over else refuse_if_running(person=sys.stdin.isatty())
    loaded = load_config(config)
    if take_over and loaded.global_.replicas is not None:
        from blizzard_py.app.replicas import check_replicas

        check_replicas(loaded, take_over=take_over)
    return app.run_daemon(
        loaded,
        once=once,
        fresh=fresh,
        admission=admission,
        where=str(config.absolute()),
        address=metrics_address,
        penguin_page=penguin_page,
    )


main.add_command(up)


@main.command(
    section="Set up", examples=("blizzard validate config.yaml --online",), log_level=False
)
@config_argument
@online_option
def validate(config: Path, online: bool) -> int:
    """Check CONFIG and report every problem at once (exit code 2).

    Tables and APIs are asked for their columns, and the limits of their read bounds are shown.
    Columns of each pipeline are compared with its Delta table and with Penguin's rules. A missing
    or renamed checkpoint, with which a start would be refused, is reported.

    A transform or event_time is checked by a local Spark (or the Spark Connect server), which takes
    some seconds. Of file sources only some names are listed. Writes nothing, but with --online
    probe objects.
    """
    if online:
        return doctor.examine(config)
    from blizzard_core.settings.checks.event_time import event_time_notes
    from blizzard_core.settings.needed_extras import check_extras, needed_extras
    from blizzard_core.settings.sources import SourceSettings
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.machine import java_notes
    from blizzard_py.app.query_validation import validate_query_sources
    from blizzard_py.app.validation import checkpoint_notes, validate_pipelines

    loaded = load_config(config)
    check_extras(needed_extras(loaded))
    if loaded.global_.replicas is not None:
        from blizzard_py.app.replicas import check_replicas

        check_replicas(loaded)
    notes = java_notes(loaded)
    notes += validate_query_sources(loaded)
    notes += validate_pipelines(loaded)
    notes += checkpoint_notes(loaded)
    sinks = [pipeline.sink for pipeline in loaded.pipelines.values()]
    sources = sum(len(pipeline.sources) for pipeline in loaded.pipelines.values())
    tables = {sink.table_uri for sink in sinks}
    tables |= {table.table_uri for table in loaded.tables.values()}
    click.echo(
        f"{config}: ok. Checked {counted(len(loaded.pipelines), 'pipeline')},"
        f" {counted(sources, 'source')} and {counted(len(tables), 'table')}."
    )
    for note in fencing_notes((sink.table_uri, sink.storage_options) for sink in sinks):
        click.echo(f"note: {note}", err=True)
    every = (s for pipeline in loaded.pipelines.values() for s in pipeline.sources.values())
    read = [source.source_uri for source in every if isinstance(source, SourceSettings)]
    for note in environment_notes([*read, *tables]):
        click.echo(f"note: {note}", err=True)
    for note in (*notes, *event_time_notes(loaded)):
        click.echo(printable(f"note: {note}"), err=True)
    return 0


@main.command(
    section="Inspect",
    examples=("blizzard plan config.yaml --json | jq -r '.pipelines[].sources[].files[].path'",),
)
@config_argument
@click.option(
    "--now",
    "moment",
    type=click.DateTime(("%Y-%m-%d", "%Y-%m-%dT%H:%M:%S", "%Y-%m-%dT%H:%M:%S%z")),
    metavar="TIME",
    help="For tables and APIs: plan as of this time (UTC without a zone).",
)
@click.option("--offline", is_flag=True, help="Query no table or API; bounds come from --now.")
@click.option("--all", "everything", is_flag=True, help="Also list closed work units.")
@json_option
def plan(
    config: Path, moment: dt.datetime | None, offline: bool, everything: bool, as_json: bool
) -> int:
    """Show what the next poll would ingest, and the cost of finding it. Writes nothing.

    For a table or an API: the window, its end, rows that the bound may miss, and the statement or
    request; this costs two queries, none with --offline. For work units: each open unit, whether it
    would be read, its time range, and why.
    """
    from blizzard_py.app import inspection
    from blizzard_py.app.configuration import load_config
    from blizzard_py.commands.printing import print_plan

    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=dt.UTC)
    found = inspection.plan(load_config(config), now=moment, offline=offline, everything=everything)
    return answer(found, print_plan, as_json=as_json)


@main.command(
    section="Inspect",
    examples=("blizzard status config.yaml --json | jq '.pipelines[].sources[].lag.secs'",),
)
@config_argument
@json_option
def status(config: Path, as_json: bool) -> int:
    """Show the state of every source up to its commit, from storage alone.

    Works from any machine that reaches the stores, even if no daemon runs. A + after a number means
    "at least". Exit codes: 1 the state of a source cannot be read, 5 Penguin has refused published
    files (`blizzard replay --refused`), 8 published rows are not committed or Penguin is down, 9
    Blizzard is down or its polls fail. After 8 and 9 a sentence says why.
    """
    from blizzard_py.app import inspection
    from blizzard_py.app.configuration import load_config
    from blizzard_py.commands.printing import print_status

    found, errors = inspection.status(load_config(config))
    code = answer((found, errors), print_status, as_json=as_json)
    return code or inspection.exit_code(found)


@main.command(
    section="Inspect",
    examples=("blizzard schema config.yaml --diff           # has the source changed?",),
)
@config_argument
@click.option("--diff", is_flag=True, help="Compare the newest files with columns and table.")
@json_option
def schema(config: Path, diff: bool, as_json: bool) -> int:
    """Show every pipeline's columns: declared, inferred and stored, or from a sample now.

    Prints YAML for schema.fields. Writes nothing.

    --diff reads records of the newest files, even if ingested, and shows fields without a column,
    columns without a value, and values that do not fit, each with a proposal for schema.fields. It
    also shows columns that only the table has or that it refuses. Exit codes: 1 something cannot be
    read, 6 there is a difference.
    """
    from blizzard_core.errors import DIFFERS
    from blizzard_py.app import inspection
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.new_fields import schema_diff
    from blizzard_py.commands.printing import print_schema, print_schema_diff

    loaded = load_config(config)
    if not diff:
        return answer(inspection.schema(loaded), print_schema, as_json=as_json)
    found = schema_diff(loaded)
    code = answer(found, print_schema_diff, as_json=as_json)
    differs = any(each["differs"] for each in found[0]["pipelines"].values())
    return code or (DIFFERS if differs else 0)


@main.command(
    "schema-of-config",
    section="Set up",
    examples=("blizzard schema-of-config > blizzard.schema.json",),
    log_level=False,
)
def schema_of_config() -> int:
    """Print the JSON schema of configurations, with which editors complete and check them.

    The first line of a configuration names the file for the YAML language server, as `init` writes
    it: # yaml-language-server: $schema=./blizzard.schema.json
    """
    from blizzard_core.settings.json_schema import config_schema

    print_json(config_schema())
    return 0


@main.command(
    section="Inspect",
    examples=(
        "blizzard explain config.yaml s3://raw/events/date=2024-01-28/1.ndjson.gz",
        "blizzard explain config.yaml orders/erp",
    ),
)
@config_argument
@click.argument("uri", metavar="URI")
@json_option
def explain(config: Path, uri: str, as_json: bool) -> int:
    """Show what happened to the file at URI, or why it waits. Writes nothing.

    URI is a local path or a URI such as s3://bucket/key; %-escapes are not decoded. The beginning
    of a file is read and compared with the columns: its format, codec, members, header or schema,
    and why it cannot be read. For a table or an API it is PIPELINE/SOURCE or PIPELINE/SOURCE#TASK;
    then the window, the statement and the outputs are shown. Exit codes: 0 whatever the answer, 1
    the state or a store cannot be read.
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.explaining import explain
    from blizzard_py.explain import lines

    found = explain(load_config(config), uri)
    if as_json:
        print_json(found.to_json())
    else:
        for number, line in enumerate(lines(found)):
            click.secho(line, bold=number == 0)
    return 0


main.add_command(doctor.doctor)
main.add_command(doctor.notifications)
main.add_command(watch)
main.add_command(files)
main.add_command(state)
main.add_command(certificates.wait)
main.add_command(certificates.verify)
main.add_command(clean)
main.add_command(ingest)
main.add_command(backfill)
main.add_command(dlq)
main.add_command(replay)
main.add_command(checkpoint)
main.add_command(watermark)
main.add_command(requests)
main.add_command(rename)
main.add_command(init)
main.add_command(convert)
main.add_command(demo)
main.add_command(completion_of(main, "blizzard"))


if __name__ == "__main__":
    main(prog_name="blizzard")
