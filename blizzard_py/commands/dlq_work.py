"""``blizzard dlq show`` and ``dlq discard``: dead letters one by one."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import asdict
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import command, config_argument, json_option, print_json, print_table
from blizzard_core.redact import redacted
from blizzard_core.text import are, counted, printable, shortened
from blizzard_py.commands.options import source_options
from blizzard_py.commands.reingest_options import how_to_wait
from blizzard_py.commands.requests import (
    following,
    no_wait_option,
    print_result,
    take_over_option,
)

if TYPE_CHECKING:
    from blizzard_py.app.letters import LetterView


# How much of a line is shown.
_SHOWN_CHARS = 500


@command(
    "show",
    examples=(
        "blizzard dlq show config.yaml --pipeline events --source main --letter ID --line 3",
    ),
)
@config_argument
@source_options(required=True)
@click.option(
    "--letter", metavar="ID", required=True, help="One object, by its id from `dlq list`."
)
@click.option(
    "--line", type=click.IntRange(min=1), help="For single records: the one of this line."
)
@click.option(
    "--context",
    type=click.IntRange(0, 100),
    default=2,
    show_default=True,
    help="Lines before and after the bad one.",
)
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=10,
    show_default=True,
    help="Maximum number of letters.",
)
@json_option
def show(
    config: Path,
    pipeline: str,
    source: str,
    letter: str,
    line: int | None,
    context: int,
    limit: int,
    as_json: bool,
) -> int:
    """Show dead letters with the bad line and its neighbours in the source's file.

    The bad line comes from the letter, its neighbours from the file as it is now. Control
    characters are escaped, and long lines are cut in the middle.
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.letters import show_letters

    found = show_letters(load_config(config), (pipeline, source), letter, line, context)
    some = list(islice(found, limit))
    if as_json:
        print_json({"letters": [_json_of(each) for each in some]})
    else:
        for each in some:
            _print_shown(each)
    if next(found, None) is not None:
        click.echo(f"There are more than {limit:,}; --limit and --line choose others.", err=True)
    if not some:
        click.echo("No letter of that line.", err=True)
    return int(not some)


def _text(line: bytes) -> str:
    """Return a foreign line in printable form."""
    return printable(shortened(redacted(line.decode("utf-8", "backslashreplace")), _SHOWN_CHARS))


def _json_of(shown: LetterView) -> dict[str, object]:
    letter = shown.letter
    return {
        "path": letter.uri,
        "line": shown.line or None,
        "stage": letter.stage,
        "error": letter.error,
        "timestamp": letter.timestamp,
        "lines": [{"line": number, "text": _text(raw)} for number, raw in shown.lines],
        "note": shown.note or None,
    }


def _print_shown(shown: LetterView) -> None:
    letter = shown.letter
    at = f" line {shown.line:,}" if shown.line else ""
    click.echo(printable(f"{letter.uri}{at}, {letter.stage}, {letter.timestamp[:19]} UTC"))
    click.echo(f"  {printable(letter.error)}")
    if shown.note:
        click.echo(f"  note: {printable(shown.note)}")
    width = max((len(str(number)) for number, _ in shown.lines), default=0)
    for number, raw in shown.lines:
        mark = ">" if number == shown.line else " "
        click.echo(f"  {mark} {number:>{width}}  {_text(raw)}")


@command(
    "discard",
    examples=(
        (
            "blizzard dlq discard config.yaml --pipeline events --source main --letter ID"
            ' --why "test data of the vendor"'
        ),
    ),
)
@config_argument
@source_options(required=True)
@click.option("--letter", metavar="ID", help="One object, by its id from `dlq list`.")
@click.option("--all", "everything", is_flag=True, help="All present objects.")
@click.option("--why", metavar="TEXT", required=True, help="Reason, for the record.")
@click.option("--dry-run", is_flag=True, help="Show what would be done; write nothing.")
@no_wait_option
@take_over_option
@json_option
def discard(
    config: Path,
    pipeline: str,
    source: str,
    letter: str | None,
    everything: bool,
    why: str,
    dry_run: bool,
    no_wait: bool,
    take_over: bool,
    as_json: bool,
) -> int:
    """Close dead letters without ingesting them, with a reason.

    The files and records stay out of the table; `dlq list --replayed` and `explain` show who closed
    them, when and why. It is a request.
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.letters import discard_letters

    if (letter is None) != everything:
        raise click.UsageError("give either --letter ID or --all")
    if not why.strip():
        raise click.UsageError("--why: give a reason, for the record")
    how = how_to_wait(no_wait=no_wait, take_over=take_over, dry_run=dry_run, as_json=as_json)
    loaded, where = load_config(config), (pipeline, source)
    with following():
        done, result = discard_letters(loaded, where, letter, redacted(why.strip()), how)
    code = 0 if result is None else print_result(result, "")
    if as_json:
        closed = [] if code else list(map(asdict, done))
        request = None if result is None else result.id
        print_json({"closed": closed, "request": request, "dry_run": dry_run})
        return code
    if code:
        return code
    print_table(("id", "kind", "letters"), ([e.id, e.kind, f"{e.letters:,}"] for e in done))
    click.echo(summary((each.letters for each in done), "would be" if dry_run else ""))
    return 0


def summary(letters: Iterable[int], verb: str) -> str:
    """Return how many letters of how many objects were closed."""
    counts = list(letters)
    total = f"{counted(sum(counts), 'letter')} in {counted(len(counts), 'object')}"
    return f"{total} {verb or are(sum(counts))} closed."
