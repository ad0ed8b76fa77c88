"""What the two command lines have in common.

Exit codes: 0 done; 1 a pipeline failed; 2 bad configuration or usage; 3 fenced.
Results go to stdout, logs and errors to stderr. Errors of ours are printed
without a trace: they say what failed and what to do.
"""

from __future__ import annotations

import functools
import json
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, ParamSpec

import click
from rich.markup import escape

from blizzard_py.core import log
from blizzard_py.core.errors import BlizzardError
from blizzard_py.core.text import printable

P = ParamSpec("P")

config_argument = click.argument(
    "config", type=click.Path(path_type=Path, dir_okay=False), metavar="CONFIG"
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
once_option = click.option("--once", is_flag=True, help="Work off what is there now, then exit.")


def _set_level(_context: click.Context, _parameter: click.Parameter, level: str) -> None:
    log.configure(level)


log_level_option = click.option(
    "--log-level",
    type=click.Choice(log.LEVELS),
    default="info",
    show_default=True,
    expose_value=False,
    callback=_set_level,
    help="Least severe level to log.",
)


def command(function: Callable[P, int]) -> Callable[P, None]:
    """Make a function that returns an exit code the body of a click command."""

    @functools.wraps(function)
    def wrapped(*args: P.args, **kwargs: P.kwargs) -> None:
        try:
            code = function(*args, **kwargs)
        except BlizzardError as error:
            click.echo(f"error: {error}", err=True)
            code = error.exit_code
        sys.exit(code)

    return wrapped


def answer(
    found: tuple[dict[str, Any], list[str]],
    show: Callable[[dict[str, Any]], None],
    *,
    as_json: bool,
) -> int:
    """Print a result, as JSON or through ``show``, and its errors; the exit code."""
    document, errors = found
    if as_json:
        print_json(document)
    else:
        show(document)
    for error in errors:
        click.echo(f"error: {error}", err=True)
    return 1 if errors else 0


def cell(text: str | None) -> str:
    """Foreign text as a cell of a table: printable, and no markup; ``-`` for none."""
    return escape(printable(text)) if text else "-"


def print_json(document: Any) -> None:
    """JSON on stdout, readable and without escaping other scripts.

    Local names need not be UTF-8; what cannot be printed of them is escaped.
    """
    text = json.dumps(document, ensure_ascii=False, indent=2)
    click.echo(text.encode("utf-8", "backslashreplace").decode())
