"""The page docs/reference/cli.md, from the commands themselves.

    python -m tests.repository.cli_reference [--check]

Texts, options and examples come from click. With ``--check`` a stale page is an error and nothing
is written.
"""

from __future__ import annotations

import inspect
import re
import sys
from collections import Counter
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
file. A command line is `COMMAND CONFIG [OPTIONS]` unless its section shows another. Results are
tables on a terminal and plain columns in a pipe.

Exit codes 0 (done), 2 (bad configuration or usage) and 130 (interrupted) hold for every command; a
section names its others. [All exit codes](exit-codes.md).

## Common options

Every command has `--help` and `--verbose`, which shows the trace of an error. `--log-level` is not
repeated below. Without `--pipeline` or `--source`, a command that does not require them covers all.
"""
EVERYWHERE = {"help", "verbose", "log_level"}


def write_page() -> str:
    """Return the whole page."""
    commands = [found for name, group in PROGRAMS.items() for found in walk(name, group)]
    counts = Counter(
        write_option(option)
        for _, command in commands
        for option in options_of(command)
        if option.name != "verbose"
    )
    common = {row for row, count in counts.items() if count > 1}
    parts = [HEAD, "| option | meaning |\n|---|---|", *sorted(common), ""]
    for path, command in commands:
        parts += write_command(path, command, common)
    return "\n".join(parts) + "\n"


def walk(path: str, command: click.Command) -> Iterator[tuple[str, click.Command]]:
    """Yield each command that does something, with the words that call it."""
    if isinstance(command, click.Group):
        for name, child in command.commands.items():
            yield from walk(f"{path} {name}", child)
    else:
        yield path, command


def options_of(command: click.Command) -> list[click.Option]:
    """Return the options of one command."""
    options = (each for each in command.params if isinstance(each, click.Option))
    return [each for each in options if not each.hidden]


def write_command(path: str, command: click.Command, common: set[str]) -> Iterator[str]:
    """Yield the section of one command: text, usage, options, examples."""
    arguments = [p for p in command.params if isinstance(p, click.Argument)]
    options = [each for each in options_of(command) if each.name not in EVERYWHERE]
    words = [argument.make_metavar(click.Context(command)) for argument in arguments]
    yield f"## {path}\n"
    yield f"{inspect.cleandoc(command.help or '').replace(chr(8), '')}\n"
    if words != ["CONFIG"]:
        usage = " ".join([path, *words, *(["[OPTIONS]"] if options else [])])
        yield f"Usage: `{usage}`.\n"
    required = [each for each in options if each.required]
    shared = [each for each in options if write_option(each) in common and not each.required]
    lists = {"Required": required, "Common": shared}
    if lines := [
        f"{name}: {', '.join(map(_name, found))}." for name, found in lists.items() if found
    ]:
        yield " ".join(lines) + "\n"
    if own := [row for each in options if (row := write_option(each)) not in common]:
        yield "| option | meaning |\n|---|---|"
        yield from own
        yield ""
    if isinstance(command, (GuidedCommand, GuidedGroup)) and command.examples:
        yield "```sh\n" + "\n".join(command.examples) + "\n```\n"


def _name(option: click.Option) -> str:
    return f"`{option.opts[-1]}`"


def write_option(option: click.Option) -> str:
    """Return the row of one option, without whether it is required."""
    context = click.Context(click.Command("any"))
    names = ", ".join((*option.opts, *option.secondary_opts))
    value = "" if option.is_flag else f" {option.make_metavar(context)}"
    shown, help_text = (option.get_help_record(context) or ("", ""))[:2]
    assert shown, option
    help_text = re.sub(r" *\[(required|default: \(all\))\]$", "", help_text)
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
