"""``blizzard wait`` and ``blizzard verify``: whether a partition is complete."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import command, json_option, print_json
from blizzard_core.text import counted, printable
from blizzard_py.commands.options import SourceChoice, source_options

if TYPE_CHECKING:
    from blizzard_py.app.certificates import PartitionAnswer, Verification
    from blizzard_py.sources.context import SourceContext


def _seconds(_context: click.Context, _parameter: click.Parameter, text: str) -> float:
    """Return a duration in seconds."""
    from blizzard_core.settings.base import to_micros

    try:
        return to_micros(text) / 1_000_000
    except ValueError as error:
        raise click.BadParameter(f"{text!r} {error}") from error


_partition = click.option(
    "--partition", required=True, metavar="NAME", help="Partition, such as date=2024-01-28."
)


@command(
    section="Inspect",
    examples=(
        "blizzard wait config.yaml --pipeline events --partition date=2024-01-28",
        "blizzard wait config.yaml --pipeline events --partition date=2024-01-28 --timeout 0",
    ),
)
@source_options(required=False)
@_partition
@click.option("--clean", is_flag=True, help="Also ask that nothing is a dead letter or refused.")
@click.option(
    "--timeout",
    default="1h",
    show_default=True,
    metavar="DURATION",
    callback=_seconds,
    help="Wait so long at most; 0 asks once.",
)
@click.option(
    "--print",
    "only",
    type=click.Choice(["version"]),
    help="Print nothing but the table's version that has everything.",
)
@json_option
def wait(
    chosen: SourceChoice,
    partition: str,
    clean: bool,
    timeout: float,
    only: str | None,
    as_json: bool,
) -> int:
    """Wait until a partition is complete: all its files are settled, and their rows in the table.

    Needs `complete_after` of a source of files. Exit codes: 0 it is complete in every source that
    certifies partitions, 7 not within the timeout, or revoked by a late file (the output says what
    is missing), 8 with --clean: it has dead letters, bad records or refused outputs, 1 a store
    cannot be read.
    """
    import time

    from blizzard_core.errors import NOT_CLEAN, NOT_COMPLETE
    from blizzard_py.app.certificates import wait_for

    parts = _sources(chosen)
    name = partition.strip("/")
    answers = wait_for(parts, name, timeout, time.monotonic, time.sleep)
    complete = all(each.marker is not None for each in answers)
    if as_json:
        print_json({"sources": [each.to_json() for each in answers]})
    elif only is None:
        for each in answers:
            click.echo(printable(_line(each)))
    elif complete:
        click.echo(max(each.marker.version for each in answers if each.marker is not None))
    else:
        for each in answers:
            if each.marker is None:
                click.echo(printable(_line(each)), err=True)
    if clean and not all(each.is_clean for each in answers):
        return NOT_CLEAN
    return 0 if complete else NOT_COMPLETE


def _sources(chosen: SourceChoice) -> list[SourceContext]:
    from blizzard_py.app.certificates import certified_sources

    config = chosen.load()
    if chosen.pipeline is None and len(config.pipelines) > 1:
        raise click.UsageError(f"--pipeline: which of {', '.join(config.pipelines)}?")
    return certified_sources(config, chosen.pipeline or next(iter(config.pipelines)), chosen.source)


def _line(answer: PartitionAnswer) -> str:
    where = f"{answer.source} {answer.partition}"
    if answer.marker is None:
        return f"{where}: not complete: {answer.why}"
    counts = answer.marker.contents
    bad = f"{counted(counts.bad_rows, 'bad record')}, {counted(counts.quarantined, 'file')}"
    bad = "" if answer.is_clean else f", {bad} not ingested"
    return (
        f"{where}: complete in version {answer.marker.version},"
        f" {counted(counts.files, 'file')}, {counted(counts.rows, 'row')}{bad}"
    )


@command(
    section="Inspect",
    examples=("blizzard verify config.yaml --pipeline events --partition date=2024-01-28",),
)
@source_options(required=False)
@_partition
@json_option
def verify(chosen: SourceChoice, partition: str, as_json: bool) -> int:
    """Compare a partition's files at the source with those that were settled: number and digest.

    Needs `complete_after` of a source of files. Lists the partition; reads no file. The digest is
    of paths and sizes. Exit codes: 6 they differ, or nobody counted, 1 a store cannot be read.
    """
    from blizzard_core.errors import DIFFERS
    from blizzard_py.app.certificates import verify as compare

    parts = _sources(chosen)
    found = [compare(each, partition.strip("/")) for each in parts]
    if as_json:
        print_json({"sources": [asdict(each) for each in found]})
    else:
        for each in found:
            click.echo(printable(_comparison(each)))
    return 0 if all(each.equal for each in found) else DIFFERS


def _comparison(found: Verification) -> str:
    where = f"{found.source} {found.partition}: {counted(found.listed, 'file')} at the source"
    if found.counted is None:
        return f"{where}; not compared: {found.why}"
    requested = counted(found.requested, "file")
    more = f"; {requested} more by requests, which are not compared" if found.requested else ""
    if found.equal:
        return f"{where}, the same as settled{more}"
    if found.listed == found.counted:
        return f"{where}, as many as settled, but with other names or sizes{more}"
    return f"{where}, and {found.counted:,} settled{more}"
