"""Other writers of the table, and operators who change its log: each acts in one step."""

from __future__ import annotations

import io
import json
import sys
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core import delta_json
from blizzard_core.storage.protocol import is_hidden, join
from penguin_py.delta.output_ids import FOLDER
from penguin_py.intake.naming import is_grouped
from tests.simulation.deltalog import Table
from tests.simulation.engine import parquet, rows_of
from tests.simulation.plan import Event
from tests.simulation.world import SINK, SimulatedWorld

if TYPE_CHECKING:
    from tests.simulation.director import Director

# What other writers' files are called, which no committer takes.
THEIRS = "part-"


def is_theirs(path: str) -> bool:
    """Return whether another writer made the file."""
    return path.rpartition("/")[2].startswith(THEIRS)


# -- hostile files ------------------------------------------------------------------------


def stray(director: Director, found: Event) -> None:
    """Put a file into the table's folder that no daemon made."""
    world = director.world
    sink = world.bucket(SINK)
    there = sorted(
        p
        for p in sink.objects
        if p.endswith(".parquet") and not is_hidden(p) and not is_theirs(p) and not is_grouped(p)
    )
    if not there:
        return
    world.deeds["strays"] += 1
    # Above the newest and below all that are to come, as far as names sort in time; or above
    # these as well.
    folder, _, newest = there[-1].rpartition("/")
    stem = "z" if found.get("high") else newest.removesuffix(".parquet")
    name = join(folder, f"{stem}-{world.deeds['strays']}.parquet")
    world.counts[f"stray {found['what']}"] += 1
    sink.put(name, _hostile(found["what"], sink.get(there[-1]).data))
    world.note(f"operator: {name} is dropped into the table's directory ({found['what']})")


def _hostile(what: str, sound: bytes) -> bytes:
    """Return a file that must be rejected, made of a sound one."""
    match what:
        case "junk":
            return b"junk that is long enough"
        case "cut":  # its upload ended early, and the end looks like one
            return sound[: len(sound) // 2] + b"PAR1"
        case "footer":  # longer, it says, than the file is
            return sound[:-8] + (1 << 30).to_bytes(4, "little") + b"PAR1"
        case "types":  # a column of the table as something else
            return _written(pa.table({"row": [{"a": 1}]}))
        case _:  # the same rows again
            return sound


def _written(table: pa.Table) -> bytes:
    stream = io.BytesIO()
    pq.write_table(table, stream)
    return stream.getvalue()


# -- other writers ------------------------------------------------------------------------


def compacted(director: Director, found: Event) -> None:
    """OPTIMIZE: the files of a folder become one, with the same rows."""
    world = director.world
    table = table_of(world)
    folders: dict[str, list[str]] = {}
    for path in sorted(table.adds):
        folders.setdefault(path.rpartition("/")[0], []).append(path)
    several = [(folder, paths) for folder, paths in folders.items() if len(paths) > 1]
    if not several:
        return
    sink = world.bucket(SINK)
    folder, paths = world.chance.choice(several)
    rows = tuple(row for path in paths for row in rows_of(sink.get(unquote(path)).data))
    world.deeds["compactions"] += 1
    made = join(folder, f"{THEIRS}{world.deeds['compactions']:05d}.parquet")
    sink.put(unquote(made), parquet(rows, None))
    world.note(f"another writer: {len(paths)} files become {made}")
    if found.get("dies"):
        world.counts["compactions that died"] += 1
        return
    world.counts["compactions"] += 1
    moved = [_remove(world, path, data_change=False) for path in paths]
    add = {"path": made, "partitionValues": table.adds[paths[0]]["partitionValues"]}
    _land(world, table, "OPTIMIZE", [*moved, _added(world, add, data_change=False)])


def vacuumed(director: Director, found: Event) -> None:
    """VACUUM: delete files that were removed longer than ``kept`` seconds ago."""
    world = director.world
    sink = world.bucket(SINK)
    oldest = (world.now + world.store_skew - found["kept"]) * 1000
    for path, body in table_of(world).removes.items():
        if body["deletionTimestamp"] <= oldest and unquote(path) in sink.objects:
            sink.delete(unquote(path))
            world.counts["files vacuumed"] += 1
            world.note(f"another writer: {path} is vacuumed")


def restored(director: Director, found: Event) -> None:
    """RESTORE: a new entry lets the table be as it was some versions ago."""
    world = director.world
    now = table_of(world)
    then = table_of(world, now.version - found["back"])
    there = world.bucket(SINK).objects
    if then.version < 0 or any(unquote(path) not in there for path in then.adds):
        return
    gone = [path for path in now.adds if path not in then.adds]
    again = [body for path, body in then.adds.items() if path not in now.adds]
    # The rows that people took out were there once, and are not to come again.
    rows = _rows(world, now)
    rows.subtract(_rows(world, then))
    world.withdrawn[now.version + 1] = rows
    world.counts["restores"] += 1
    world.note(f"another writer: the table is restored to version {then.version}")
    actions = [_remove(world, path, data_change=True) for path in gone]
    actions += [_added(world, body, data_change=True) for body in again]
    _land(world, now, "RESTORE", actions)


# -- people -------------------------------------------------------------------------------


def log_cut(director: Director, found: Event) -> None:
    """Take the log back by some versions: later commits have to come again."""
    world = director.world
    sink, now = world.bucket(SINK), table_of(world)
    last = now.version - found["back"]
    # Whoever sleeps over it, or has an entry on its way, would write behind the log's end.
    asleep = any(p.paused_until > world.now for p in director.processes["penguin"])
    # So would a command that has Penguin give outputs up, and goes on for as long as it follows.
    asleep |= bool(world.counts["command redone"])
    if last < 0 or asleep or world.on_their_way:
        return
    then = table_of(world, last)
    lost = {unquote(p) for p in {*now.adds, *now.removes} - {*then.removes}} - {*sink.objects}
    gone = {delta_json.commit_path(version) for version in range(last + 1)} - {*sink.objects}
    if lost or gone:
        return  # of what was cleaned up nobody has a copy
    for process in director.processes["penguin"]:
        if not process.is_over:
            process.died()
    for path in [p for p in sink.written if _version(p) > last]:
        sink.forget(path)
    world.withdrawn = {v: rows for v, rows in world.withdrawn.items() if v <= last}
    world.counts["logs cut back"] += 1
    world.note(f"operator: the log is brought back as of version {last}")
    if any(int(p.rpartition("/")[2][:20]) > last for p in sink.objects if p.startswith(FOLDER)):
        world.excused.add("it has lost commits")
        world.after(found["secs"], partial(_let_go, world))


def _let_go(world: SimulatedWorld) -> None:
    """Follow the refusal's advice: build the table again from the files that exist."""
    sink = world.bucket(SINK)
    for path in [p for p in sink.objects if p.startswith("_penguin/")]:
        sink.delete(path)
    world.counts["Penguin's state deleted"] += 1
    world.note("operator: Penguin's own state is deleted")


# -- the log ------------------------------------------------------------------------------


def table_of(world: SimulatedWorld, version: int | None = None) -> Table:
    """Return the table as of a version, from all entries that ever were."""
    table = Table()
    for path, text in world.log_entries().items():
        number = _version(path)
        if version is None or number <= version:
            table.apply([json.loads(line) for line in text.splitlines()], number)
    return table


def _rows(world: SimulatedWorld, table: Table) -> Counter[str]:
    found: Counter[str] = Counter()
    for path in table.adds:
        found.update(rows_of(world.bucket(SINK).get(unquote(path)).data))
    return found


def _version(path: str) -> int:
    """Return the version of an entry or a log checkpoint; the pointer sorts above all."""
    digits = path.removeprefix(f"{delta_json.LOG}/")[:20]
    return int(digits) if digits.isdigit() else sys.maxsize


def _remove(world: SimulatedWorld, path: str, *, data_change: bool) -> dict[str, Any]:
    at = int((world.now + world.store_skew) * 1000)
    return {"remove": {"path": path, "deletionTimestamp": at, "dataChange": data_change}}


def _added(world: SimulatedWorld, body: dict[str, Any], *, data_change: bool) -> dict[str, Any]:
    held = world.bucket(SINK).get(unquote(body["path"]))
    known = {"modificationTime": int(held.modified * 1000), "size": len(held.data), **body}
    return {"add": {**known, "dataChange": data_change}}


def _land(
    world: SimulatedWorld, table: Table, operation: str, actions: list[dict[str, Any]]
) -> None:
    info = {"commitInfo": {"timestamp": int(world.now * 1000), "operation": operation}}
    data = "".join(json.dumps(action) + "\n" for action in [info, *actions]).encode()
    world.bucket(SINK).put_if(delta_json.commit_path(table.version + 1), data, None)
