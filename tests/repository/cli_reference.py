"""The page docs/reference/cli.md, from the commands themselves.

    python -m tests.repository.cli_reference [--check]

Texts, options and examples come from click. With ``--check`` a stale page is an error and nothing
is written.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import click

from blizzard_core.cli import GuidedCommand, GuidedGroup
from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin

PAGE = Path("docs/reference/cli.md")
PROGRAMS = {"blizzard": blizzard, "penguin": penguin}
HEAD = """\
# Commands

Generated from the commands by `make docs`; `--help` prints the same. `CONFIG` is the configuration
file. Every command also has `--help` and `--verbose`, which shows the trace of an error. Results
are tables on a terminal and plain columns in a pipe. [Exit codes](exit-codes.md).
"""
COMMON = {"verbose", "help"}


def write_page() -> str:
    """Return the whole page."""
    parts = [HEAD]
    for name, group in PROGRAMS.items():
        for path, command in walk(name, group):
            parts += write_command(path, command)
    return "\n".join(parts) + "\n"


def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that does something, with the words that call it."""
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from walk(f"{path} {name}", child)
    else:
        yield path, command


def write_command(path: str, command: click.Command) -> Iterator[str]:
    """Yield the section of one command: text, usage, options, examples."""
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [p for p in command.params if isinstance(p, click.Option) and p.name not in COMMON]
    context = click.Context(command)
    words = [path, *(argument.make_metavar(context) for argument in arguments)]
    yield f"## {path}\n"
    yield f"{inspect.cleandoc(command.help or '').replace(chr(8), '')}\n"
    yield f"```text\n{' '.join([*words, '[OPTIONS]'] if options else words)}\n```\n"
    if options:
        yield "| option | meaning |\n|---|---|"
        yield from (write_option(option, context) for option in options)
        yield ""
    if isinstance(command, (GuidedCommand, GuidedGroup)) and command.examples:
        yield "```sh\n" + "\n".join(command.examples) + "\n```\n"


def write_option(option: click.Option, context: click.Context) -> str:
    """Return the row of one option."""
    names = ", ".join((*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    shown, help_text = (option.get_help_record(context) or ("", ""))[:2]
    assert shown, option
    return f"| `{_cell(names + value)}` | {_cell(help_text)} |"


def _cell(text: str) -> str:
    return re.sub(r"\s+", " ", text).replace("|", "\\|")


def main(arguments: Sequence[str]) -> str | None:
    """Write the page, or with ``--check`` return an error if it is stale."""
    if "--check" in arguments:
        stale = f"{PAGE}: the commands have changed; run `make docs`"
        return stale if PAGE.read_text("utf-8") != write_page() else None
    PAGE.write_text(write_page(), "utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
