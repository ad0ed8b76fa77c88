"""The product's commands, run by operators beside the daemons: replay, backfill, rewind."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.errors import BlizzardError, StateError, StorageError
from blizzard_core.storage.protocol import is_hidden, order_key
from blizzard_core.watermark.paths import split
from blizzard_py.app.submit import RequestOrder, Waits, submit_request
from blizzard_py.app.workers import source_pipeline
from blizzard_py.dead_letters import reader as letters
from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_store import EditRefused
from blizzard_py.edits.rebuild import Rebuild
from blizzard_py.edits.rebuild.decide import Rebuilt
from blizzard_py.edits.rename import Rename
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestResult
from tests.simulation import adaptor, check, manual_changes, ranges
from tests.simulation.engine import ROWS
from tests.simulation.faults import Shot
from tests.simulation.plan import Event, source_uri
from tests.simulation.processes import Process, drained
from tests.simulation.world import SINK, Edit, SimulatedWorld

if TYPE_CHECKING:
    from tests.simulation.director import Director

# A command that died or was refused is given again after so long, so often.
AGAIN_SECS = 40.0
TIMES = 4
# Whoever follows a request looks often for so long, and then seldom.
_SOON_SECS, _SELDOM_SECS = 3600.0, 600.0


def run(director: Director, found: Event) -> None:
    """Give a command in a process of its own, which may die of the event's fault."""
    world = director.world
    command = partial(_COMMANDS[found.kind], director, found)
    world.counts[f"command {found.kind}"] += 1
    _begin(director, found, command)
    # Whoever gave it looks after it until it is done.
    world.to_do.append(partial(_again, director, found, command))


def _begin(director: Director, found: Event, command: Callable[[Process], None]) -> None:
    world = director.world
    process = Process(world, found.kind, world.counts[f"command {found.kind}"])
    process.faults.on_death = process.died
    if found.get("fault"):
        secs = found.get("secs", 0.0)
        shot = Shot(found["fault"], found["place"], found["countdown"], secs)
        process.faults.armed.append(shot)
    world.note(f"operator: {process.name} is given")
    world.scheduler.spawn(process, partial(_life, process, command))


def _again(director: Director, found: Event, command: Callable[[Process], None]) -> None:
    world = director.world
    process = Process(world, f"{found.kind}-again", world.counts[f"command {found.kind}"])

    def times() -> None:
        for _ in range(TIMES):
            world.scheduler.sleep(AGAIN_SECS)
            _life(process, command)

    world.scheduler.spawn(process, times)


def _life(process: Process, command: Callable[[Process], None]) -> None:
    world = process.world
    try:
        command(process)
    except BlizzardError as error:
        world.note(f"{process.name}: {type(error).__name__}: {str(error)[:200]}")
    except Exception as error:
        world.problems[f"a {process.kind} died of {error!r}"] += 1
    else:
        world.note(f"{process.name} is done")


def replay(_director: Director, found: Event, process: Process) -> None:
    """Every open letter of a source is brought after all."""
    world, number = process.world, found.get("source", 0)
    live = process.parts(number)
    there = [each.id for each in letters.objects(live.stores.dlq, live.letters_id)]
    if there:
        requested(process, number, RequestOrder("reingest", {"letters": there}))
        world.counts["letters replayed"] += len(there)


def backfill(_director: Director, found: Event, process: Process) -> None:
    """Ingest the files below the origin of the cold start."""
    number = found.get("source", 0)
    chosen = ranges.below_origin(process, number)
    if chosen is not None:
        requested(process, number, chosen.order("add"))


def replayed(_director: Director, found: Event, process: Process) -> None:
    """Ingest a range again on purpose; with ``anew`` also one that was ingested again before."""
    anew = ranges.is_second_reading(process.world, found)
    order = ranges.chosen(found).order("again", once_more=anew)
    requested(process, found.get("source", 0), order)
    process.world.counts["ranges replayed"] += 1


def requested(
    process: Process, number: int, order: RequestOrder, how: str = "followed"
) -> RequestResult:
    """Submit a request of a source: follow it, leave it to the daemon, or insist on doing it."""
    world = process.world
    began = world.now

    def look_later(secs: float) -> None:
        # A daemon may pause for days, and a run has an end.
        world.scheduler.sleep(secs if world.now - began < _SOON_SECS else _SELDOM_SECS)

    waits = Waits(
        look_later,
        process.clock,
        lambda line: world.note(f"{process.name}: {line}"),
        wait=how != "left",
        take_over=how == "here" and not world.calm,
    )
    told = submit_request(process.parts(number), order, waits, partial(_bring, process, number))
    world.counts[f"requests {told.state}"] += 1
    world.note(f"{process.name}: request {told.id} is {told.state} {told.reason}")
    return told


def rewound(director: Director, found: Event, process: Process) -> None:
    """Set a partition's watermark to its own value, back by some names, or to nothing.

    What the command says beforehand will be skipped or come again is excused, by name.
    """
    world, number = director.world, found.get("source", 0)
    if world.deeds[f"rewound {found.at}"] or world.calm:
        return
    source = source_pipeline(process.parts(number))
    seen = checkpoint_edit.read_checkpoint(source)
    checkpoint_edit.require_not_publishing(source, seen.state)
    known = {p: k for p, k in seen.state.position.progress.partitions.items() if k.watermark}
    if not known:
        return
    partition = min(known)
    name, back = str(known[partition].watermark), found.get("back", 0)
    if back:
        depth = seen.state.position.progress.depth or 0
        uri = source_uri(number)
        there = (split(path, depth) for path in world.bucket(uri).objects)
        names = {n for p, n in there if p == partition and order_key(n) < order_key(name)}
        # Further back than there are names: all of it again.
        name = ([""] * back + sorted(names, key=order_key))[-back]
    after = checkpoint_edit.with_watermark(seen.state, partition, name)
    told = checkpoint_edit.effect(source, seen.state, after)
    uri = source_uri(number)
    epoch = 0 if seen.writer is None else seen.writer.epoch
    edit = Edit(frozenset(told.again), frozenset(told.skipped), (partition, name))
    world.edited(uri, epoch, (*world.edits[uri], edit))
    world.deeds[f"rewound {found.at}"] += 1
    checkpoint_edit.change(
        source,
        seen,
        lambda state: checkpoint_edit.with_watermark(state, partition, name),
        process.clock(),
    )


def ingest(director: Director, found: Event, process: Process) -> None:
    """Name some files to ingest, whatever they are and whichever source has them.

    The command follows its request, leaves it to the daemon, or insists on doing it here.
    """
    world, number = director.world, found.get("source", 0)
    paths = _chosen(world, found, source_uri(number))
    world.given.update((source_uri(number), path) for path in paths)
    files = {"files": [*paths, "nowhere.ndjson"]}
    requested(process, number, RequestOrder("reingest", files), found.get("how", "followed"))


def _chosen(world: SimulatedWorld, found: Event, uri: str) -> list[str]:
    """Return the files of a command, the same at each repetition; at times one of them twice."""
    if found.at not in world.chosen:
        there = sorted(world.bucket(uri).objects)
        if found.get("lettered"):
            named = {path.removeprefix(f"{uri}/") for path in check.open_letters(world)}
            there = [path for path in there if path in named]
        if found.get("folder"):
            there = [path for path in there if path.startswith(found["folder"])]
        some = world.chance.sample(there, min(len(there), found["count"]))
        world.chosen[found.at] = [*some, *some[:1]] if found.get("twice") else some
    return world.chosen[found.at]


def _bring(process: Process, number: int) -> int:
    """Do what is requested of a source, as its owner; as a command does where no daemon runs."""
    process.world.counts["requests done by commands"] += 1
    worker = adaptor.source_pipeline(process.parts(number), requests_only=True)
    code = drained(process, worker)
    with suppress(StateError, StorageError):
        worker.release()
    worker.close()
    return code


def cancelled(_director: Director, found: Event, process: Process) -> None:
    """One of the requests that are open is cancelled, however far it is."""
    world, parts = process.world, process.parts(found.get("source", 0))
    mailbox = Mailbox(parts.stores.sink, parts.id)
    there = sorted(mailbox.contents().open)
    if there and not world.calm:
        mailbox.cancel(there[-1], "ann@ops-3", "2024-01-28T14:00:00+00:00", "a typo")
        world.counts["requests cancelled"] += 1


def rebuild(director: Director, found: Event, process: Process) -> None:
    """Rebuild a lost checkpoint; restore it where a rebuild would be guessing."""
    world = director.world
    number = found.get("source", 0)
    there = adaptor.checkpoint_path(world.settings, number) in world.bucket(SINK).objects
    done = f"rebuilt at {found.at}: {found}"
    if there and (not found.get("over") or world.deeds[done]):
        return
    job = Rebuild(process.parts(number))
    done_before = _passed(world, number) if found.get("done_before") else None
    try:
        rebuilt = job.plan(done_before)
    except EditRefused as error:
        world.counts["rebuilds refused"] += 1
        world.note(f"{process.name}: {error}")
        found["otherwise"]()
        world.deeds[done] += 1
        return
    for tries in range(TIMES):
        try:
            job.write(rebuilt)
            break
        except EditRefused:
            if not found.get("over") or tries == TIMES - 1:
                raise
            rebuilt = job.plan(done_before)  # a daemon that refuses it has started meanwhile
    world.deeds[done] += 1
    _excuse(world, number, rebuilt)
    latest = director.latest("blizzard")
    if not latest.is_over and not latest.is_well:
        # A worker of it has refused what was there, or that nothing was, and others go on.
        latest.died()
    world.counts["checkpoints rebuilt"] += 1


def _excuse(world: SimulatedWorld, number: int, rebuilt: Rebuilt) -> None:
    """Record the files that a rebuild reports as done without a trace, or as dropped."""
    uri = source_uri(number)
    world.accepted.update((uri, path) for path in rebuilt.by_operator)
    world.unsure.update(
        (uri, entry.path)
        for each in rebuilt.batches
        if each.judgement == "letters"
        for entry in each.batch.files
    )


def _passed(world: SimulatedWorld, number: int) -> str | None:
    """Return the point up to which the table has a source's rows; the table decides."""
    uri = source_uri(number)
    held = world.bucket(SINK).objects
    rows = {
        row
        for path, each in held.items()
        if path.endswith(".parquet") and not is_hidden(path)
        for row in ROWS.get(each.data, ())
    }
    # What was taken out on purpose is not to come again.
    rows |= {row for taken in world.withdrawn.values() for row in taken}
    files = [file for (source, _), file in world.files.items() if source == uri]
    there = [f.path for f in files if any(rows.intersection(v.rows) for v in f.versions)]
    if not there:
        return None
    said = f"{max(there, key=order_key)}!.ndjson"
    world.done_before[uri] = max(order_key(said), world.done_before.get(uri, b""))
    skipped = {f.path for f in files if order_key(f.path) < order_key(said)}.difference(there)
    split_at = split(said, world.plan.depth)
    world.edits[uri] = (*world.edits[uri], Edit(frozenset(), frozenset(skipped), split_at))
    world.deeds["letters unpublished"] += 1
    world.note(f"operator: everything below {said} is said to be done")
    return said


def moved(director: Director, found: Event, process: Process) -> None:
    """Take a source's state to another name, then change the configuration."""
    world, number = director.world, found.get("source", 0)
    if world.settings != world.right:
        return
    meant = replace(world.right, carried=tuple(sorted({*world.right.carried, number})))
    # A daemon that is at work meanwhile is told that it is not to be.
    world.excused.update({"is being renamed to", "was renamed to"})
    Rename(process.parts(number, meant), f"{adaptor.PIPELINE}_s{number}").run()
    if meant != world.right:
        world.counts["states renamed"] += 1
        world.right = meant
        director.rolled_out(meant, f"source {number} has its new name")


_COMMANDS = {
    "replay": replay,
    "backfill": backfill,
    "replayed": replayed,
    "rewound": rewound,
    "ingest": ingest,
    "cancelled": cancelled,
    "rebuild": rebuild,
    "moved": moved,
    "rolled_back": manual_changes.rolled_back,
    "discarded": manual_changes.discarded,
    "redone": manual_changes.redone,
}
