"""Options and output that `ingest`, `backfill` and `replay` share: they request files."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, replace
from functools import wraps
from typing import TYPE_CHECKING, Any

import click

from blizzard_core.cli import json_option, print_json, print_table
from blizzard_core.text import are, counted, printable
from blizzard_py.commands.options import Body, dry_run_option, why_option
from blizzard_py.commands.requests import (
    following,
    no_wait_option,
    print_result,
    take_over_option,
    waits,
)

if TYPE_CHECKING:
    from blizzard_core.settings.document import Config
    from blizzard_py.app.reingest import ReingestResult
    from blizzard_py.app.submit import RequestOrder, Waits


# Files printed one by one.
_PRINTED = 200

assume_missing_option = click.option(
    "--assume-missing",
    is_flag=True,
    help="Assume the table has no row of these files. Check the table first.",
)
_ASSUME_NAMED = click.option(
    "--assume-named",
    is_flag=True,
    help="With --replace: assume every row names its source file, even if unverified.",
)


def request_options(
    *, replaces: bool = False, why: Callable[[Body], Body] = why_option
) -> Callable[[Body], Body]:
    """Return the options of a command that requests work; ``replaces``: it has --replace.

    The function gets ``how``, the way to wait for the request, in place of the options for it; it
    is None for a command that writes nothing.
    """
    options: list[Any] = [
        why,
        dry_run_option,
        no_wait_option,
        take_over_option,
        json_option,
    ]
    if replaces:
        options = [
            click.option("--replace", is_flag=True, help="Replace the files' rows in the table."),
            _ASSUME_NAMED,
            *options,
        ]

    def decorate(function: Body) -> Body:
        @wraps(function)
        def with_how(
            *, dry_run: bool, no_wait: bool, take_over: bool, as_json: bool, **given: Any
        ) -> Any:
            how = waits(no_wait=no_wait, take_over=take_over)
            if as_json:  # a program that reads the output gets the document alone
                how = replace(how, tell=lambda _line: None)
            return function(how=None if dry_run else how, as_json=as_json, **given)

        decorated: Body = with_how
        for option in reversed(options):
            decorated = option(decorated)
        return decorated

    return decorate


@dataclass(frozen=True, slots=True)
class Ordering:
    """A source whose owner is to do something, and how a command waits for it and prints it."""

    config: Config
    where: tuple[str, str]
    how: Waits | None
    as_json: bool

    def bring(self, order: RequestOrder) -> int:
        """Request files and print the outcome of each; return the exit code."""
        from blizzard_py.app.reingest import bring

        with following():
            found = bring(self.config, self.where, order, self.how)
        return answer({"/".join(self.where): found}, as_json=self.as_json)

    def mark(self, order: RequestOrder, message: str) -> int:
        """Request work that polls do, and print ``message`` about it; return the exit code."""
        from blizzard_py.app.submit import submit_and_follow

        result = None
        if self.how is not None:
            with following():
                result = submit_and_follow(self.config, self.where, order, self.how)
        if self.as_json:
            request = None if result is None else result.id
            print_json({**order.select, "request": request, "dry_run": self.how is None})
            message = ""
        if result is None:
            message = message.replace(" are ", " would be ").replace(" is ", " would be ")
            click.echo(message, nl=bool(message))
            return 0
        return print_result(result, message)


def answer(found: Mapping[str, ReingestResult], *, as_json: bool) -> int:
    """Print the outcomes of the files of each source; the exit code."""
    code = max(map(exit_code_of, found.values()), default=0)
    if as_json:
        print_json({**_document(found), "exit_code": code})
    else:
        _print(found)
    return code


def exit_code_of(brought: ReingestResult) -> int:
    """Return the exit code of a command by its request's end and its files. Prints a bad end."""
    code = 0 if brought.request is None else print_result(brought.request, "")
    return code or int(brought.is_unmended)


def _document(found: Mapping[str, ReingestResult]) -> dict[str, Any]:
    return {
        "files": [
            {"source": name, **asdict(line)} for name, each in found.items() for line in each.files
        ],
        "requests": [each.request.id for each in found.values() if each.request is not None],
        "rows": sum(each.rows for each in found.values()),
        "failed_again": sum(each.failed_again for each in found.values()),
        "replaced": sum(
            line.before
            for each in found.values()
            for line in each.files
            if line.state in {"replaced", "would replace"}
        ),
        "blocked": {name: each.blocked for name, each in found.items() if each.blocked is not None},
    }


def _print(found: Mapping[str, ReingestResult]) -> None:
    lines = [(name, line) for name, each in found.items() for line in each.files]
    if not lines and any(each.request and each.request.state != "done" for each in found.values()):
        return  # that nothing came of it is said already
    noun = next((each.noun for each in found.values()), "file")
    print_table(
        ("source", noun, "state", "rows before", "found by", "why"),
        (
            [
                *(name, line.path, line.state),
                *(f"{line.before:,}" if line.found_by else "", line.found_by, line.reason),
            ]
            for name, line in lines[:_PRINTED]
        ),
    )
    if len(lines) > _PRINTED:
        click.echo(f"And {len(lines) - _PRINTED:,} more; `blizzard requests show --files` has all.")
    states = Counter(line.state for _, line in lines)
    counts = ", ".join(f"{count:,} {state}" for state, count in states.items())
    click.echo(counts or f"No {noun} was selected.")
    would = [line for _, line in lines if line.state == "would replace"]
    if would:
        before = sum(line.before for line in would)
        click.echo(f"{counted(len(would), noun)} would replace {counted(before, 'row')}.")
    if any(each.request is not None for each in found.values()):
        rows = sum(each.rows for each in found.values())
        files = counted(states["ingested"] + states["replaced"], noun)
        before = sum(line.before for _, line in lines if line.state == "replaced")
        place = f", in the place of {counted(before, 'row')}" if before else ""
        click.echo(f"{counted(rows, 'row')} of {files} {are(rows)} in{place}.")
    failed = sum(each.failed_again for each in found.values())
    if failed:
        click.echo(
            f"{counted(failed, 'record')} failed again, with new letters. Correct the schema and"
            " replay them, or correct their file and add --replace, which takes it as a whole."
        )
    for name, each in found.items():
        if each.blocked is not None:
            blocked = f"{name}: groups of this source wait behind one that waits: {each.blocked}"
            click.echo(printable(blocked))
