"""The output of ``--replace``: each file with what it had, and what became of it."""

from __future__ import annotations

from collections import Counter
from dataclasses import asdict

import click

from blizzard_core.cli import print_json, print_table
from blizzard_core.text import are, counted, printable
from blizzard_py.replay import Replacement


def answer_replacement(found: Replacement, *, as_json: bool) -> int:
    """Print it; returns the exit code."""
    if as_json:
        print_json(asdict(found))
        return found.exit_code
    print_table(
        ("file", "state", "rows before", "found by", "why"),
        (
            [file.path, file.state, f"{file.rows:,}" if file.by else "", file.by, file.reason]
            for file in found.files
        ),
    )
    states = Counter(file.state for file in found.files)
    if found.groups is None:
        whole = f", {counted(found.outputs, 'output')} as a whole" if found.outputs else ""
        click.echo(
            f"{counted(states['would replace'], 'file')} would replace"
            f" {counted(found.replaced, 'row')}{whole};"
            f" with nothing to replace: {counted(states['would ingest'], 'file')}."
        )
        _print_blocked(found)
        return found.exit_code
    files = counted(states["replaced"] + states["ingested"], "file")
    click.echo(
        f"{counted(found.rows, 'row')} of {files} {are(found.rows)} in, in the place of"
        f" {counted(found.replaced, 'row')}; groups that Penguin commits: {found.groups:,}."
    )
    if states["taken"]:
        click.echo("Some are taken and not finished: run the same command again.")
    _print_blocked(found)
    return found.exit_code


def _print_blocked(found: Replacement) -> None:
    if found.blocked is not None:
        click.echo(printable(f"Groups of this source wait behind one that waits: {found.blocked}"))
