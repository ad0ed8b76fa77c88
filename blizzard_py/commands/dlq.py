"""``blizzard dlq``: list, show and close dead letters."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import GuidedGroup, config_argument, print_error, print_table
from blizzard_core.text import counted, json_safe, printable
from blizzard_py.commands.dlq_work import discard, show
from blizzard_py.commands.options import source_options

if TYPE_CHECKING:
    from blizzard_py.dead_letters.reader import DeadLetter, DeadLetterObject, UnreadableDeadLetter

    Listed = tuple[str, DeadLetterObject, DeadLetter | UnreadableDeadLetter]


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


dlq.add_command(show)
dlq.add_command(discard)


@dlq.command(
    "list",
    examples=(
        "blizzard dlq list config.yaml --pipeline events --source main --limit 1000",
        "blizzard dlq list config.yaml --json --limit 0 | jq -r .error | sort | uniq -c",
    ),
)
@config_argument
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
    config: Path,
    pipeline: str | None,
    source: str | None,
    limit: int,
    replayed: bool,
    as_json: bool,
) -> int:
    """List dead letters: whole files, late files and single records.

    `replay --letter` takes the id. Exit code 1: the queue holds objects that are not dead letters.
    """
    from blizzard_py.app import operations
    from blizzard_py.app.configuration import load_config

    loaded = load_config(config)
    where = operations.sources_of(loaded, pipeline, source)
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
