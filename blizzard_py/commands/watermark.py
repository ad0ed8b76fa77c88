"""``blizzard watermark``: the watermark over event time, moved by hand."""

from __future__ import annotations

import time
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import click

from blizzard_core.cli import GuidedGroup, command, config_argument, log_level_option
from blizzard_core.errors import ConfigError
from blizzard_core.text import counted
from blizzard_py.app.configuration import load_config
from blizzard_py.app.event_state import ending_by
from blizzard_py.app.operations import owner_of
from blizzard_py.commands.options import confirmed, source_options
from blizzard_py.edits import checkpoint_edit
from blizzard_py.state.stream_state import moment

_EXAMPLE = (
    "blizzard watermark advance config.yaml --pipeline pages --source web "
    "--to 2024-01-29T00:00:00Z --dry-run"
)


@click.group(cls=GuidedGroup, section="Mend", examples=(_EXAMPLE,))
def watermark() -> None:
    """The watermark over event time: close windows of a source that brings no more rows."""


@watermark.command("advance", examples=(_EXAMPLE,))
@config_argument
@source_options(required=True)
@click.option("--to", "to", required=True, metavar="TIME", help="ISO 8601; without a zone in UTC.")
@click.option("--why", default="", metavar="TEXT", help="The reason, for `checkpoint log`.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@click.option("--dry-run", is_flag=True, help="Say what it closes; write nothing.")
@log_level_option
@command
def advance(
    config: Path, pipeline: str, source: str, to: str, why: str, yes: bool, dry_run: bool
) -> int:
    """Have the next batch move the watermark to TIME, as if a row had come.

    Windows that end by then are published, keys forgotten, and rows that come for them later
    are late. What it closes is said first; Spark is started to find out. The next poll does it,
    also without files. A daemon that runs stops with exit code 3 at its next save; start it again
    afterwards. Exit codes: 0 done, 1 refused, 2 no event_time, or bad usage.
    """
    # Arrow's functions, which no poll needs.
    from blizzard_py.edits.event_time import advanced  # noqa: PLC0415  # see above

    loaded = load_config(config)
    to_ms = _milliseconds(to)
    with closing(owner_of(loaded, (pipeline, source))) as found:
        given = found.parts.event_time
        if given is None:
            raise ConfigError(f"pipelines.{pipeline}", ["has no event_time, so no watermark of it"])
        seen = checkpoint_edit.stored(found)
        after = advanced(seen.state, given, to_ms, time.time())
        checkpoint_edit.check_settled(found, seen.state, after)
        stream = after.stream
        assert stream is not None  # noqa: S101  # there was a watermark to advance
        was = moment(stream.watermark_ms) or "-"
        click.echo(f"{found.name}: watermark {was} -> {moment(to_ms)}")
        for operator in ending_by(loaded, (pipeline, source), to_ms) if stream.state_rows else ():
            rows = counted(operator.count, "row")
            click.echo(f"{operator.name}: {operator.ending:,} of {rows} of state end by then")
        if dry_run:
            return 0
        if not confirmed(found.name, yes=yes):
            click.echo("That is not its name; nothing was changed.", err=True)
            return 1

        reason = why.strip() or f"watermark over event time: {was} -> {moment(to_ms)}"
        backup = checkpoint_edit.change(
            found,
            seen,
            lambda state: advanced(state, given, to_ms, time.time()),
            time.time(),
            reason,
        )
        click.echo(f"The next batch does it. The old checkpoint is {found.sink.uri}/{backup}")
        return 0


def _milliseconds(text: str) -> int:
    try:
        found = datetime.fromisoformat(text)
    except ValueError:
        raise click.UsageError(f"--to {text!r} is no time such as 2024-01-29T00:00:00Z") from None
    at = found if found.tzinfo is not None else found.replace(tzinfo=UTC)
    return round(at.timestamp() * 1000)
