"""Final checks of the operators' requests: each ends, after any deaths."""

from __future__ import annotations

from collections.abc import Iterator

from blizzard_core.errors import NotFound
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import is_over
from blizzard_py.requests.report import latest_lines
from blizzard_py.state.checkpoint_file import read_state
from tests.simulation import adaptor
from tests.simulation.faults import Faults
from tests.simulation.plan import source_uri
from tests.simulation.scheduler import Owner
from tests.simulation.store import Client
from tests.simulation.world import SINK, SimulatedWorld


def violations(world: SimulatedWorld) -> Iterator[str]:
    """Yield the requests that never ended, and files that an ended one left behind.

    Notes the files that their reports call ingested, or in from before.
    """
    scheduler = world.scheduler
    faults = Faults(Owner("people"), scheduler, world.counts, world.note, world.later)
    sink = Client(world.bucket(SINK), scheduler, faults)
    for number in range(world.settings.sources):
        name = adaptor.source_id(world.settings, number)
        yield from _of_source(world, number, Mailbox(sink, name), sink, name)


def _of_source(
    world: SimulatedWorld, number: int, mailbox: Mailbox, sink: Client, name: str
) -> Iterator[str]:
    state = read_state(sink, name)
    if state is None:
        return
    contents = mailbox.contents()
    for request_id in contents.open:
        known = state.work.requests.get(request_id)
        said = "was not taken" if known is None else f"is {known.state} ({known.reason})"
        yield f"request: {request_id} of {name} was neither done nor ended, it {said}"
    for entry in state.work.queue:
        known = state.work.requests.get(entry.request)
        if entry.request and (known is None or is_over(known.state)):
            yield f"request: {entry.path} is in the queue for {entry.request}, which is over"
    for request_id in contents.ended:
        end = mailbox.end_record(request_id)
        left = [
            line.path for line in latest_lines(mailbox.report(request_id)) if line.state == "taken"
        ]
        if end is not None and end.state == "done" and left:
            yield f"request: {request_id} is done, and nobody has done {left[0]}"
    for request_id in (*contents.ended, *contents.open):
        _note(world, source_uri(number), mailbox, request_id)


def _note(world: SimulatedWorld, uri: str, mailbox: Mailbox, request_id: str) -> None:
    """Record a request's outcome of each file, and the rows that may come twice or stay open."""
    lines = {line.path: line.state for line in mailbox.report(request_id)}
    came = {(uri, path) for path, told in lines.items() if told == "ingested"}
    try:
        mode = mailbox.read(request_id).options.get("mode")
    except NotFound:  # a state of before was put back, and the request was done by then
        mode = None
    world.told_ingested |= came
    # Each of them once more for each request, and no more often.
    world.again.update(came if mode == "again" else ())
    world.redone.update(came if mode == "replace" else ())
    # An object of letters stays as a whole while a file of it is gone.
    stays = {"left", "present"} if "missing" in lines.values() else {"left"}
    world.left.update((uri, path) for path, told in lines.items() if told in stays)
    # Of what people said to be done, or an original has done, nobody has seen the rows.
    known = world.inherited | world.accepted
    present = {(uri, path) for path, told in lines.items() if told == "present"} - known
    if uri not in world.done_before:
        world.told_ingested.update(present)
