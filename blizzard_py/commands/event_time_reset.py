"""``blizzard checkpoint reset --event-time``: a query over event time forgets its open windows."""

from __future__ import annotations

from collections.abc import Sequence

import click

from blizzard_core.errors import EngineError, StateError
from blizzard_core.settings.document import Config
from blizzard_core.text import counted, printable
from blizzard_py.app.event_state import event_state
from blizzard_py.commands.query_change import change_query
from blizzard_py.commands.state import print_operator
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.stream_state import OperatorState, StreamState, moment

# The number of windows that are shown of each operator.
_SHOWN = 20


def forget(config: Config, where: tuple[str, str], why: str, *, yes: bool, dry_run: bool) -> int:
    """Show the query's state, ask for confirmation, and drop it; the watermark stays."""
    # Arrow's functions, which no poll needs.
    from blizzard_py.edits.event_time import with_empty_state  # see above

    def edit(state: SourceState, _parts: SourceContext) -> SourceState:
        return with_empty_state(state)

    def describe(name: str, before: StreamState) -> str:
        at = moment(before.watermark_ms) or "-"
        rows = counted(before.state_rows, "row")
        click.echo(f"{printable(name)}: {rows} of state are forgotten; watermark {at} stays")
        if before.state_rows:
            _print_windows(config, where[0], before.operators)
        return f"event time: {rows} of state forgotten"

    then = (
        "The next batch begins with nothing open. Rows that the windows above had are in no"
        " result; windows that were published stay closed."
    )
    return change_query(config, where, edit, describe, then, why=why, yes=yes, dry_run=dry_run)


def _print_windows(config: Config, pipeline: str, known: Sequence[OperatorState]) -> None:
    """Print the windows that end first, or the size of a state that is unreadable."""
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
