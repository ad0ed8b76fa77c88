"""``blizzard checkpoint log``, ``diff``, ``rollback``: manual changes and their reversal."""

from __future__ import annotations

import time
from collections.abc import Sequence
from contextlib import closing
from dataclasses import asdict
from typing import TYPE_CHECKING

import click

from blizzard_core.cli import command, json_option, print_json, print_table
from blizzard_core.text import counted, in_utc, printable
from blizzard_py.commands.options import (
    SourceChoice,
    confirm,
    dry_run_option,
    print_changed,
    print_paths,
    required_why_option,
    source_options,
    yes_option,
)

if TYPE_CHECKING:
    from blizzard_py.edits.checkpoint_edit import Effect
    from blizzard_py.edits.checkpoint_store import Version


_SHOWN_FILES = 10


@command(
    "log",
    examples=("blizzard checkpoint log config.yaml --pipeline events --source main",),
)
@source_options(required=True)
@json_option
def log(chosen: SourceChoice, as_json: bool) -> int:
    """List the backups of the checkpoint: valid until when, changed by whom, and why.

    Each manual change keeps a backup; the newest 50 are kept.
    """
    from blizzard_py.app.wiring import owner_context
    from blizzard_py.edits.checkpoint_store import CheckpointStore

    owner = owner_context(chosen.load(), chosen.where)
    found = list(CheckpointStore(owner.stores.sink, owner.id).versions())
    if as_json:
        print_json({"versions": [_version_json(each) for each in found]})
        return 0
    columns = ("version", "until (UTC)", "changed by", "why", "watermark", "files", "rows")
    print_table(columns, map(_line, found))
    for each in found:
        if each.error:
            click.echo(printable(f"{each.name} cannot be read: {each.error}"))
    return 0


def _line(found: Version) -> list[str | None]:
    if found.error:
        return [found.name, _moment(found.until), None, "cannot be read", None, None, None]
    return [
        found.name,
        _moment(found.until),
        None if found.note is None else found.note.by,
        None if found.note is None else found.note.why,
        found.state.position.progress.value,
        f"{found.state.summary.totals.files:,}",
        f"{found.state.summary.totals.rows:,}",
    ]


def _moment(seconds: float | None) -> str | None:
    return None if seconds is None else in_utc(seconds)


def _version_json(found: Version) -> dict[str, object]:
    if found.error:
        return {
            "version": found.name,
            "path": found.path,
            "until_ts": found.until,
            "error": found.error,
        }
    return {
        "version": found.name,
        "path": found.path,
        "until_ts": found.until,
        "writer": None if found.writer is None else asdict(found.writer),
        "note": None if found.note is None else asdict(found.note),
        "state": found.state.position.progress.state,
        "watermark": found.state.position.progress.value,
        "totals": asdict(found.state.summary.totals),
    }


@command(
    "diff",
    examples=(
        "blizzard checkpoint diff config.yaml --pipeline events --source main epoch-2 epoch-3",
    ),
)
@source_options(required=True)
@click.argument("before", metavar="VERSION")
@click.argument("after", metavar="[VERSION]", default="now")
@json_option
def diff(chosen: SourceChoice, before: str, after: str, as_json: bool) -> int:
    """Compare two backups of the checkpoint, or one with the present checkpoint.

    For file sources it also lists present files that only one of the two would ingest. Writes
    nothing.
    """
    from blizzard_py.app.configuration import source_of
    from blizzard_py.app.wiring import owner_context, view_of
    from blizzard_py.edits import checkpoint_edit, history
    from blizzard_py.edits.checkpoint_store import CheckpointStore

    loaded, where = chosen.load(), chosen.where
    with closing(view_of(owner_context(loaded, where))) as found:
        store = CheckpointStore(found.sink, found.id)
        old, new = store.version(before), store.version(after)
        differences = history.differences(old.state, new.state)
        effect = None
        if source_of(loaded, where).has_files:
            effect = checkpoint_edit.effect(found, old.state, new.state)
    if as_json:
        lines = [{"what": what, "before": a, "after": b} for what, a, b in differences]
        print_json({"differences": lines, "files": None if effect is None else asdict(effect)})
        return 0
    print_table(("what", before, after), (list(line) for line in differences))
    if effect is not None:
        _print_effect(effect, "with the second, not with the first")
    return 0


def _print_effect(effect: Effect, when: str) -> None:
    _files("would be ingested", effect.again, when)
    _files("would not be ingested", effect.skipped, when)


def _files(what: str, paths: Sequence[str], when: str) -> None:
    click.echo(f"{counted(len(paths), 'file')} {what} {when}{':' if paths else '.'}")
    print_paths(paths, _SHOWN_FILES)


@command(
    "rollback",
    examples=(
        (
            "blizzard checkpoint rollback config.yaml --pipeline events --source main"
            ' --to epoch-3 --why "the wrong source" --dry-run'
        ),
    ),
)
@source_options(required=True)
@click.option("--to", "name", metavar="VERSION", required=True, help="Name from `checkpoint log`.")
@required_why_option
@yes_option
@dry_run_option
def rollback(chosen: SourceChoice, name: str, why: str, yes: bool, dry_run: bool) -> int:
    """Undo a manual change: restore the checkpoint from before it.

    It is refused if the source has published anything since, because those rows would come twice.
    Use `blizzard checkpoint rebuild` then. It is also refused if the version needs missing data.
    Counters stay. A running daemon stops with exit code 3.
    """
    from blizzard_py.app.configuration import source_of
    from blizzard_py.app.event_time import refuse_edit
    from blizzard_py.app.wiring import context_of, view_of
    from blizzard_py.edits import checkpoint_edit, history
    from blizzard_py.edits.checkpoint_store import NOW, CheckpointStore

    loaded, where = chosen.load(), chosen.where
    refuse_edit(loaded, where, "`checkpoint rollback`")
    with closing(view_of(context_of(loaded, where))) as found:
        store = CheckpointStore(found.sink, found.id)
        to, seen = store.version(name), store.load()
        after = history.roll_back(found, seen, to)
        rows = [list(line) for line in history.differences(seen.state, after)]
        print_table(("what", NOW, to.name), rows)
        if source_of(loaded, where).has_files:
            _print_effect(checkpoint_edit.effect(found, seen.state, after), "from then on")
        confirm(found.name, yes=yes, dry_run=dry_run)
        why = f"rollback to {to.name}: {why}"
        backup = checkpoint_edit.change(found, seen, lambda _state: after, time.time(), why)
    print_changed(f"{found.name} is at {to.name} again.", found.sink, backup)
    return 0
