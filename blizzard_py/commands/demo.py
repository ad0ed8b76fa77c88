"""``blizzard demo``: both daemons at work on data of the package."""

from __future__ import annotations

import shutil
import sys
from pathlib import Path

import click

from blizzard_core.cli import command


@command(section="Set up", examples=("blizzard demo", "blizzard demo /tmp/demo"), log_level=False)
@click.argument(
    "directory", type=click.Path(path_type=Path, file_okay=False), default=Path("blizzard-demo")
)
def demo(directory: Path) -> int:
    """Show both daemons at work on 39,244 real events, in DIRECTORY (blizzard-demo).

    The events come with the package; no network is used. The Delta table is read back and counted.
    A DIRECTORY that an earlier demo made is replaced. It stays afterwards, with the configuration,
    for your own commands. Exit code 1: some events are missing.
    """
    from blizzard_core.extras import require
    from blizzard_py.demo.edits import play
    from blizzard_py.engines.java import require_java

    require("spark")
    require_java("local")
    return play(directory, _programs(Path(sys.argv[0])))


def _programs(called: Path) -> str:
    """Return what to type before the name of a command, given how this one was called."""
    found = shutil.which("blizzard")
    if called.name != "blizzard" or (called.is_absolute() and str(called) == found):
        return ""
    return f"{called.parent}/"
