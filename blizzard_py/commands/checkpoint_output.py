"""Output of `blizzard checkpoint`: a state, the effect of an edit, a rebuilt checkpoint."""

from __future__ import annotations

from typing import Any

import click

from blizzard_core.cli import print_table
from blizzard_core.text import counted, in_utc, printable
from blizzard_py.app.wiring import kind_of
from blizzard_py.edits.checkpoint_store import Stored
from blizzard_py.edits.rebuild.decide import BatchDecision, Rebuilt
from blizzard_py.ingest.source_view import SourceView
from blizzard_py.slices.notation import short_text
from blizzard_py.state.source_state import SourceState

_SHOWN_FILES = 10


def print_state(where: str, seen: Stored, copies: list[str]) -> None:
    """Print a checkpoint for people; ``copies`` are its backups."""
    state, work, progress = seen.state, seen.state.work, seen.state.position.progress
    writer = "-" if seen.writer is None else str(seen.writer).removeprefix("writer ")
    lines = [
        ("checkpoint", where if seen.raw is not None else f"{where} (does not exist)"),
        ("writer", writer),
        ("state", progress.state),
        ("watermark", progress.value),
        ("floor", progress.floor),
        *(("floor", its) for _, its in sorted(progress.floors.items())),
        ("depth", None if progress.depth is None else str(progress.depth)),
        ("updated", _moment(state.summary.last_update_ts)),
        ("waiting", f"{len(work.retries):,} for another try, {len(work.queue):,} queued"),
        *(
            (
                "in flight",
                f"{b.batch}, {b.phase}, attempt {b.attempt}, {counted(len(b.files), 'file')}",
            )
            for b in work.in_flight
        ),
        *(("backup", path) for path in copies),
    ]
    if state.kind.columns is not None:
        known = state.kind.columns
        lines += [
            ("columns", short_text(known.watermark)),
            ("window", "-" if known.window is None else short_text(known.window.up_to)),
            ("windows", f"{known.seq:,} published"),
            ("seen", f"{counted(sum(each.count for each in known.seen), 'row')} told by digests"),
        ]
    if state.kind.units is not None:
        units = state.kind.units
        failing = sum(bool(unit.failures) for unit in units.open.values())
        lines += [
            ("units", f"{len(units.open):,} open, {failing:,} failing, {len(units.redo):,} marked"),
            *(("closed to", f"{to} {name}") for name, to in list(units.closed_to.items())[:20]),
            ("group", f"{state.ids.group_seq:,}"),
        ]
    if state.names.processed is not None:
        names = sum(segment.count for segment in state.names.processed)
        lines.append(("done", f"{counted(names, 'name')} in a set"))
    for name, member in state.members.items():
        done = f"{counted(member.summary.totals.files, 'file')} done"
        reached = member.position.progress.value or "-"
        lines.append(("source", f"{name}: {reached}, {done}, {len(member.work.queue):,} queued"))
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
    """Return a rebuilt checkpoint for `--json`."""
    progress = rebuilt.state.position.progress
    return {
        "listed": rebuilt.listed,
        "done": rebuilt.processed,
        "said": len(rebuilt.by_operator),
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
        "unknown": sorted(rebuilt.unknown),
    }


_JUDGEMENTS = {
    "publishing": "the next start publishes it",
    "again": "its files are tried again",
    "letters": "its files go to the dead letters",
}


def print_rebuilt(rebuilt: Rebuilt) -> None:
    """Print a rebuilt checkpoint for people."""
    progress = rebuilt.state.position.progress
    click.echo(f"{counted(rebuilt.listed, 'file')} listed, {rebuilt.processed:,} of them done")
    if rebuilt.by_operator:
        who = "you, or the checkpoint that was there, say so"
        click.echo(f"{len(rebuilt.by_operator):,} of these only because {who}")
    click.echo(printable(f"watermark: {progress.value or '-'}, floor: {progress.floor or '-'}"))
    for each in rebuilt.batches:
        if each.judgement != "done":
            _print_batch(each)
    click.echo(
        f"{counted(len(rebuilt.new), 'new file')}" + (", among them:" if rebuilt.new else "")
    )
    for path in rebuilt.new[:_SHOWN_FILES]:
        click.echo(f"  {printable(path)}")
    if rebuilt.unknown:
        files = counted(len(rebuilt.unknown), "file")
        click.echo(f"unknown whether rows of {files} are in the table; polls leave them:")
    for path in sorted(rebuilt.unknown)[:_SHOWN_FILES]:
        click.echo(f"  {printable(path)}")


def _print_batch(each: BatchDecision) -> None:
    what = f"batch {each.batch.batch}, {counted(len(each.batch.files), 'file')}: {each.why};"
    click.echo(printable(f"{what} {_JUDGEMENTS[each.judgement]}"))


def print_effect(found: SourceView, before: SourceState, after: SourceState) -> None:
    """Print what an edit would do at the next poll. A query source connects for that."""
    watermark: Any = before.position.progress.value, after.position.progress.value
    click.echo(printable(f"watermark: {watermark[0] or '-'} -> {watermark[1] or '-'}"))
    for line in kind_of(found.parts).effect(found, before, after):
        click.echo(line)
