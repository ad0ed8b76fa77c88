"""``blizzard init``: the first configuration."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import command
from blizzard_core.errors import ConfigError, StorageError
from blizzard_core.text import counted, printable, shell_word
from blizzard_py.commands.starter.target import LAKES, Wanted, store_options, target
from blizzard_py.commands.starter.yaml_text import Secret

if TYPE_CHECKING:  # it brings the readers of all formats
    from blizzard_py.commands.starter.sample import Sample


@command(
    section="Set up",
    examples=(
        "blizzard init --source-uri ./raw --table-uri ./lake/events",
        "blizzard init orders.yaml --connection postgresql://reader@db/shop --table public.orders",
        "blizzard init --connection https://crm.example/v1/orders --records data --since from",
    ),
)
@click.argument(
    "path", type=click.Path(path_type=Path, dir_okay=False), default=Path("blizzard.yaml")
)
@click.option("--source-uri", metavar="URI", help="Directory of arriving files; default ./raw.")
@click.option(
    "--table-uri",
    metavar="URI",
    help="The Delta table; default: below ./lake, named after the data.",
)
@click.option(
    "--storage-option",
    "storage_options",
    multiple=True,
    metavar="NAME=VALUE",
    help="Option of the stores, such as AWS_ENDPOINT_URL=http://localhost:9000; repeatable.",
)
@click.option("--connection", metavar="URI", help="A database, a lake or an API, instead of files.")
@click.option("--table", metavar="NAME", help="Table to read, with its schema.")
@click.option(
    "--driver",
    type=click.Choice(("postgresql", "mysql", "sqlite", "http", *LAKES)),
    help="Driver of the connection; default: from its scheme.",
)
@click.option("--column", metavar="NAME", help="Watermark column; default: proposed.")
@click.option("--records", metavar="PATH", help='For an API: path to the records; "" is the root.')
@click.option("--since", metavar="PARAM", help="For an API: parameter for the start time.")
@click.option(
    "--token-env", metavar="VAR", help="For an API: environment variable with its bearer token."
)
@click.option("--force", is_flag=True, help="Replace an existing PATH.")
def init(
    path: Path,
    source_uri: str | None,
    table_uri: str | None,
    storage_options: tuple[str, ...],
    connection: str | None,
    force: bool,
    **of_connection: str | None,
) -> int:
    """Write a commented starter configuration to PATH (blizzard.yaml).

    If the source can be read, a sample of its files proposes the schema, and their names the
    layout. A connection is asked for its columns and for a watermark column. Passwords become
    references to the environment. Asks no questions; replaces an existing file only with --force.
    """
    if path.exists() and not force:
        raise ConfigError(str(path), ["exists already; give another PATH, or --force"])
    if connection is not None:
        if source_uri is not None:
            raise ConfigError("init", ["give --source-uri or --connection, not both"])
        if storage_options:
            raise ConfigError("init", ["--storage-option: goes with files alone"])
        return _from_connection(path, Wanted(connection, **of_connection), table_uri)
    odd = [name.replace("_", "-") for name, given in of_connection.items() if given is not None]
    if odd:
        raise ConfigError("init", [f"--{name}: goes with --connection" for name in odd])
    options = store_options(storage_options, os.environ)
    return _from_files(path, source_uri or "./raw", table_uri or "./lake/events", options)


def _from_files(
    path: Path, source_uri: str, table_uri: str, options: Mapping[str, str | Secret]
) -> int:
    from blizzard_core.storage.local_entries import FILE_AS_SOURCE
    from blizzard_core.storage.opening import is_local_file, open_source
    from blizzard_py.commands.starter.config import configuration
    from blizzard_py.commands.starter.sample import Sample, sample
    from blizzard_py.commands.starter.yaml_text import filled

    _check_places({"--source-uri": source_uri, "--table-uri": table_uri})
    if is_local_file(source_uri):
        raise ConfigError("--source-uri", [f"{source_uri}: {FILE_AS_SOURCE}"])
    try:
        found = sample(open_source(source_uri, filled(options)))
    except StorageError as error:
        found = Sample(problem=str(error))
    if found.files and not found.fields:
        raise ConfigError(
            str(path),
            [
                f"not written: {found.problem}",
                "correct the files, or see docs/reference/formats.md for options that read them",
                *(f"{name}: {why}" for name, why in found.left_out.items()),
            ],
        )
    source, table = (_as_in_file(path, uri) for uri in (source_uri, table_uri))
    _write(path, configuration(source, table, found, options), {})
    if found.fields:
        summary = (
            f"The schema has {counted(len(found.fields), 'field')}, from"
            f" {counted(found.records, 'record')} of {counted(found.files, 'file')}."
        )
    else:
        summary = f"The schema will be inferred from the first files ({found.problem})."
    if found.trial.reasons:
        summary += (
            f" A trial gave {counted(found.trial.rows, 'row')} and"
            f" {counted(found.trial.bad, 'bad record')}; {found.trial.reasons[0]}."
        )
    _print_next_steps(path, " ".join((summary, *_remarks(found))))
    return 0


def _remarks(found: Sample) -> Iterator[str]:
    """Yield what the configuration says beside its fields, a sentence each."""
    if found.doubts:
        yield f"{counted(len(found.doubts), 'doubt')}: see the comments at format."
    if found.left_out:
        yield f"{counted(len(found.left_out), 'field')} left out, with the reason."
    if found.disorder:
        yield f"{found.disorder[0].upper()}{found.disorder[1:]}: use_watermark is false."
    if found.layout:
        yield f"Directories are named {found.layout}."
    if found.path_columns:
        yield f"From folders: {', '.join(found.path_columns)}."
    yield from (f"{note}." for note in found.notes)


def _from_connection(path: Path, wanted: Wanted, table_uri: str | None) -> int:
    from blizzard_py.commands.starter import queries
    from blizzard_py.commands.starter.yaml_text import secrets_in

    chosen = target(wanted, os.environ)
    place = table_uri or f"./lake/{chosen.pipeline}"
    _check_places({"--table-uri": place})
    found = queries.describe(chosen, wanted.since, wanted.column)
    secrets = secrets_in(chosen.connection) + secrets_in(chosen.source)
    uri = chosen.connection.get("uri")
    if uri is not None:
        written = {**chosen.connection, "uri": _as_in_file(path, uri, chosen.driver)}
        chosen = replace(chosen, connection=written)
    text = queries.configuration(chosen, _as_in_file(path, place), found, wanted.since)
    _write(path, text, {secret.variable: secret.value for secret in secrets})
    summary = (
        "its versions tell new rows"
        if found.proposal is None
        else f"{found.proposal.column} tells new rows (bound: {found.bound})"
    )
    unset = [s.variable for s in secrets if s.variable not in os.environ]
    set_first = f" Set {', '.join(unset)} in the environment first." if unset else ""
    _print_next_steps(
        path, f"{chosen.what} has {len(found.columns)} columns; {summary}.{set_first}"
    )
    return 0


def _as_in_file(path: Path, uri: str, driver: str | None = None) -> str:
    """Return a path as the file has to name it: relative to the file's folder."""
    from blizzard_core.settings.merging import relative_path

    local, folder = relative_path(uri, driver), path.absolute().parent
    if local is None or folder == Path.cwd():
        return uri
    found = os.path.relpath(local, folder)
    return found if found.startswith("..") else f"./{found}"


def _check_places(places: Mapping[str, str]) -> None:
    from blizzard_core.storage.opening import problems_of

    for name, uri in places.items():
        problems = problems_of(uri, {})
        if problems:
            raise ConfigError(name, problems)


def _write(path: Path, text: str, secrets: Mapping[str, str]) -> None:
    """Write the file, and see that it is what the daemons take."""
    from blizzard_py.app.configuration import load_config
    from blizzard_py.commands.starter.yaml_text import write_configuration

    write_configuration(path, text)
    load_config(path, {**os.environ, **secrets})


def _print_next_steps(path: Path, found: str) -> None:
    word = shell_word(str(path))
    click.echo(printable(f"Wrote {path}. {found}"))
    click.echo(f"Next: edit it, then `blizzard validate {word}` and `blizzard plan {word}`.")
