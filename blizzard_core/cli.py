"""Shared parts of the two command lines.

Exit codes: 0 done; 1 a pipeline failed; 2 bad configuration or usage; 3 fenced;
4 a secret was renewed, start again; 5 a committer has rejected rows; 130 interrupted
before all was done.

Results go to stdout, logs and errors to stderr. On a terminal results are tables, or
paragraphs where it is too narrow. In a pipe they are aligned columns without boxes, colours or
escapes, so `grep` and `awk` work. An error is one line with its cause and its remedy;
``--verbose`` adds the trace.
"""

from __future__ import annotations

import atexit
import gc
import json
import os
import sys
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from errno import EACCES, EBADF, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EPERM, EROFS
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import click
from rich.cells import cell_len

from blizzard_core.errors import BlizzardError, ConfigError
from blizzard_core.redact import redacted
from blizzard_core.signals import INTERRUPTED
from blizzard_core.text import json_safe, printable, printable_lines

if TYPE_CHECKING:
    from rich.text import Text

    from blizzard_core.storage.protocol import StorageOptions

# While it ends, Python would look through all objects once more: a third of a short command's time.
atexit.register(gc.freeze)

_VERBOSE = "blizzard_py.verbose"
_LOGGING = "blizzard_py.logging"
CONTEXT = {"help_option_names": ["-h", "--help"]}
LOG_LEVELS = ("debug", "info", "warning", "error")
# How many sentences `status` prints about daemons that are down.
PROBLEMS_SHOWN = 5
SHELLS = ("bash", "zsh", "fish")
# The headings of commands, as someone new needs them.
SECTIONS = ("Set up", "Run", "Inspect", "Repair", "Commands")

# A file, or a folder of files.
config_argument = click.argument("config", type=click.Path(path_type=Path), metavar="CONFIG")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
metrics_address_option = click.option(
    "--metrics-address",
    metavar="HOST:PORT",
    help="Serve the status page and metrics here, whatever `metrics` says.",
)
online_option = click.option(
    "--online", is_flag=True, help="Also try the stores and all else, as `doctor` does."
)
once_option = click.option("--once", is_flag=True, help="Ingest what is there now, then exit.")


def _set_level(context: click.Context, _parameter: click.Parameter, level: str) -> None:
    context.meta[_LOGGING] = True
    from blizzard_core import log

    log.configure(level)


def _set_verbose(context: click.Context, _parameter: click.Parameter, verbose: bool) -> None:
    if verbose:
        context.meta[_VERBOSE] = True


_LOG_LEVEL_OPTION = click.Option(
    ["--log-level"],
    type=click.Choice(LOG_LEVELS),
    default="info",
    show_default=True,
    expose_value=False,
    callback=_set_level,
    help="Least severe level to log.",
)
# Accepted before and after the command, so it can be appended after an error.
_VERBOSE_OPTION = click.Option(
    ["-v", "--verbose"],
    is_flag=True,
    expose_value=False,
    callback=_set_verbose,
    help="Show the trace of an error.",
)


class _Guided(click.Command):
    """A command or group whose help ends with examples; ``section`` is its heading in a group's."""

    def __init__(
        self, *args: Any, section: str = "Commands", examples: Sequence[str] = (), **kwargs: Any
    ) -> None:
        super().__init__(*args, **kwargs)
        self.section = section
        self.examples = tuple(examples)
        self.params.append(_VERBOSE_OPTION)

    def format_epilog(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write the examples without wrapping, so they can be copied."""
        if self.examples:
            with formatter.section("Examples"):
                for line in self.examples:
                    formatter.write(f"{'':{formatter.current_indent}}{line}\n")


class GuidedCommand(_Guided):
    """A command whose function returns its exit code; an error ends it with a line and a code."""

    def __init__(self, *args: Any, log_level: bool = True, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        if log_level:
            self.params.insert(-1, _LOG_LEVEL_OPTION)

    def invoke(self, ctx: click.Context) -> NoReturn:
        """Run the function and exit with its code."""
        from blizzard_core import log

        if not ctx.meta.get(_LOGGING):
            # Otherwise libraries print warnings themselves, with traces and secrets.
            log.configure("warning")
        code: int | None
        try:
            _check_locale(sys.getfilesystemencoding())
            code = super().invoke(ctx)
        except (click.exceptions.Exit, click.Abort, click.ClickException, BrokenPipeError):
            raise
        except KeyboardInterrupt:
            # To click it is as if a question was answered with no.
            print_error("interrupted")
            code = INTERRUPTED
        except Exception as error:
            if isinstance(error, BlizzardError):
                text, code = str(error), error.exit_code
            else:
                text, code = _describe_system_error(error) or _describe_bug(error), 1
            print_error(text)
            if ctx.meta.get(_VERBOSE):
                click.echo(printable_lines(redacted(traceback.format_exc())), err=True)
        sys.exit(code)


class GuidedGroup(_Guided, click.Group):
    """A group that lists its commands under headings."""

    command_class = GuidedCommand
    group_class = type

    def list_commands(self, _context: click.Context) -> list[str]:
        """Return the commands in the order they were added, which is the order of need."""
        return list(self.commands)

    def format_commands(self, _context: click.Context, formatter: click.HelpFormatter) -> None:
        """Write one list of commands for each heading."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for name, found in self.commands.items():
            heading = getattr(found, "section", "Commands")
            sections.setdefault(heading, []).append((name, found.get_short_help_str(limit=90)))
        for heading in SECTIONS:
            if heading in sections:
                with formatter.section(heading):
                    formatter.write_dl(sections[heading])


def command(
    name: str | None = None, **attributes: Any
) -> Callable[[Callable[..., int]], GuidedCommand]:
    """Return a decorator that makes a command of a function that returns its exit code."""
    return click.command(name, cls=GuidedCommand, **attributes)


def _check_locale(encoding: str) -> None:
    """Raise `ConfigError` if the locale does not read file names as UTF-8."""
    if encoding.lower().replace("-", "") != "utf8":
        raise ConfigError(
            "environment",
            [f"names of files would be read as {encoding}; set PYTHONUTF8=1 or LC_ALL=C.UTF-8"],
        )


# Errors of the operating system: permissions, full disks, exhausted resources.
_OF_THE_MACHINE = frozenset(
    (EACCES, EBADF, EDQUOT, EFBIG, EIO, EMFILE, ENFILE, ENOMEM, ENOSPC, EPERM, EROFS)
)


def _describe_system_error(error: Exception) -> str | None:
    """Describe an error of the operating system, such as a full disk; None for other errors."""
    if not isinstance(error, OSError) or error.errno not in _OF_THE_MACHINE:
        return None
    where = error.filename or "a file, or where the output goes"
    return f"{where}: {error.strerror}; see to that on this machine and run it again"


def _describe_bug(error: Exception) -> str:
    return (
        f"unexpected {type(error).__name__}: {error} (this is a bug of ours; run it again"
        " with --verbose and report the trace)"
    )


def fencing_notes(places: Iterable[tuple[str, StorageOptions]]) -> Iterator[str]:
    """Yield notes about tables in stores where fencing is weaker.

    ``places`` are URIs with their options. Opens no connection.
    """
    from blizzard_core.storage.opening import delta_options, open_storage

    for uri, options in places:
        try:
            storage = open_storage(uri, options)
        except BlizzardError as error:
            yield str(error)
            continue
        if storage.uri.startswith("s3://") and (
            "AWS_ENDPOINT_URL" in delta_options(uri, options, os.environ)
        ):
            yield (
                f"{storage.uri}: nothing was written, so whether this server honours conditional"
                " writes is tried with the first write of a start, which is refused if it does not;"
                " `doctor` tries it now"
            )


def environment_notes(uris: Iterable[str]) -> Iterator[str]:
    """Yield a note for each kind of store about the variables that add to its options."""
    from blizzard_core.storage.environment import variables_set
    from blizzard_core.storage.opening import scheme_of

    for scheme in sorted({scheme_of(uri) for uri in uris}):
        names = variables_set(scheme, os.environ)
        if names:
            yield (
                f"{scheme}://: the environment sets {', '.join(names)}, for all that"
                " storage_options leave out"
            )


def print_error(text: str) -> None:
    """Print an error on stderr, without credentials and with control characters escaped."""
    coloured = sys.stderr.isatty() and not os.environ.get("NO_COLOR")
    head = click.style("error:", fg="red") if coloured else "error:"
    click.echo(f"{head} {printable_lines(redacted(text))}", err=True)


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
        print_error(error)
    return 1 if errors else 0


def cell(text: str | None) -> str:
    """Return foreign text as a table cell: printable, without markup; ``-`` for none."""
    from rich.markup import escape

    return escape(printable(text)) if text else "-"


class Trouble(str):
    """A cell that needs attention: red on a terminal, plain text elsewhere."""

    __slots__ = ()


def print_problems(problems: Mapping[str, Sequence[Mapping[str, Any]]]) -> None:
    """Print the daemons that are down, by source or table, as errors; of many only the worst."""
    every = [(name, each) for name, found in problems.items() for each in found]
    every.sort(key=lambda entry: (not entry[1]["rows_wait"], entry[1]["daemon"]))
    lines = [f"{name}: {each['text']}" for name, each in every]
    for line in lines[:PROBLEMS_SHOWN]:
        print_error(line)
    if len(lines) > PROBLEMS_SHOWN:
        more = len(lines) - PROBLEMS_SHOWN
        print_error(f"{more:,} more, in `status --json` under `problems`")


def rows_waiting(uncommitted: Mapping[str, Any]) -> str | None:
    """Return the cell of rows that wait for their commit; None if unknown."""
    if uncommitted["files"] is None:
        return None
    return f"{uncommitted['rows']:,}{'' if uncommitted['complete'] else '+'}"


def print_table(columns: Sequence[str], rows: Iterable[Sequence[str | None]]) -> None:
    """Print a table on a terminal, aligned columns elsewhere; ``-`` for an empty cell.

    Text is never cut, since the next command may need it. On a terminal that is too narrow each row
    becomes a paragraph. Cells may hold foreign text: markup and control characters are escaped.
    """
    cells = [[_shown(text) for text in row] for row in rows]
    widths = [max(map(cell_len, column)) for column in zip(columns, *cells, strict=True)]
    if not sys.stdout.isatty():
        for row in (list(columns), *cells):
            padded = (
                text + " " * (width - cell_len(text))
                for text, width in zip(row, widths, strict=True)
            )
            click.echo("  ".join(padded).rstrip())
        return
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    console = Console()
    # A frame takes three characters a column, and one.
    if sum(widths) + 3 * len(widths) + 1 <= console.width:
        table = Table(*columns)
        for row in cells:
            table.add_row(*map(_styled, row))
        console.print(table)
        return
    label = max(map(cell_len, columns[1:]), default=0)
    for first, *others in cells:
        console.print(Text(first, style="bold"), soft_wrap=True)
        for name, text in zip(columns[1:], others, strict=True):
            if text != "-":
                head = (f"  {name}{' ' * (label - cell_len(name))}  ", "dim")
                console.print(Text.assemble(head, _styled(text)), soft_wrap=True)


def _shown(text: str | None) -> str:
    shown = printable(text) if text else "-"
    return Trouble(shown) if isinstance(text, Trouble) else shown


def _styled(text: str) -> Text:
    from rich.text import Text

    return Text(text, style="red" if isinstance(text, Trouble) else "")


def print_json(document: Any) -> None:
    """Print JSON on stdout; unprintable characters are escaped."""
    click.echo(json_safe(json.dumps(document, ensure_ascii=False, indent=2)))


def completion_of(main: click.Group, program: str) -> click.Command:
    """Return the command that prints the completion script of ``main`` for a shell."""
    from click.shell_completion import get_completion_class

    def show(shell: str) -> None:
        found = get_completion_class(shell)
        if found is None:
            raise click.UsageError(f"no completion for {shell}")
        script = found(main, {}, program, f"_{program.upper()}_COMPLETE")
        click.echo(script.source_template % script.source_vars())

    return GuidedCommand(
        "completion",
        params=[click.Argument(["shell"], type=click.Choice(SHELLS))],
        callback=show,
        help="Print a shell completion script.",
        section="Set up",
        log_level=False,
        examples=(
            f'eval "$({program} completion bash)"              # in ~/.bashrc; zsh alike',
            f"{program} completion fish > ~/.config/fish/completions/{program}.fish",
        ),
    )
