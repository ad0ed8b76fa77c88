"""``blizzard watch``: both daemons at work, drawn anew every few seconds."""

from __future__ import annotations

import contextlib
import time
from pathlib import Path

import click

from blizzard_core.cli import command, config_argument


@command(
    section="Inspect",
    examples=("blizzard watch config.yaml --every 30",),
)
@config_argument
@click.option(
    "--every",
    type=click.FloatRange(min=1),
    default=5.0,
    show_default=True,
    metavar="SECS",
    help="Seconds between refreshes; each costs as much as `blizzard status`.",
)
def watch(config: Path, every: float) -> int:
    """Watch all pipelines of both daemons in a terminal, until Ctrl-C.

    Reads storage alone, as `blizzard status` does. Problems come first if the terminal is too
    small.
    """
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.pipeline_watch import PipelineWatch
    from blizzard_py.commands.watch_screen import picture

    console = Console()
    if not console.is_terminal or console.is_dumb_terminal:
        raise click.UsageError(
            "this is for a terminal that can be drawn on; elsewhere use `blizzard status --json`"
        )
    watching = PipelineWatch(load_config(config))
    first = Text("looking at the stores; Ctrl-C ends", "dim")
    with (
        contextlib.suppress(KeyboardInterrupt),
        Live(first, console=console, screen=True, auto_refresh=False) as live,
    ):
        while True:
            sight = watching.look()
            live.update(picture(sight, time.time(), console.height), refresh=True)
            time.sleep(every)
    return 0
