"""``blizzard dlq``: what was given up, and how it gets in after all."""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import asdict, replace
from itertools import islice
from pathlib import Path

import click

from blizzard_core.cli import (
    GuidedGroup,
    command,
    config_argument,
    json_option,
    log_level_option,
    print_error,
    print_json,
    print_table,
)
from blizzard_core.settings.document import Config
from blizzard_core.signals import INTERRUPTED
from blizzard_core.text import are, counted, json_safe, printable
from blizzard_py.app import operations, unit_operations
from blizzard_py.app.configuration import load_config
from blizzard_py.app.event_time import refuse_rows
from blizzard_py.app.replacing import replace_letters
from blizzard_py.commands.dlq_work import discard, show
from blizzard_py.commands.options import source_options
from blizzard_py.commands.replacing import answer_replacement
from blizzard_py.commands.requests import following, print_result, waits
from blizzard_py.dead_letters.reader import DeadLetter, DeadLetterObject, UnreadableDeadLetter
from blizzard_py.replay import Outcome, Report

Listed = tuple[str, DeadLetterObject, DeadLetter | UnreadableDeadLetter]


@click.group(
    cls=GuidedGroup,
    section="Mend",
    examples=(
        "blizzard dlq list config.yaml                     # what was given up, and why",
        "blizzard dlq replay config.yaml --pipeline events --source main --all --dry-run",
        "blizzard dlq replay config.yaml --pipeline events --source main --all",
    ),
)
def dlq() -> None:
    """Dead letters: list and show what was given up, ingest it after a fix, or close it."""


dlq.add_command(show)
dlq.add_command(discard)


@dlq.command(
    "list",
    examples=(
        "blizzard dlq list config.yaml",
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
    help="Show at most so many letters; 0 shows all.",
)
@click.option("--replayed", is_flag=True, help="Also those that a replay has dealt with.")
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object per letter and line.")
@log_level_option
@command
def list_letters(
    config: Path,
    pipeline: str | None,
    source: str | None,
    limit: int,
    replayed: bool,
    as_json: bool,
) -> int:
    """Show dead letters: whole files, late files and single records.

    The id names the object that a letter is in, for `dlq replay --letter`. Letters
    are read one at a time, however many there are. Exit code 1: there are
    objects in the queue that hold something else.
    """
    loaded = load_config(config)
    where = operations.sources_of(loaded, pipeline, source)
    found: Iterator[Listed] = operations.listed(loaded, where, replayed=replayed)
    shown = found if not limit else islice(found, limit)
    broken: list[str] = []
    if as_json or not limit:
        _stream(shown, broken, as_json=as_json)
    else:
        told = list(_sound(shown, broken))
        print_table(_COLUMNS, map(_row, told))
        objects = len({(name, each.path) for name, each, _ in told})
        click.echo(f"{counted(len(told), 'letter')} in {counted(objects, 'object')}.", err=True)
    if limit and next(found, None) is not None:
        click.echo(f"There are more than {limit:,}; --limit 0 shows all.", err=True)
    for text in broken:
        print_error(text)
    return 1 if broken else 0


_COLUMNS = ("source", "id", "file", "line", "stage", "error", "time (UTC)")


def _sound(
    found: Iterable[Listed], broken: list[str]
) -> Iterator[tuple[str, DeadLetterObject, DeadLetter]]:
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
    """One line per letter, tabs between the columns: nothing is held back to be aligned."""
    for name, where, letter in _sound(found, broken):
        if as_json:
            text = json.dumps({"source": name, **letter.to_json(where)}, ensure_ascii=False)
            click.echo(json_safe(text))
        else:
            click.echo("\t".join(printable(text) or "-" for text in _row((name, where, letter))))


@dlq.command(
    "replay",
    examples=(
        "blizzard dlq replay config.yaml --pipeline events --source main --all --dry-run",
        "blizzard dlq replay config.yaml --pipeline events --source main --all",
        "blizzard dlq replay config.yaml --pipeline events --source main --letter LETTER_ID",
        "blizzard dlq replay config.yaml --pipeline events --source main --all --from-source",
        "blizzard dlq replay config.yaml --pipeline events --source main --all --replace",
    ),
)
@config_argument
@source_options(required=True)
@click.option("--letter", metavar="ID", help="One object, as `dlq list` names it.")
@click.option("--all", "everything", is_flag=True, help="Every object that is there now.")
@click.option("--dry-run", is_flag=True, help="Say what would be done; write nothing.")
@click.option(
    "--from-source",
    is_flag=True,
    help="Take records from their line in the source file as it is now, not from the letter.",
)
@click.option(
    "--replace",
    "replacing",
    is_flag=True,
    help="Ingest the letters' files again as a whole, in the place of their rows of before.",
)
@click.option(
    "--insist",
    is_flag=True,
    help="With --replace: rows of which nobody knows whether they name their file do.",
)
@json_option
@log_level_option
@command
def replay(
    config: Path,
    pipeline: str,
    source: str,
    letter: str | None,
    everything: bool,
    dry_run: bool,
    from_source: bool,
    replacing: bool,
    insist: bool,
    as_json: bool,
) -> int:
    """Ingest dead letters after a fix, exactly once, beside the live daemon.

    Change the schema, or mend the files at the source under their old names, and
    replay. Whole files are read where they lie, records are taken from their
    letters. What fails again has a new letter. Killed at any moment, it goes on where
    it was when it is started again. The live watermarks are not touched. Work units
    are marked instead, by a request, and read again by the daemon.

    With --replace each file that a letter tells of comes again as a whole, also of a letter
    of single records, and its rows of before go in the same commit. Exit codes: 0 done, 1 some
    letters were refused or failed again, 3 another replay has taken over, 130 interrupted.
    """
    if (letter is None) != everything:
        raise click.UsageError("give either --letter ID or --all")
    loaded, where = load_config(config), (pipeline, source)
    refuse_rows(loaded, where, "a replay")
    if insist and not replacing:
        raise click.UsageError("--insist goes with --replace")
    if replacing:
        if from_source or operations.is_asked(loaded, where):
            raise click.UsageError("--replace takes whole files of a source of files")
        found = replace_letters(loaded, where, letter, insist=insist, dry_run=dry_run)
        return answer_replacement(found, as_json=as_json)
    if unit_operations.is_by_units(loaded, where):
        return _replay_units(loaded, where, letter, dry_run=dry_run, as_json=as_json)
    if dry_run:
        outcomes = operations.preview(loaded, where, letter, from_source=from_source)
        if as_json:
            print_json({"outcomes": [asdict(outcome) for outcome in outcomes]})
        else:
            _print_outcomes(outcomes)
        return int(any(outcome.state == "refused" for outcome in outcomes))
    report = operations.replay(loaded, where, letter, from_source=from_source)
    if as_json:
        print_json(asdict(report))
    else:
        _print_report(report)
    return report.exit_code


def _replay_units(
    config: Config, where: tuple[str, str], letter: str | None, *, dry_run: bool, as_json: bool
) -> int:
    found = unit_operations.letters_of_units(config, where, letter)
    result = None
    if not dry_run:
        how = waits(no_wait=False, take_over=False)
        with following():
            # A program that reads the output gets the document alone.
            quiet = replace(how, tell=lambda _line: None) if as_json else how
            result = unit_operations.replay_units(config, where, found, quiet)
    word = "would be" if dry_run else "are"
    told = f"{len(found.units):,} units {word} read again by the next poll, and replaced."
    if as_json:
        print_json({**asdict(found), "dry_run": dry_run})
        told = ""
    if result is not None:
        return print_result(result, told)
    click.echo(told, nl=bool(told))
    return 0


def _print_outcomes(outcomes: Iterable[Outcome]) -> None:
    told: list[Outcome] = list(outcomes)
    if not told:
        click.echo("No open dead letters.")
        return
    print_table(
        ("id", "kind", "state", "letters", "files", "records", "left to others"),
        (
            [o.id, o.kind, o.state, *map(str, (o.letters, o.files, o.records, o.letters_left))]
            for o in told
        ),
    )
    click.echo(_added_up(told))
    for outcome in told:
        for path, reason in outcome.left_to_others:
            click.echo(printable(f"{outcome.id}: {path}: {reason}"))
        if outcome.error:
            print_error(f"{outcome.id}: {outcome.error}")


def _added_up(told: Sequence[Outcome]) -> str:
    """All letters, and where each of them went."""
    parts: Counter[str] = Counter()
    for outcome in told:
        parts[outcome.state] += outcome.letters - outcome.letters_left
        parts["left to others"] += outcome.letters_left
    total = sum(parts.values())
    went = ", ".join(f"{count:,} {state}" for state, count in parts.items() if count)
    return f"{counted(total, 'letter')} in {counted(len(told), 'object')}" + (
        f": {went}." if went else "."
    )


def _print_report(report: Report) -> None:
    if report.exit_code == INTERRUPTED:
        click.echo("Interrupted before all was done: run the same command again.")
    if report.outcomes or report.exit_code != INTERRUPTED:
        _print_outcomes(report.outcomes)
    files = counted(report.ingested, "file")
    click.echo(
        f"{counted(report.rows, 'row')} of {files} {are(report.rows)} in;"
        f" failed again, with new letters: {report.failed_again:,}."
    )
    if report.bad_rows:
        lines = counted(report.bad_rows, "line")
        click.echo(f"{lines} of these files {are(report.bad_rows)} bad, with letters of their own.")
    if any(outcome.state == "taken" for outcome in report.outcomes):
        click.echo("Some are taken and not finished: run the same command again.")
    if any(outcome.state == "left" for outcome in report.outcomes):
        click.echo("What another run has still to do stays open: run it again after that.")
