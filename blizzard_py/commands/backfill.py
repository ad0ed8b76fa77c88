"""``blizzard backfill``: a range of a source, once more or for the first time."""

from __future__ import annotations

from pathlib import Path

import click

from blizzard_core.cli import GuidedCommand, command, config_argument, log_level_option
from blizzard_core.settings.document import Config
from blizzard_core.storage.protocol import order_key
from blizzard_py.app import unit_operations
from blizzard_py.app.asked_backfill import backfill_asked
from blizzard_py.app.configuration import load_config
from blizzard_py.app.event_time import refuse_rows
from blizzard_py.app.operations import is_asked
from blizzard_py.app.reingest import bring
from blizzard_py.app.submit import Order, Waits
from blizzard_py.commands.bringing import (
    answer,
    assume_missing_option,
    how_to_wait,
    request_options,
)
from blizzard_py.commands.options import source_options
from blizzard_py.commands.requests import following, mark_units


@click.command(
    cls=GuidedCommand,
    section="Mend",
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
@config_argument
@source_options(required=True)
@click.option(
    "--from", "first", required=True, metavar="PREFIX", help="First partition, or first value."
)
@click.option(
    "--to",
    "last",
    required=True,
    metavar="PREFIX",
    help="Last partition, included; of a table or an API the value that is not included.",
)
@click.option("--again", is_flag=True, help="Bring what is in once more, beside its rows.")
@click.option("--once-more", is_flag=True, help="With --again: although the same was done before.")
@assume_missing_option
@request_options(replaces=True)
@click.option("--chunk", default="", metavar="DURATION", help="Of a table or an API: 1month.")
@click.option("--save", is_flag=True, help="Of one that has not begun: it begins at --to.")
@click.option("--values", default="", metavar="A,B", help="Of work units: of these values only.")
@log_level_option
@command
def backfill(
    config: Path,
    pipeline: str,
    source: str,
    first: str,
    last: str,
    again: bool,
    once_more: bool,
    assume_missing: bool,
    replace: bool,
    assume_named: bool,
    why: str,
    dry_run: bool,
    no_wait: bool,
    take_over: bool,
    as_json: bool,
    chunk: str,
    save: bool,
    values: str,
) -> int:
    """Ingest a range of partitions by a request, exactly once.

    The daemon that runs does it, or this command where none runs; live files come first. --from
    and --to may be files. Taken is what has no rows: what the source began above, and what was
    given up. What polls have still to do is left to them.

    With --replace the files of the range that were ingested (mended ones, or after a change of
    the schema) come again, and in the same commit exactly their rows of before go. What cannot be
    replaced so is refused before anything is read. With --again they come beside these rows:
    delete them from the table first.

    Of a table or an API it reads from --from up to --to, which is not included, in chunks. Only
    what the live source neither has read nor will: below where its watermark was set before it
    began, or with --save before it has begun.

    Of a source of work units all that have time from --from up to --to are marked: the daemon
    reads them from their beginning and replaces their rows.

    Exit codes: 0 done, 1 some were refused or failed, 2 bad configuration or usage, 7 no daemon has
    taken the request yet, 130 interrupted; the request stays.
    """
    loaded, where = load_config(config), (pipeline, source)
    refuse_rows(loaded, where, "a backfill")
    # None of these may be passed over in silence: a dry run would write.
    of_files = replace or again or once_more or assume_missing or assume_named or no_wait
    of_files = of_files or take_over or dry_run or as_json or bool(why)
    if unit_operations.is_by_units(loaded, where):
        if of_files or save or chunk:
            raise click.UsageError("work units take --from, --to and --values alone")
        return mark_units(loaded, where, (first, last), values)
    if values:
        raise click.UsageError("--values is for sources of work units")
    if is_asked(loaded, where):
        if of_files:
            raise click.UsageError("tables and APIs take --from, --to, --chunk and --save alone")
        return backfill_asked(loaded, where, (first, last), chunk, save=save)
    if chunk or save:
        raise click.UsageError("--chunk and --save are for tables and APIs")
    _check(replace=replace, again=again, once_more=once_more, named=assume_named)
    how = how_to_wait(no_wait=no_wait, take_over=take_over, dry_run=dry_run, as_json=as_json)
    options = {"assume_missing": True} if assume_missing else {}
    options |= {"assume_named": True} if assume_named else {}
    mode = "replace" if replace else "again" if again else "add"
    return _range(
        loaded,
        where,
        (first, last),
        {"mode": mode, **options},
        why,
        how,
        as_json=as_json,
        once_more=once_more or not again,
    )


def _check(*, replace: bool, again: bool, once_more: bool, named: bool) -> None:
    """Raise `click.UsageError` for options that do not go together."""
    if replace and again:
        raise click.UsageError("give either --replace or --again, with which rows come twice")
    if once_more and not again:
        raise click.UsageError("--once-more goes with --again")
    if named and not replace:
        raise click.UsageError("--assume-named goes with --replace")


def _range(
    config: Config,
    where: tuple[str, str],
    ends: tuple[str, str],
    options: dict[str, object],
    why: str,
    how: Waits | None,
    *,
    as_json: bool,
    once_more: bool,
) -> int:
    first, last = (end.strip("/") for end in ends)
    # --to stands for all that begins with it.
    if order_key(first) > order_key(last) and not first.startswith(last):
        raise click.UsageError(f"--from {first!r} sorts above --to {last!r}")
    order = Order("reingest", {"range": [first, last]}, options, why, once_more=once_more)
    with following():
        found = bring(config, where, order, how)
    return answer({"/".join(where): found}, as_json=as_json)
