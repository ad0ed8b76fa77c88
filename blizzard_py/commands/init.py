"""``blizzard init``: the first configuration."""

from __future__ import annotations

from pathlib import Path

import click

from blizzard_core.cli import GuidedCommand, command, log_level_option
from blizzard_core.errors import ConfigError, StorageError
from blizzard_core.settings.load import load_config
from blizzard_core.storage.opening import open_source, problems_of
from blizzard_core.text import printable
from blizzard_py.commands.starter_config import Sample, columns_told, configuration, sample


@click.command(
    cls=GuidedCommand,
    section="Set up",
    examples=(
        "blizzard init --source-uri ./raw --table-uri ./lake/events",
        "blizzard init prod.yaml --source-uri s3://raw/events --table-uri s3://lake/events",
    ),
)
@click.argument(
    "path", type=click.Path(path_type=Path, dir_okay=False), default=Path("blizzard.yaml")
)
@click.option(
    "--source-uri", metavar="URI", default="./raw", show_default=True, help="Where files arrive."
)
@click.option(
    "--table-uri",
    metavar="URI",
    default="./lake/events",
    show_default=True,
    help="The Delta table.",
)
@click.option("--force", is_flag=True, help="Replace PATH if it is there.")
@log_level_option
@command
def init(path: Path, source_uri: str, table_uri: str, force: bool) -> int:
    """Write a commented starter configuration to PATH (blizzard.yaml).

    If the source can be read, its first file proposes the schema. Asks nothing;
    never replaces a file without --force.
    """
    for name, uri in (("--source-uri", source_uri), ("--table-uri", table_uri)):
        problems = problems_of(uri, {})
        if problems:
            raise ConfigError(name, problems)
    if path.exists() and not force:
        raise ConfigError(str(path), ["is there already; give another PATH, or --force"])
    try:
        found = sample(open_source(source_uri, {}))
    except StorageError as error:
        found = Sample(problem=str(error))
    text = configuration(source_uri, table_uri, found)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text, encoding="utf-8")
    except OSError as error:
        raise ConfigError(str(path), [f"cannot be written: {error.strerror}"]) from error
    load_config(path)
    schema = (
        f"The schema has {columns_told(found.columns)}, from {found.path}."
        if found.columns
        else f"The schema will be inferred from the first files ({found.problem})."
    )
    click.echo(printable(f"Wrote {path}. {schema}"))
    click.echo(
        printable(f"Next: edit it, then `blizzard validate {path}` and `blizzard plan {path}`.")
    )
    return 0
