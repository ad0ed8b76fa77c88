"""``blizzard backfill``: a range of a source, once more or for the first time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import click

from blizzard_core.cli import command
from blizzard_py.commands.options import SourceChoice, source_options
from blizzard_py.commands.reingest_options import (
    Ordering,
    assume_missing_option,
    request_options,
)

if TYPE_CHECKING:
    from blizzard_py.app.submit import Waits


@command(
    section="Repair",
    examples=(
        (
            "blizzard backfill config.yaml --pipeline events --source main "
            "--from date=2023-01-01 --to date=2023-12-31"
        ),
        (
            "blizzard backfill config.yaml --pipeline events --source main --replace "
            "--from date=2023-01-07 --to date=2023-01-07 --dry-run"
        ),
    ),
)
@source_options(required=True)
@click.option(
    "--from", "first", required=True, metavar="PREFIX", help="First partition, or first value."
)
@click.option(
    "--to",
    "last",
    default="",
    metavar="PREFIX",
    help="Last partition, included; for a table or an API the end value, excluded.",
)
@click.option("--again", is_flag=True, help="Ingest files again and keep their old rows.")
@click.option(
    "--once-more", is_flag=True, help="With --again: even if the same request was done before."
)
@assume_missing_option
@request_options(replaces=True)
@click.option(
    "--chunk",
    default="",
    metavar="DURATION",
    help="For a table or an API: size of a chunk, such as months=1.",
)
@click.option(
    "--begin-live-at-end",
    is_flag=True,
    help="For a source that has not started: it will start at --to.",
)
@click.option("--values", default="", metavar="A,B", help="For work units: only these values.")
def backfill(
    chosen: SourceChoice,
    first: str,
    last: str,
    again: bool,
    once_more: bool,
    assume_missing: bool,
    replace: bool,
    assume_named: bool,
    why: str,
    how: Waits | None,
    as_json: bool,
    chunk: str,
    begin_live_at_end: bool,
    values: str,
) -> int:
    """Ingest a range of partitions by a request, exactly once.

    Live files come first. --from and --to may also be files. It ingests files without rows in the
    table: files before the source's start, and dead-lettered ones. Polls ingest new files as usual.

    --replace ingests files of the range again, for example after a correction. The same commit
    removes exactly their old rows. If that is not possible, nothing is read. --again keeps the old
    rows, so delete them from the table first.

    Tables and APIs are read in chunks: only values below the start of the source, or with
    --begin-live-at-end before it starts at all. With --replace, for a source that replaces rows,
    everything from --from on is read again.

    For a source of work units, all units of the range are read again from their beginning, and
    replace their rows.

    Exit codes: 1 some were refused or failed, 7 no daemon has accepted the request yet; it stays.
    """
    from blizzard_core.storage.protocol import order_key
    from blizzard_py.app.configuration import source_of
    from blizzard_py.app.event_time import refuse_rows
    from blizzard_py.app.submit import RequestOrder

    loaded, where = chosen.load(), chosen.where
    refuse_rows(loaded, where, "a backfill")
    owner = Ordering(loaded, where, how, as_json)
    settings = source_of(loaded, where)
    kind = "units" if settings.is_by_units else "files" if settings.has_files else "values"
    if kind != "files" and (again or once_more or assume_missing or assume_named):
        raise click.UsageError(
            "--again, --once-more and --assume-… are not for tables, APIs and units"
        )
    if values and kind != "units":
        raise click.UsageError("--values is for sources of work units")
    if (chunk or begin_live_at_end) and kind != "values":
        raise click.UsageError("--chunk and --begin-live-at-end are for tables and APIs")
    if not last and (kind == "files" or not replace):
        raise click.UsageError("give --to, where the range ends")
    if kind == "units":
        return _units(owner, (first, last), values, why)
    if kind == "values":
        options: dict[str, object] = {"chunk": chunk} if chunk else {}
        options |= {"begin_live_at_end": True} if begin_live_at_end else {}
        options["mode"] = "replace" if replace else "add"
        order = RequestOrder("reingest", {"values": [first, last]}, options, why)
        if replace and how is not None:
            message = f"The next polls read everything from {first} on again and replace it."
            return owner.mark(order, message)
        return owner.bring(order)
    _check(replace=replace, again=again, once_more=once_more, named=assume_named)
    first, last = first.strip("/"), last.strip("/")
    # --to stands for all that begins with it.
    if order_key(first) > order_key(last) and not first.startswith(last):
        raise click.UsageError(f"--from {first!r} sorts above --to {last!r}")
    options = {"mode": "replace" if replace else "again" if again else "add"}
    options |= {"assume_missing": True} if assume_missing else {}
    options |= {"assume_named": True} if assume_named else {}
    select, anew = {"range": [first, last]}, once_more or not again
    order = RequestOrder("reingest", select, options, why, once_more=anew)
    return owner.bring(order)


def _check(*, replace: bool, again: bool, once_more: bool, named: bool) -> None:
    """Raise `click.UsageError` for options that do not go together."""
    if replace and again:
        raise click.UsageError("give either --replace or --again, with which rows come twice")
    if once_more and not again:
        raise click.UsageError("--once-more goes with --again")
    if named and not replace:
        raise click.UsageError("--assume-named goes with --replace")


def _units(owner: Ordering, ends: tuple[str, str], values: str, why: str) -> int:
    """Request that units with time between ``ends`` are read again; return the exit code.

    ``values`` narrows them down, as a list with commas. Raises `EditRefused`.
    """
    from blizzard_py.app import unit_operations
    from blizzard_py.app.submit import RequestOrder

    only = [name.strip() for name in values.split(",") if name.strip()]
    keys = unit_operations.units_between(owner.config, owner.where, ends, only)
    why = why or f"backfill from {ends[0]} to {ends[1]}"
    order = RequestOrder("mark_units", {"units": list(keys)}, why=why)
    message = f"{len(keys):,} units are read again from their beginning by the next poll."
    return owner.mark(order, message)
