"""The stage of a demo: its own folder, and an exit code for the result."""

from __future__ import annotations

import shutil
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from rich.console import Console

MARKER = "made-by-the-demo"


class DemoFailedError(Exception):
    """A command of the demo failed; the message says which, and its last lines."""


def staged(place: Path, scenes: Callable[[Path, Console], bool], kept: str, success: str) -> int:
    """Play ``scenes`` in a new ``place`` and return the exit code.

    0 if they found in ``kept`` the expected rows, 1 if not or on an error, 130 by Ctrl-C, and by
    SIGTERM, too, so that nothing goes on after the demo.
    """
    console = Console(highlight=False)
    start = time.monotonic()
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        fresh(place)
        good = scenes(place, console)
    except DemoFailedError as error:
        console.print(f"\ndemo: {error}", style="red", markup=False, soft_wrap=True)
        return 1
    except OSError as error:
        # What is written to a full disk does not say to which file.
        where, why = error.filename or place, error.strerror or error
        problem = f"{where}: {why}; give another folder, where some 100 MB can be written"
        console.print(f"\ndemo: {problem}", style="red", markup=False, soft_wrap=True)
        return 1
    except KeyboardInterrupt:
        console.print("\ndemo: interrupted")
        return 130
    seconds = time.monotonic() - start
    if not good:
        console.print(f"demo: the {kept} is not what it should be ({seconds:.0f} s)", style="red")
        return 1
    console.print(f"{success}, in {seconds:.0f} s.", style="green")
    return 0


@contextmanager
def step(console: Console, text: str) -> Iterator[None]:
    """Show what is running (a spinner on a terminal), and how long it took."""
    start = time.monotonic()
    with console.status(f"{text} ..."):
        yield
    console.print(f"{text} [dim]({time.monotonic() - start:.1f} s)[/dim]")


def fresh(place: Path) -> None:
    """Make the working directory anew. Refuses one that an earlier demo did not make."""
    if place.exists() and any(place.iterdir()):
        if not (place / MARKER).exists():
            raise DemoFailedError(f"{place} holds something else; give another folder")
        shutil.rmtree(place)
    place.mkdir(parents=True, exist_ok=True)
    (place / MARKER).touch()
