"""The output of `blizzard checkpoint`: a state, what an edit would do, what was made again."""

from __future__ import annotations

from typing import Any

import click

from blizzard_core.cli import print_table
from blizzard_core.text import counted, in_utc, printable
from blizzard_py.commands.options import compact
from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_edit import Effect
from blizzard_py.edits.checkpoint_store import Stored
from blizzard_py.edits.rebuild import BatchDecision, Rebuilt
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.slices.instants import stamp
from blizzard_py.slices.units.state import unit_key
from blizzard_py.sources.tables.source import AskedSource
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.source_state import SourceState

_SHOWN_FILES = 10


def print_state(where: str, seen: Stored, copies: list[str]) -> None:
    """Everything that a checkpoint says, for people; ``copies`` are the ones kept beside it."""
    state, progress = seen.state, seen.state.progress
    writer = "-" if seen.writer is None else str(seen.writer).removeprefix("writer ")
    lines = [
        ("checkpoint", where if seen.raw is not None else f"{where} (does not exist)"),
        ("writer", writer),
        ("state", progress.state),
        ("watermark", progress.value),
        ("floor", progress.floor),
        *(("floor", its) for _, its in sorted(progress.floors.items())),
        ("depth", None if progress.depth is None else str(progress.depth)),
        ("updated", _moment(state.last_update_ts)),
        ("waiting", f"{len(state.retries):,} for another try, {len(state.queue):,} queued"),
        *(
            (
                "in flight",
                f"{b.batch}, {b.phase}, attempt {b.attempt}, {counted(len(b.files), 'file')}",
            )
            for b in state.in_flight
        ),
        *(("backup", path) for path in copies),
    ]
    if state.columns is not None:
        known = state.columns
        lines += [
            ("columns", compact(known.watermark)),
            ("window", "-" if known.window is None else compact(known.window.up_to)),
            ("windows", f"{known.seq:,} published"),
            ("seen", f"{counted(sum(each.count for each in known.seen), 'row')} told by digests"),
        ]
    if state.units is not None:
        units = state.units
        failing = sum(bool(unit.failures) for unit in units.open.values())
        lines += [
            ("units", f"{len(units.open):,} open, {failing:,} failing, {len(units.redo):,} marked"),
            *(("closed to", f"{to} {name}") for name, to in list(units.closed_to.items())[:20]),
            ("group", f"{state.group_seq:,}"),
        ]
    if state.processed is not None:
        lines.append(("done", f"{counted(sum(s.count for s in state.processed), 'name')} in a set"))
    for name, member in state.members.items():
        done = f"{counted(member.totals.files, 'file')} done, {len(member.queue):,} queued"
        lines.append(("source", f"{name}: {member.progress.value or '-'}, {done}"))
    for name, value in lines:
        click.echo(printable(f"{name:<12}{value or '-'}"))
    if progress.partitions:
        print_table(
            ("partition", "watermark", "scan start", "done above it"),
            (
                [p or "(none)", known.watermark, known.before, f"{len(known.done):,}"]
                for p, known in sorted(progress.partitions.items())
            ),
        )


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else f"{in_utc(seconds)} UTC"


def rebuilt_document(rebuilt: Rebuilt) -> dict[str, Any]:
    """A checkpoint that was made again, for `--json`."""
    progress = rebuilt.state.progress
    return {
        "listed": rebuilt.listed,
        "done": rebuilt.done,
        "said": len(rebuilt.said),
        "watermark": progress.value,
        "floor": progress.floor,
        "floors": dict(progress.floors),
        "batches": [
            {
                "batch": each.batch.batch,
                "files": len(each.batch.files),
                "judgement": each.judgement,
                "why": each.why,
            }
            for each in rebuilt.batches
            if each.judgement != "done"
        ],
        "new": list(rebuilt.new),
    }


_JUDGEMENTS = {
    "publishing": "the next start publishes it",
    "again": "its files are tried again",
    "letters": "its files go to the dead letters",
}


def print_rebuilt(rebuilt: Rebuilt) -> None:
    """A checkpoint that was made again, for people."""
    progress = rebuilt.state.progress
    click.echo(f"{counted(rebuilt.listed, 'file')} listed, {rebuilt.done:,} of them done")
    if rebuilt.said:
        who = "you, or the checkpoint that was there, say so"
        click.echo(f"{len(rebuilt.said):,} of these only because {who}")
    click.echo(printable(f"watermark: {progress.value or '-'}, floor: {progress.floor or '-'}"))
    for each in rebuilt.batches:
        if each.judgement != "done":
            _print_batch(each)
    click.echo(
        f"{counted(len(rebuilt.new), 'new file')}" + (", among them:" if rebuilt.new else "")
    )
    for path in rebuilt.new[:_SHOWN_FILES]:
        click.echo(f"  {printable(path)}")


def _print_batch(each: BatchDecision) -> None:
    what = f"batch {each.batch.batch}, {counted(len(each.batch.files), 'file')}: {each.why};"
    click.echo(printable(f"{what} {_JUDGEMENTS[each.judgement]}"))


def print_effect(found: SourcePipeline, before: SourceState, after: SourceState) -> None:
    """Print what an edit would do at the next poll; a table or an API is asked for that."""
    watermark: Any = before.progress.value, after.progress.value
    click.echo(printable(f"watermark: {watermark[0] or '-'} -> {watermark[1] or '-'}"))
    if isinstance(found.source, AskedSource):
        _print_window(found.source, after)
        return
    if isinstance(found.source, UnitSource):
        _print_units(found.source, after)
        return
    told: Effect = checkpoint_edit.effect(found, before, after)
    for paths, noun, text in (
        (told.skipped, "new file", "would be skipped and not be ingested"),
        (told.again, "passed file", "would be ingested, those done before twice"),
    ):
        click.echo(f"{counted(len(paths), noun)} {text}" + (", among them:" if paths else ""))
        for path in paths[:_SHOWN_FILES]:
            click.echo(f"  {printable(path)}")


def _print_units(source: UnitSource, after: SourceState) -> None:
    """Which units the next poll would read from the new state."""
    due = [unit for unit in source.looked(after).due.units if unit.execute]
    click.echo(f"the next poll would read {counted(len(due), 'unit')}" + (":" if due else ""))
    for unit in due[:_SHOWN_FILES]:
        name = unit_key(unit.partition[0], unit.name)
        click.echo(printable(f"  {name} from {stamp(unit.start)} to {stamp(unit.end)}"))
    if after.units is not None and after.units.anew:
        click.echo("and with the first of them replace all that the source has published")


def _print_window(source: AskedSource, after: SourceState) -> None:
    """What the next poll would read from the new state; the source is asked for that."""
    known = source.looked(after)
    if known.window is None:
        click.echo("the next poll would find nothing to read")
        return
    click.echo(printable(f"the next poll would read up to {compact(known.window.up_to)}:"))
    for task in known.tasks[:_SHOWN_FILES]:
        click.echo(printable(f"  {task.where}"))
    if source.asking.replaces:
        click.echo("which takes the place of all that was published from there on")
    else:
        click.echo("those of its rows that the table has already come twice")
