"""``blizzard dlq``: list, show and close dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import asdict
from itertools import islice
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import (
    GuidedGroup,
    json_option,
    print_error,
    print_json,
    print_table,
)
from blizzard_core.redact import redacted
from blizzard_core.text import are, counted, json_safe, printable, shortened
from blizzard_py.commands.options import SourceChoice, required_why_option, source_options
from blizzard_py.commands.reingest_options import request_options
from blizzard_py.commands.requests import following, print_result

if TYPE_CHECKING:
    from blizzard_py.app.letters import LetterView
    from blizzard_py.app.submit import Waits
    from blizzard_py.dead_letters.reader import DeadLetter, DeadLetterObject, UnreadableDeadLetter

    Listed = tuple[str, DeadLetterObject, DeadLetter | UnreadableDeadLetter]


# How much of a line is shown.
_SHOWN_CHARS = 500


@click.group(
    cls=GuidedGroup,
    section="Repair",
    examples=(
        "blizzard dlq list config.yaml                     # what was given up, and why",
        "blizzard dlq show config.yaml --pipeline events --source main --letter LETTER_ID",
        "blizzard replay config.yaml --pipeline events --source main --all",
    ),
)
def dlq() -> None:
    """List, show and close dead letters; `replay` ingests them."""


@dlq.command(
    "list",
    examples=(
        "blizzard dlq list config.yaml --pipeline events --source main --limit 1000",
        "blizzard dlq list config.yaml --json --limit 0 | jq -r .error | sort | uniq -c",
    ),
)
@source_options(required=False)
@click.option(
    "--limit",
    type=click.IntRange(min=0),
    default=100,
    show_default=True,
    help="Maximum number of letters; 0: all.",
)
@click.option("--replayed", is_flag=True, help="Also show closed letters.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per line.")
def list_letters(
    chosen: SourceChoice,
    limit: int,
    replayed: bool,
    as_json: bool,
) -> int:
    """List dead letters: whole files, late files and single records.

    `replay --letter` takes the id. Exit code 1: the queue holds objects that are not dead letters.
    """
    from blizzard_py.app import operations

    loaded = chosen.load()
    where = operations.sources_of(loaded, chosen.pipeline, chosen.source)
    found: Iterator[Listed] = operations.list_dead_letters(loaded, where, replayed=replayed)
    shown = found if not limit else islice(found, limit)
    broken: list[str] = []
    if as_json or not limit:
        _stream(shown, broken, as_json=as_json)
    else:
        letters_shown = list(_sound(shown, broken))
        print_table(_COLUMNS, map(_row, letters_shown))
        objects = len({(name, each.path) for name, each, _ in letters_shown})
        click.echo(
            f"{counted(len(letters_shown), 'letter')} in {counted(objects, 'object')}.", err=True
        )
    if limit and next(found, None) is not None:
        click.echo(f"There are more than {limit:,}; --limit 0 shows all.", err=True)
    for text in broken:
        print_error(text)
    return 1 if broken else 0


_COLUMNS = ("source", "id", "file", "line", "stage", "error", "time (UTC)")


def _sound(
    found: Iterable[Listed], broken: list[str]
) -> Iterator[tuple[str, DeadLetterObject, DeadLetter]]:
    from blizzard_py.dead_letters.reader import UnreadableDeadLetter

    for name, where, letter in found:
        if isinstance(letter, UnreadableDeadLetter):
            broken.append(str(letter))
        else:
            yield name, where, letter


def _row(found: tuple[str, DeadLetterObject, DeadLetter]) -> list[str]:
    name, where, letter = found
    return [
        name,
        where.id + (" (replayed)" if where.replayed else ""),
        letter.uri,
        str(letter.line or ""),
        letter.stage,
        letter.error,
        letter.timestamp[:19].replace("T", " "),
    ]


def _stream(found: Iterable[Listed], broken: list[str], *, as_json: bool) -> None:
    """Print one line per letter at once, with tabs between the columns."""
    for name, where, letter in _sound(found, broken):
        if as_json:
            text = json.dumps({"source": name, **letter.to_json(where)}, ensure_ascii=False)
            click.echo(json_safe(text))
        else:
            click.echo("\t".join(printable(text) or "-" for text in _row((name, where, letter))))


@dlq.command(
    "show",
    examples=(
        "blizzard dlq show config.yaml --pipeline events --source main --letter ID --line 3",
    ),
)
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
    chosen: SourceChoice,
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
    from blizzard_py.app.letters import show_letters

    found = show_letters(chosen.load(), chosen.where, letter, line, context)
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


@dlq.command(
    "discard",
    examples=(
        (
            "blizzard dlq discard config.yaml --pipeline events --source main --letter ID"
            ' --why "test data of the vendor"'
        ),
    ),
)
@source_options(required=True)
@click.option("--letter", metavar="ID", help="One object, by its id from `dlq list`.")
@click.option("--all", "everything", is_flag=True, help="All present objects.")
@request_options(why=required_why_option)
def discard(
    chosen: SourceChoice,
    letter: str | None,
    everything: bool,
    why: str,
    how: Waits | None,
    as_json: bool,
) -> int:
    """Close dead letters without ingesting them, with a reason.

    The files and records stay out of the table; `dlq list --replayed` and `explain` show who closed
    them, when and why. It is a request.
    """
    from blizzard_py.app.letters import discard_letters

    if (letter is None) != everything:
        raise click.UsageError("give either --letter ID or --all")
    loaded, where = chosen.load(), chosen.where
    with following():
        done, result = discard_letters(loaded, where, letter, why, how)
    code = 0 if result is None else print_result(result, "")
    if as_json:
        closed = [] if code else list(map(asdict, done))
        request = None if result is None else result.id
        print_json({"closed": closed, "request": request, "dry_run": how is None})
        return code
    if code:
        return code
    print_table(("id", "kind", "letters"), ([e.id, e.kind, f"{e.letters:,}"] for e in done))
    click.echo(summary((each.letters for each in done), "would be" if how is None else ""))
    return 0


def summary(letters: Iterable[int], verb: str) -> str:
    """Return how many letters of how many objects were closed."""
    counts = list(letters)
    total = f"{counted(sum(counts), 'letter')} in {counted(len(counts), 'object')}"
    return f"{total} {verb or are(sum(counts))} closed."
