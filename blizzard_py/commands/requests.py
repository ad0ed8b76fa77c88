"""``blizzard requests``: operators' requests and their outcomes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click

from blizzard_core.cli import (
    GuidedGroup,
    config_argument,
    json_option,
    print_json,
    print_table,
)
from blizzard_core.text import counted, iso, printable
from blizzard_py.commands.options import why_option

if TYPE_CHECKING:
    from blizzard_py.app.request_listing import ListedRequest
    from blizzard_py.app.submit import Waits
    from blizzard_py.requests.document import Request
    from blizzard_py.requests.progress import RequestResult
    from blizzard_py.requests.report import ReportLine


# The count that says how far a request has come, by its kind: files, letters, units.
_COUNTED = {
    "reingest": "ingested",
    "close_letters": "closed",
    "mark_units": "units",
    "advance_watermark": "",
}
# The exit code where nobody has accepted a request yet; it stays.
OPEN = 7

no_wait_option = click.option(
    "--no-wait",
    is_flag=True,
    help="Do not wait. The running daemon executes a request; without one this command does.",
)
take_over_option = click.option(
    "--take-over",
    is_flag=True,
    help="Execute it here; a running daemon stops with exit code 3 at its next save.",
)


def waits(*, no_wait: bool, take_over: bool) -> Waits:
    """Return how a command waits for its request."""
    from blizzard_py.app.submit import Waits

    return Waits(time.sleep, time.time, click.echo, wait=not no_wait, take_over=take_over)


@contextmanager
def following() -> Iterator[None]:
    """Say of an interruption that it ends the following alone."""
    try:
        yield
    except KeyboardInterrupt:
        click.echo("No longer following; the request stays. `blizzard requests list` shows it.")
        raise


def print_result(result: RequestResult, done: str) -> int:
    """Print the end of a request; the exit code. ``done`` is said where it was done."""
    if result.state == "done":
        click.echo(done, nl=bool(done))
        return 0
    if result.exit_code:
        click.echo(printable(f"{result.id} is not done: {result.reason}; it stays."), err=True)
        return result.exit_code
    if result.state in {"open", "waiting", "running"}:
        why = f": {result.reason}" if result.reason else " by any daemon yet"
        click.echo(
            printable(
                f"{result.id} is not done{why}. It stays; `blizzard requests list CONFIG` shows it."
            ),
            err=True,
        )
        return OPEN
    click.echo(printable(f"{result.id} was {result.state}: {result.reason}"), err=True)
    return 1


@click.group(
    cls=GuidedGroup,
    section="Repair",
    examples=(
        "blizzard requests list config.yaml",
        "blizzard requests cancel config.yaml 7f3a9c2e.1",
    ),
)
def requests() -> None:
    """List, show and cancel operators' requests."""


@requests.command("list", examples=("blizzard requests list config.yaml",))
@config_argument
@json_option
def list_requests(config: Path, as_json: bool) -> int:
    """List the requests of all sources: author, content and state. Writes nothing."""
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.request_listing import find_requests

    found = list(find_requests(load_config(config)))
    if as_json:
        print_json({"requests": [asdict(each) for each in found]})
        return 0
    columns = ("source", "id", "what", "state", "done", "by", "at")
    print_table(columns, map(_line, found))
    for each in found:
        if each.reason:
            click.echo(printable(f"{each.id} {each.state}: {each.reason}"))
    return 0


def _line(found: ListedRequest) -> list[str | None]:
    request = found.request
    if request is None:
        return [found.source, found.id, "cannot be read", found.state, None, None, None]
    what, done = summarize(request), found.counts.get(_COUNTED[request.kind])
    count = None if done is None else f"{done:,}"
    return [found.source, found.id, what, found.state, count, request.by, request.at]


def summarize(request: Request) -> str:
    """Return in a few words what a request orders."""
    select = request.select
    match request.kind:
        case "reingest":
            return f"{request.options.get('mode', 'add')} {_selected(select)}"
        case "close_letters":
            return f"close {_selected(select)}"
        case "mark_units":
            return f"mark {counted(len(select['units']), 'unit')}"
        case "advance_watermark":
            return f"advance watermark to {iso(select['to_ms'] / 1000)}"


def _selected(select: Mapping[str, Any]) -> str:
    if select.get("range"):
        first, last = select["range"]
        return f"{first} .." if first == last else f"{first} .. {last}"
    if select.get("values"):
        return "{} .. {}".format(*select["values"])
    noun = "letter" if select.get("letters") else "file"
    return counted(len(select.get("letters") or select["files"]), noun)


@requests.command(
    "show",
    examples=("blizzard requests show config.yaml 7f3a9c2e.1 --files",),
)
@config_argument
@click.argument("request_id", metavar="ID")
@click.option("--files", is_flag=True, help="Also show the outcome of each file.")
@json_option
def show(config: Path, request_id: str, files: bool, as_json: bool) -> int:
    """Show one request: its selection, author, reason and state. Writes nothing.

    --files adds the outcome of each file so far: ingested, replaced, present (rows already in the
    table), left (to polls), refused, missing, quarantined, kept (failed; the old rows stay), or
    taken (in progress).
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.request_listing import find_requests, read_report

    loaded = load_config(config)
    for each in find_requests(loaded):
        if each.id != request_id:
            continue
        lines = read_report(loaded, each) if files else []
        if as_json:
            print_json(asdict(each) | ({"files": list(map(asdict, lines))} if files else {}))
            return 0
        for name, value in _facts(each):
            click.echo(printable(f"{name + ':':<8} {value}"))
        if files:
            print_table(("file", "state", "rows", "rows before", "why"), map(_file_row, lines))
        return 0
    click.echo(f"There is no request {request_id}; `blizzard requests list` names them.", err=True)
    return 1


def _file_row(line: ReportLine) -> list[str]:
    rows = f"{line.rows:,}" if line.rows or line.state in {"ingested", "replaced"} else ""
    before = f"{line.before:,}" if line.found_by else ""
    return [line.path, line.state, rows, before, line.reason]


def _facts(found: ListedRequest) -> Iterator[tuple[str, str]]:
    yield "source", found.source
    yield "state", found.state
    if found.reason:
        yield "reason", found.reason
    for name, count in found.counts.items():
        yield name, f"{count:,}"
    if found.request is not None:
        yield "kind", found.request.kind
        yield "by", found.request.by
        yield "at", found.request.at
        yield "why", found.request.why or "-"
        for name, value in found.request.select.items():
            yield name, _shortened(value)


def _shortened(value: object) -> str:
    """Return a selector's value, or the beginning of a long list."""
    if not isinstance(value, list | tuple):
        return str(value)
    more = f" and {len(value) - 10:,} more" if len(value) > 10 else ""
    return ", ".join(map(str, value[:10])) + more


@requests.command(
    "cancel", examples=('blizzard requests cancel config.yaml 7f3a9c2e.1 --why "a typo"',)
)
@config_argument
@click.argument("request_id", metavar="ID")
@why_option
def cancel(config: Path, request_id: str, why: str) -> int:
    """Cancel a request. Finished parts of it stay done.

    Needs only the table's directory, so it works even if the source cannot be reached.
    """
    from blizzard_py.app.configuration import load_config
    from blizzard_py.app.request_listing import cancel_request

    result = cancel_request(load_config(config), request_id, why.strip(), time.time())
    click.echo(
        f"{result.id} is cancelled. If it is being executed now, the next poll of its daemon,"
        " or the command that follows it, ends it."
    )
    return 0
