"""``blizzard state``: the open windows of queries over event time."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from blizzard_core.cli import answer, command, config_argument, json_option, print_table
from blizzard_core.text import counted, printable


@command(
    section="Inspect",
    examples=("blizzard state config.yaml --pipeline pages --limit 1000 --json",),
)
@config_argument
@click.option("--pipeline", metavar="NAME", help="Only this pipeline.")
@click.option(
    "--limit",
    type=click.IntRange(min=1),
    default=20,
    show_default=True,
    metavar="N",
    help="Rows shown of each operator, first those that end first.",
)
@json_option
def state(config: Path, pipeline: str | None, limit: int, as_json: bool) -> int:
    """Show the state of queries over event time: open windows, keys and waiting rows.

    Reads a copy of the saved state, so the daemon may run; starts Spark. A row of state is dropped
    once a row arrives whose time is later than its end by more than the delay. Exit code 1: the
    state cannot be read.
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.event_state import event_state

    found = event_state(load_config(config), pipeline, limit)
    return answer((found, []), _print, as_json=as_json)


def _print(document: dict[str, Any]) -> None:
    for name, found in document["pipelines"].items():
        place = printable(f"{name}/{found['source']}")
        click.echo(f"{place}: batch {found['batch']}, watermark {found['watermark'] or '-'}")
        for operator in found["operators"]:
            print_operator(operator)


def print_operator(operator: Mapping[str, Any]) -> None:
    """Print an operator of a query, and the rows of its state that end first."""
    click.echo(f"{operator['name']}: {counted(operator['rows'], 'row')} of state")
    print_table(
        ("ends", "let go by a row after", "key", "value"),
        (
            [
                row["ends"],
                row["let_go_by_a_row_after"],
                json.dumps(row["key"], ensure_ascii=False),
                json.dumps(row["value"], ensure_ascii=False),
            ]
            for row in operator["first"]
        ),
    )
