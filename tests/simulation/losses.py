"""Lost or restored parts of the table's folder, and the operators' answers to refusals.

Whoever put the old parts there has the new ones still: a refused source gets its own back, where
the command that the message names refuses as well.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core import delta_json
from tests.simulation import adaptor, commands, other_writers
from tests.simulation.deltalog import checkpoint
from tests.simulation.plan import Event, event, source_uri
from tests.simulation.store import Bucket, Object
from tests.simulation.world import DLQ, SINK, SimulatedWorld

if TYPE_CHECKING:
    from tests.simulation.director import Director

STATE, FENCE = "_blizzard/", "_blizzard_fence/"
# What people are told, by what they did.
_REFUSALS = {
    # One may be older by a fold of the ledger alone.
    "checkpoint": {"is stale", "the checkpoint lists it and it is missing"},
    "state": {"is stale"},
    "state and fence": {"is stale"},
    "journal": {"that the checkpoint counts", "of the journal is missing. Restore it"},
    "segment": {"the checkpoint lists it and it is missing"},
    "lost state": {"is missing, but"},
    "log": {"is neither staged, nor"},
}


@dataclass(frozen=True)
class Copy:
    """The table's folder and the letters' folder at one moment."""

    sink: dict[str, Object]
    written: dict[str, bytes]
    letters: dict[str, Object]


def copy_of(world: SimulatedWorld) -> Copy:
    """Return a copy of what is there now; objects are replaced and never changed."""
    sink = world.bucket(SINK)
    return Copy(dict(sink.objects), dict(sink.written), dict(world.bucket(DLQ).objects))


def set_aside(director: Director, _found: Event) -> None:
    """Copy the table's folder."""
    world = director.world
    begun = range(world.settings.sources)
    there = world.bucket(SINK).objects
    if world.copy is None and all(
        adaptor.checkpoint_path(world.settings, number) in there for number in begun
    ):
        world.copy = copy_of(world)
        world.note("operator: the table's folder is copied")


def put_back(director: Director, found: Event) -> None:
    """Replace a part of the folder by its copy."""
    world, what = director.world, found["what"]
    if world.copy is None:
        return
    if what == "table":
        _all_put_back(director, world.copy)
        return
    sink = world.bucket(SINK)
    _stopped(director, asleep=bool(found.get("asleep")))
    before = copy_of(world)
    parts = {
        "checkpoint": (adaptor.checkpoint_path(world.settings, 0),),
        "state": (STATE,),
        "state and fence": (STATE, FENCE),
    }[what]
    _replace(sink, world.copy.sink, parts, keeps=bool(found.get("keeps")))
    world.counts[f"put back: {what}"] += 1
    world.note(f"operator: {what} is as it was copied")
    _to_mend(director, found, _REFUSALS[what], partial(_brought_back, director, before, parts))


def part_lost(director: Director, found: Event) -> None:
    """Delete a part of the state; a daemon may be running meanwhile."""
    world, what = director.world, found["what"]
    sink, name = world.bucket(SINK), adaptor.source_id(world.settings, 0)
    begins = {
        "state": STATE,
        "journal": f"{STATE}journal/{name}/",
        "segment": f"{STATE}{name}_ledger/",
    }[what]
    there = sorted(path for path in sink.objects if path.startswith(begins))
    # Before the first commit point a start from nothing is right.
    if not there or not all(map(partial(_committed, world), range(world.settings.sources))):
        return
    if what != "state":
        there = [world.chance.choice(there)]
    if found.get("stopped"):
        _stopped(director)
    before = copy_of(world)
    for path in there:
        sink.delete(path)
    if what == "state":
        # Nothing tells any more that these had failed: they are tried again, and may come in.
        world.unsure.update(_with_letters(world))
    world.counts[f"lost: {what}"] += 1
    world.note(f"operator: {what} is lost ({len(there)} objects)")
    told = _REFUSALS["lost state" if what == "state" else what]
    _to_mend(director, found, told, partial(_found_again, director, before, there))


def _with_letters(world: SimulatedWorld) -> Iterator[tuple[str, str]]:
    """Yield the files that have dead letters of their own."""
    for path, held in world.bucket(DLQ).objects.items():
        if path.endswith(".ndjson") and not path.endswith(".records.ndjson"):
            for line in held.data.splitlines():
                uri = str(json.loads(line).get("path", ""))
                for number in range(world.settings.sources):
                    root = source_uri(number)
                    if uri.startswith(f"{root}/"):
                        yield root, uri.removeprefix(f"{root}/")


def _committed(world: SimulatedWorld, number: int) -> bool:
    record = f"{FENCE}{adaptor.source_id(world.settings, number)}.json"
    held = world.bucket(SINK).objects.get(record)
    return held is not None and bool(json.loads(held.data).get("number"))


def log_cleaned(director: Director, found: Event) -> None:
    """Another engine writes a log checkpoint and deletes the entries that it covers."""
    world = director.world
    sink, table = world.bucket(SINK), other_writers.table_of(world)
    asleep = any(p.paused_until > world.now for p in director.processes["penguin"])
    if table.version < 1 or asleep or world.on_their_way:
        return  # who sleeps would write where an entry has been
    mirror = sink.objects.get(adaptor.MIRROR)
    known = {} if mirror is None else json.loads(mirror.data).get("log", {})
    if max(known.get("version", 0), known.get("own_version", 0)) > table.version:
        return  # entries were taken back; Penguin would ask for them, and they would be gone
    if any(
        number > known.get("own_version", -1) and '"txn"' in text
        for number, text in enumerate(world.log_entries().values())
    ):
        return  # Penguin died before it saved its commit; it would refuse to start for good
    for process in director.processes["penguin"]:
        if not process.is_over:
            process.died()
    checkpoint(_Direct(sink), table)
    for version in range(max(0, table.version - found["left"])):
        sink.delete(delta_json.commit_path(version))
    # Of outputs that were committed, let go and deleted nothing tells any more.
    _to_mend(director, found, _REFUSALS["log"], lambda _number: None)
    world.counts["logs cleaned"] += 1
    world.note(f"another writer: the log is cleaned up to version {table.version}")


class _Direct:
    """Writes that take no time."""

    def __init__(self, bucket: Bucket) -> None:
        self._bucket = bucket

    def put_atomic(self, path: str, data: bytes) -> None:
        self._bucket.put(path, data)


def _all_put_back(director: Director, copy: Copy) -> None:
    """Restore the whole folder and the letters; later files are ingested again."""
    world = director.world
    if world.on_their_way:
        return
    for kind in director.processes:
        for process in director.processes[kind]:
            process.died()
            world.scheduler.kill(process.executors)
    sink = world.bucket(SINK)
    _replace(sink, copy.sink, ("",), keeps=False)
    _replace(world.bucket(DLQ), copy.letters, ("",), keeps=False)
    sink.written = dict(copy.written)
    last = other_writers.table_of(world).version
    world.withdrawn = {v: rows for v, rows in world.withdrawn.items() if v <= last}
    world.counts["put back: table"] += 1
    world.note("operator: the table's whole folder is as it was copied")


def _replace(
    bucket: Bucket, copy: dict[str, Object], parts: tuple[str, ...], *, keeps: bool
) -> None:
    """Put objects back as they were; ``keeps`` leaves those that came since."""
    for path in [p for p in bucket.objects if p.startswith(parts)]:
        if path not in copy and not keeps:
            bucket.delete(path)
    for path, held in copy.items():
        if path.startswith(parts):
            bucket.put_back(path, held)


def _stopped(director: Director, *, asleep: bool = False) -> None:
    """Stop the daemons; ``asleep`` leaves paused ones, which the operators overlook."""
    world = director.world
    for process in director.processes["blizzard"]:
        if process.is_over or (asleep and process.paused_until > world.now):
            continue
        process.died()


# -- what a refusal names --------------------------------------------------------------------


def _to_mend(director: Director, found: Event, told: set[str], back: Callable[[int], None]) -> None:
    """Have people do what a refusal says: first what the plan says, and then what is left."""
    world = director.world
    world.excused |= told
    for number in range(world.settings.sources):
        left = [found.get("remedy", "rebuild"), "rebuild", "back"]
        mend = partial(_refused, director, found.get("secs", 15.0), left, partial(back, number))
        if found.kind == "log_cleaned":
            world.on_refusal.setdefault(number, mend)
        else:
            world.on_refusal[number] = mend


def _refused(
    director: Director, secs: float, left: list[str], back: Callable[[], None], number: int
) -> None:
    world = director.world
    if not left:
        return
    remedy = left.pop(0)
    again = world.on_refusal[number]
    world.on_refusal[number] = _wait

    def mended() -> None:
        if world.on_refusal[number] is _wait:
            world.on_refusal[number] = again  # nothing else was lost meanwhile
        if director.latest("blizzard").is_well:
            left.insert(0, remedy)  # it was refused while what was done before was under way
            return
        if remedy == "back":
            back()
            return
        world.rebuilt.add(number)
        more = {"source": number, "done_before": remedy == "done before" or None}
        commands.run(director, event(world.now, "rebuild", otherwise=back, over=True, **more))

    world.after(secs, mended)


def _wait(_number: int) -> None:
    """People know of the refusal, and are about to do something about it."""


def _brought_back(director: Director, before: Copy, parts: tuple[str, ...], number: int) -> None:
    """Restore the newest version of a source's whole state."""
    world = director.world
    _stopped(director)
    sink, name = world.bucket(SINK), adaptor.source_id(world.settings, number)
    for path in [p for p in {*sink.objects, *before.sink} if p.startswith(parts) and name in p]:
        if path in before.sink:
            sink.put_back(path, before.sink[path])
        else:
            sink.delete(path)
    world.note(f"operator: the newest state of source {number} is brought back")


def _found_again(director: Director, before: Copy, lost: list[str], number: int) -> None:
    """Bring the lost state of a source back."""
    world = director.world
    _stopped(director)
    sink, name = world.bucket(SINK), adaptor.source_id(world.settings, number)
    for path in lost:
        if name in path and path not in sink.objects:
            sink.put_back(path, before.sink[path])
    world.note(f"operator: what was lost of source {number} is brought back")
