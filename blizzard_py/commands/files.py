"""``blizzard files``: the outcome of every item as a table."""

from __future__ import annotations

from pathlib import Path

import click

from blizzard_core.cli import command, json_option, print_json, print_table
from blizzard_core.text import counted, in_utc, printable
from blizzard_py.commands.options import SourceChoice, moment_option, source_options


@command(
    section="Inspect",
    examples=(
        "blizzard files config.yaml                    # counts by outcome",
        "blizzard files config.yaml --to files.parquet # a row for each item, for duckdb or Spark",
    ),
)
@source_options(required=False)
@click.option(
    "--since",
    metavar="TIME",
    callback=moment_option,
    help="Batches since, such as 2024-01-28T14:00:00Z.",
)
@click.option(
    "--to",
    type=click.Path(dir_okay=False, path_type=Path),
    metavar="FILE",
    help="Write a row for each item to this Parquet file.",
)
@json_option
def files(
    chosen: SourceChoice,
    since: float | None,
    to: Path | None,
    as_json: bool,
) -> int:
    """Show the outcomes of files, or of windows and units, from the journals of 30 days.

    A file that was tried twice, or ingested again, has a row for each batch. Writes nothing else.
    """
    from blizzard_py.app.file_table import rows_of, summarize, write_parquet
    from blizzard_py.app.operations import sources_of

    loaded = chosen.load()
    rows = rows_of(loaded, sources_of(loaded, chosen.pipeline, chosen.source), since)
    if to is not None:
        count = write_parquet(rows, to)
        if as_json:
            print_json({"rows": count, "file": str(to)})
        else:
            click.echo(f"{counted(count, 'row')} in {printable(str(to))}")
        return 0
    found = summarize(rows)
    if as_json:
        print_json({"outcomes": found})
        return 0
    print_table(
        ("source", "outcome", "items", "rows", "bad rows", "bytes", "newest (UTC)"),
        (
            [
                printable(f"{line['pipeline']}/{line['source']}"),
                line["outcome"],
                *(f"{line[name]:,}" for name in ("items", "rows", "bad_rows", "size")),
                in_utc(line["newest"]),
            ]
            for line in found
        ),
    )
    return 0
