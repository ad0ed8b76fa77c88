"""Changes of a query's state over event time: shown, confirmed, and logged."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing

import click

from blizzard_core.errors import ConfigError
from blizzard_core.settings.document import Config
from blizzard_py.app.wiring import owner_context, view_of
from blizzard_py.commands.options import confirmed
from blizzard_py.edits import checkpoint_edit
from blizzard_py.sources.context import SourceContext
from blizzard_py.state.source_state import SourceState
from blizzard_py.state.stream_state import StreamState

# Gives the next state, or raises `EditRefused`.
QueryEdit = Callable[[SourceState, SourceContext], SourceState]
# Says what a change of a query, by its source's name, does to the state that it has; gives it in
# few words for `checkpoint log`.
Describe = Callable[[str, StreamState], str]


def change_query(
    config: Config,
    where: tuple[str, str],
    edit: QueryEdit,
    describe: Describe,
    then: str,
    *,
    why: str,
    yes: bool,
    dry_run: bool,
    submit: Callable[[str], int] | None = None,
) -> int:
    """Show what ``edit`` does to the query of a source's pipeline, ask, and save it: the exit code.

    ``then`` is what is said of it when it is done. ``submit``, given the reason, has the source's
    owner do it instead. Raises `ConfigError` for a pipeline without event time, and what reading
    and changing a checkpoint raise.
    """
    with closing(view_of(owner_context(config, where))) as found:
        parts = found.parts
        if parts.event_time is None:
            raise ConfigError(f"pipelines.{where[0]}", ["has no query over event_time"])
        seen = checkpoint_edit.read_checkpoint(found)
        edit(seen.state, parts)  # refused before anybody is asked
        if submit is None:
            checkpoint_edit.require_not_publishing(found, seen.state)
        assert seen.state.kind.stream is not None  # noqa: S101  # without one edits are refused
        reason = describe(found.name, seen.state.kind.stream)
        if dry_run:
            return 0
        if not confirmed(found.name, yes=yes):
            return 1
        if submit is not None:
            return submit(why.strip() or reason)
        backup = checkpoint_edit.change(
            found, seen, lambda state: edit(state, parts), time.time(), why.strip() or reason
        )
        click.echo(f"{then} The old checkpoint is {found.sink.uri}/{backup}")
        return 0
