"""``blizzard state``, ``watermark``, ``checkpoint reset --event-time``: queries over event time."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping, Sequence
from contextlib import closing
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from blizzard_core.cli import (
    GuidedGroup,
    answer,
    command,
    config_argument,
    json_option,
    print_table,
)
from blizzard_core.text import counted, printable
from blizzard_py.commands.options import (
    SourceChoice,
    confirm,
    dry_run_option,
    moment_option,
    print_changed,
    source_options,
    why_option,
    yes_option,
)
from blizzard_py.commands.requests import (
    following,
    no_wait_option,
    print_result,
    take_over_option,
    waits,
)

if TYPE_CHECKING:
    from blizzard_core.settings.document import Config
    from blizzard_py.ingest.source_view import SourceView
    from blizzard_py.state.stream_state import OperatorState

# The number of windows that are shown of each operator before a reset.
_SHOWN = 20


@command(
    section="Inspect",
    examples=("blizzard state config.yaml --pipeline pages --limit 1000 --json",),
)
@config_argument
@click.option("--pipeline", metavar="NAME", help="Only this pipeline.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Rows shown of each operator, first those that end first.",
)
@json_option
def state(config: Path, pipeline: str | None, limit: int, as_json: bool) -> int:
    """Show the state of queries over event time: open windows, keys and waiting rows.

    Reads a copy of the saved state, so the daemon may run; starts Spark. A row of state is dropped
    once a row arrives whose time is later than its end by more than the delay. Exit code 1: the
    state cannot be read.
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.event_state import event_state

    found = event_state(load_config(config), pipeline, limit)
    return answer((found, []), _print, as_json=as_json)


def _print(document: dict[str, Any]) -> None:
    for name, found in document["pipelines"].items():
        place = printable(f"{name}/{found['source']}")
        click.echo(f"{place}: batch {found['batch']}, watermark {found['watermark'] or '-'}")
        for operator in found["operators"]:
            print_operator(operator)


def print_operator(operator: Mapping[str, Any]) -> None:
    """Print an operator of a query, and the rows of its state that end first."""
    click.echo(f"{operator['name']}: {counted(operator['rows'], 'row')} of state")
    print_table(
        ("ends", "let go by a row after", "key", "value"),
        (
            [
                row["ends"],
                row["let_go_by_a_row_after"],
                json.dumps(row["key"], ensure_ascii=False),
                json.dumps(row["value"], ensure_ascii=False),
            ]
            for row in operator["first"]
        ),
    )


_EXAMPLE = (
    "blizzard watermark advance config.yaml --pipeline pages --source web "
    "--to 2024-01-29T00:00:00Z --dry-run"
)


@click.group(cls=GuidedGroup, section="Repair", examples=(_EXAMPLE,))
def watermark() -> None:
    """Move the event-time watermark of a source without new rows."""


@watermark.command("advance", examples=(_EXAMPLE,))
@source_options(required=True)
@click.option(
    "--to",
    required=True,
    metavar="TIME",
    callback=moment_option,
    help="ISO 8601; UTC without a zone.",
)
@why_option
@yes_option
@dry_run_option
@no_wait_option
@take_over_option
def advance(
    chosen: SourceChoice,
    to: float,
    why: str,
    yes: bool,
    dry_run: bool,
    no_wait: bool,
    take_over: bool,
) -> int:
    """Move the event-time watermark to TIME with the next batch.

    Windows that end by then are published and keys are dropped; later rows for them are late. The
    closed windows are shown first; this starts Spark. It is a request, which moves the watermark
    even without files. Exit codes: 1 refused, 7 no daemon has accepted the request yet; it stays.
    """
    from blizzard_py.app.event_state import operators_ending_by
    from blizzard_py.app.submit import RequestOrder, submit_and_follow
    from blizzard_py.edits.event_time import advance_watermark
    from blizzard_py.state.stream_state import moment

    loaded, where = chosen.load(), chosen.where
    to_ms = round(to * 1000)
    with closing(_query_of(loaded, where)) as found:
        parts, state = found.parts, found.load()
        assert parts.event_time is not None  # noqa: S101  # `_query_of` has looked
        # Refused before anybody is asked.
        advance_watermark(state, parts.event_time.settings, parts.branches, to_ms, time.time())
    before = state.kind.stream
    assert before is not None  # noqa: S101  # without one it is refused
    move = f"{moment(before.watermark_ms) or '-'} -> {moment(to_ms)}"
    click.echo(f"{found.name}: watermark {move}")
    for operator in operators_ending_by(loaded, where, to_ms) if before.state_rows else ():
        rows = counted(operator.count, "row")
        click.echo(f"{operator.name}: {operator.ending:,} of {rows} of state end by then")
    confirm(found.name, yes=yes, dry_run=dry_run)
    reason = why.strip() or f"watermark over event time: {move}"
    order = RequestOrder("advance_watermark", {"to_ms": to_ms}, why=reason)
    with following():
        how = waits(no_wait=no_wait, take_over=take_over)
        result = submit_and_follow(loaded, where, order, how)
    return print_result(result, "The next batch does it.")


def forget(config: Config, where: tuple[str, str], why: str, *, yes: bool, dry_run: bool) -> int:
    """Show the query's state, ask for confirmation, and drop it; the watermark stays."""
    from blizzard_py.edits import checkpoint_edit
    from blizzard_py.edits.event_time import with_empty_state
    from blizzard_py.state.stream_state import moment

    with closing(_query_of(config, where)) as found:
        seen = checkpoint_edit.read_checkpoint(found)
        with_empty_state(seen.state)  # refused before anybody is asked
        checkpoint_edit.require_not_publishing(found, seen.state)
        before = seen.state.kind.stream
        assert before is not None  # noqa: S101  # without one it is refused
        rows = counted(before.state_rows, "row")
        at = moment(before.watermark_ms) or "-"
        click.echo(f"{printable(found.name)}: {rows} of state are forgotten; watermark {at} stays")
        if before.state_rows:
            _print_windows(config, where[0], before.operators)
        confirm(found.name, yes=yes, dry_run=dry_run)
        reason = why.strip() or f"event time: {rows} of state forgotten"
        backup = checkpoint_edit.change(found, seen, with_empty_state, time.time(), reason)
        text = (
            "The next batch begins with nothing open. Rows that the windows above had are in no"
            " result; windows that were published stay closed."
        )
        print_changed(text, found.sink, backup)
        return 0


def _query_of(config: Config, where: tuple[str, str]) -> SourceView:
    """Return the owner of a query's checkpoint. Raises `ConfigError` for another source."""
    from blizzard_core.errors import ConfigError
    from blizzard_py.app.wiring import owner_context, view_of

    found = view_of(owner_context(config, where))
    if found.parts.event_time is None:
        raise ConfigError(f"pipelines.{where[0]}", ["has no query over event_time"])
    return found


def _print_windows(config: Config, pipeline: str, known: Sequence[OperatorState]) -> None:
    """Print the windows that end first, or the size of a state that is unreadable."""
    from blizzard_core.errors import EngineError, StateError
    from blizzard_py.app.event_state import event_state

    try:
        operators = event_state(config, pipeline, _SHOWN)["pipelines"][pipeline]["operators"]
    except (StateError, EngineError) as error:
        click.echo(f"They cannot be shown: {error}", err=True)
        for each in known:
            click.echo(f"{each.name}: {counted(each.state_rows, 'row')} of state")
        return
    for operator in operators:
        print_operator(operator)
        if operator["rows"] > _SHOWN:
            click.echo(f"… `blizzard state --pipeline {pipeline} --limit N` shows more of them")
