"""``blizzard replay``: ingest dead letters, or the files of refused outputs, after a fix."""

from __future__ import annotations

from dataclasses import asdict
from typing import TYPE_CHECKING, Any

import click

from blizzard_core.cli import command, print_error, print_json
from blizzard_core.redact import redacted
from blizzard_core.text import counted, printable
from blizzard_py.commands.options import SourceChoice, moment_option, source_options
from blizzard_py.commands.reingest_options import (
    Ordering,
    answer,
    assume_missing_option,
    exit_code_of,
    request_options,
)
from blizzard_py.commands.requests import following, print_result

if TYPE_CHECKING:
    from blizzard_core.settings.document import Config
    from blizzard_py.app.operations import LetterFilter
    from blizzard_py.app.reingest import ReingestResult
    from blizzard_py.app.submit import Waits


@command(
    section="Repair",
    examples=(
        "blizzard replay config.yaml --pipeline events --source main --all --dry-run",
        "blizzard replay config.yaml --pipeline events --source main --letter LETTER_ID",
        "blizzard replay config.yaml --refused --dry-run",
    ),
)
@source_options(required=False)
@click.option("--letter", metavar="ID", help="One object, by its id from `dlq list`.")
@click.option("--all", "everything", is_flag=True, help="All present objects.")
@click.option(
    "--stage", metavar="STAGE", help="Objects with a letter of this stage, such as `late`."
)
@click.option(
    "--reason", metavar="TEXT", help="Objects with a letter whose error contains this text."
)
@click.option(
    "--since",
    metavar="TIME",
    callback=moment_option,
    help="Objects written since, such as 2024-01-28T14:00:00Z.",
)
@click.option(
    "--refused", is_flag=True, help="Source files whose Parquet files Penguin has refused."
)
@click.option(
    "--from-source",
    is_flag=True,
    help="Read records from their line in the present source file, not from the letter.",
)
@assume_missing_option
@request_options(replaces=True)
def replay(
    chosen: SourceChoice,
    letter: str | None,
    everything: bool,
    stage: str | None,
    reason: str | None,
    since: float | None,
    refused: bool,
    from_source: bool,
    replace: bool,
    assume_named: bool,
    assume_missing: bool,
    why: str,
    how: Waits | None,
    as_json: bool,
) -> int:
    """Ingest dead letters again after a fix, exactly once, by a request.

    First change the schema, or correct the files at the source under their old names. Whole files
    are read from the source, single records from their letters. Failures get new letters. Live
    watermarks do not change. Work units are read again instead.

    --replace ingests each file with a letter again as a whole, even for single records, and removes
    its old rows in the same commit. --refused ingests the files whose Parquet files Penguin has
    refused; first correct the configuration or the table.

    Exit codes: 1 some were refused or failed again, 7 no daemon has accepted the request yet; it
    stays.
    """
    from blizzard_py.app.configuration import source_of
    from blizzard_py.app.event_time import refuse_rows
    from blizzard_py.app.operations import LetterFilter

    loaded, where = chosen.load(), chosen.where
    wanted = LetterFilter(letter, stage, reason, since)
    if refused:
        insists = assume_named or assume_missing
        if everything or replace or insists or from_source or wanted != LetterFilter():
            raise click.UsageError("--refused chooses files by --pipeline and --source alone")
        with following():
            return _refused(chosen, loaded, why, how, as_json=as_json)
    if everything == (wanted != LetterFilter()):
        raise click.UsageError("give --all, or which: --letter, --stage, --reason, --since")
    if not all(where):
        raise click.UsageError(
            "give --pipeline and --source; both may be left out only with --refused"
        )
    owner = Ordering(loaded, where, how, as_json)
    refuse_rows(loaded, where, "a replay")
    settings = source_of(loaded, where)
    if (replace and from_source) or ((replace or from_source) and not settings.has_files):
        raise click.UsageError(
            "--replace takes whole files of a source of files, --from-source lines of them"
        )
    if assume_missing and (replace or settings.is_by_units):
        raise click.UsageError("--assume-missing goes with letters of files, without --replace")
    if assume_named and not replace:
        raise click.UsageError("--assume-named goes with --replace")
    if settings.is_by_units:
        if wanted != LetterFilter(letter):
            raise click.UsageError("letters of work units are chosen by --all or --letter alone")
        return _units(owner, letter, why)
    options: dict[str, Any] = {"mode": "replace"} if replace else {}
    options |= {"assume_named": True} if assume_named else {}
    options |= {"assume_missing": True} if assume_missing else {}
    options |= {"from_source": True} if from_source else {}
    return _letters(owner, wanted, options, why)


def _letters(owner: Ordering, wanted: LetterFilter, options: dict[str, Any], why: str) -> int:
    from blizzard_py.app.operations import LetterFilter, letters_chosen
    from blizzard_py.app.submit import RequestOrder

    ids = letters_chosen(owner.config, owner.where, wanted)
    if not ids:
        if owner.as_json:
            return answer({}, as_json=True)
        like = "" if wanted == LetterFilter() else " like that"
        click.echo(f"No open dead letters{like}.")
        return 0
    return owner.bring(RequestOrder("reingest", {"letters": ids}, options, why))


def _units(owner: Ordering, letter: str | None, why: str) -> int:
    from blizzard_py.app import unit_operations

    found = unit_operations.letters_of_units(owner.config, owner.where, letter)
    result = None
    if owner.how is not None:
        with following():
            result = unit_operations.replay_units(owner.config, owner.where, found, why, owner.how)
    word = "would be" if owner.how is None else "are"
    message = f"{len(found.units):,} units {word} read again by the next poll, and replaced."
    if owner.as_json:
        print_json({**asdict(found), "dry_run": owner.how is None})
        message = ""
    if result is not None:
        return print_result(result, message)
    click.echo(message, nl=bool(message))
    return 0


def _refused(
    chosen: SourceChoice, config: Config, why: str, how: Waits | None, *, as_json: bool
) -> int:
    from blizzard_py.app.refused_files import bring_refused

    done, errors = bring_refused(chosen.path, config, (chosen.pipeline, chosen.source), why, how)
    codes = [0, *(error.exit_code for error in errors)]
    found: dict[str, ReingestResult] = {each.source: each.brought for each in done}
    if as_json:
        sources = [asdict(each) for each in done]
        print_json({"sources": sources, "errors": [redacted(str(error)) for error in errors]})
        return max((*codes, *map(exit_code_of, found.values())))
    if not done and not errors:
        click.echo("Nothing is in quarantine.")
    for each in done:
        rows = sum(output.rows for output in each.outputs)
        files = counted(len(each.outputs), "refused Parquet file")
        click.echo(printable(f"{each.source}: {files} with {counted(rows, 'row')}"))
    if done:
        codes.append(answer(found, as_json=False))
    for error in errors:
        print_error(str(error))
    return max(codes)
