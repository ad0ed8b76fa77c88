"""``blizzard watermark``: the watermark over event time, moved by hand."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import GuidedGroup, config_argument
from blizzard_core.text import counted
from blizzard_py.commands.options import (
    dry_run_option,
    moment_option,
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
    from blizzard_py.sources.context import SourceContext
    from blizzard_py.state.source_state import SourceState
    from blizzard_py.state.stream_state import StreamState


_EXAMPLE = (
    "blizzard watermark advance config.yaml --pipeline pages --source web "
    "--to 2024-01-29T00:00:00Z --dry-run"
)


@click.group(cls=GuidedGroup, section="Repair", examples=(_EXAMPLE,))
def watermark() -> None:
    """Move the event-time watermark of a source without new rows."""


@watermark.command("advance", examples=(_EXAMPLE,))
@config_argument
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
    config: Path,
    pipeline: str,
    source: str,
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
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.event_state import operators_ending_by
    from blizzard_py.app.submit import RequestOrder, submit_and_follow
    from blizzard_py.commands.query_change import change_query

    # Arrow's functions, which no poll needs.
    from blizzard_py.edits.event_time import advance_watermark  # see above
    from blizzard_py.state.stream_state import moment

    loaded, where = load_config(config), (pipeline, source)
    to_ms = round(to * 1000)

    def edit(state: SourceState, parts: SourceContext) -> SourceState:
        assert parts.event_time is not None  # noqa: S101  # the caller has looked
        return advance_watermark(
            state, parts.event_time.settings, parts.branches, to_ms, time.time()
        )

    def describe(name: str, before: StreamState) -> str:
        move = f"{moment(before.watermark_ms) or '-'} -> {moment(to_ms)}"
        click.echo(f"{name}: watermark {move}")
        for operator in operators_ending_by(loaded, where, to_ms) if before.state_rows else ():
            rows = counted(operator.count, "row")
            click.echo(f"{operator.name}: {operator.ending:,} of {rows} of state end by then")
        return f"watermark over event time: {move}"

    def submit(reason: str) -> int:
        with following():
            how = waits(no_wait=no_wait, take_over=take_over)
            order = RequestOrder("advance_watermark", {"to_ms": to_ms}, why=reason)
            result = submit_and_follow(loaded, where, order, how)
        return print_result(result, then)

    then = "The next batch does it."
    return change_query(
        loaded, where, edit, describe, then, why=why, yes=yes, dry_run=dry_run, submit=submit
    )
