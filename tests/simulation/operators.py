"""Operators: their actions on the store, the configuration and the commands."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

from blizzard_core.storage.protocol import is_hidden, order_key
from blizzard_core.watermark.paths import partition_key, split
from tests.simulation import adaptor, commands, losses, manual_changes, other_writers
from tests.simulation.plan import Event, event, source_uri
from tests.simulation.world import SINK, SimulatedWorld

if TYPE_CHECKING:
    from tests.simulation.director import Director


def act(director: Director, found: Event) -> None:
    """Do what the event says."""
    _DEEDS[found.kind](director, found)


# -- the store ----------------------------------------------------------------------------


def mirror_lost(director: Director, _found: Event) -> None:
    world = director.world
    world.counts["mirrors lost"] += 1
    world.bucket(SINK).delete(adaptor.MIRROR)
    world.note("operator: the mirror is lost")


def staging_lost(director: Director, _found: Event) -> None:
    """Delete the staged files, as somebody does who takes them for rubbish."""
    world = director.world
    sink = world.bucket(SINK)
    doomed = [path for path in sink.objects if path.startswith("_blizzard/staging/")]
    for path in doomed:
        sink.delete(path)
    if doomed:
        world.counts["staging deleted"] += 1
        world.excused |= {"is neither staged", "are neither staged"}
        world.note("operator: what is staged is deleted")


def checkpoint_lost(director: Director, found: Event) -> None:
    """Delete the checkpoint: the source must not start from nothing. Restore it later."""
    world = director.world
    sink, path = world.bucket(SINK), adaptor.checkpoint_path(world.settings, 0)
    if not _has_batches(world, 0):
        return
    held = sink.get(path)
    for process in director.processes["blizzard"]:
        if not process.is_over:
            process.died()
    sink.delete(path)
    world.excused.add("is missing, but")
    world.counts["checkpoints lost"] += 1
    world.note("operator: the checkpoint is lost")

    def back() -> None:
        if path not in sink.objects:
            sink.put(path, held.data)
            world.note("operator: the checkpoint is brought back")

    def rebuilt() -> None:
        world.rebuilt.add(0)
        commands.run(director, event(0, "rebuild", otherwise=back))

    def fresh() -> None:
        """Allow a start from nothing, except with a lookback: that would start elsewhere."""
        if world.settings.lookback is not None or path in sink.objects:
            back()
            return
        world.note("operator: the next start is told to begin from nothing")
        world.deeds["fresh"] += 1
        world.fresh.add(0)

    remedies = {"back": back, "rebuild": rebuilt, "fresh": fresh}
    # What the original did stands in its checkpoint and nowhere else.
    remedy = "back" if world.deeds["original"] else found.get("remedy", "back")
    world.after(found["secs"], remedies[remedy])


def _has_batches(world: SimulatedWorld, number: int) -> bool:
    """Return whether a source has done anything yet."""
    held = world.bucket(SINK).objects.get(adaptor.checkpoint_path(world.settings, number))
    totals = {} if held is None else json.loads(held.data).get("totals", {})
    return bool(totals.get("batches"))


# -- the configuration --------------------------------------------------------------------


def misconfigured(director: Director, found: Event) -> None:
    """Roll out a configuration that does not fit the state, and put it back."""
    world = director.world
    right = world.right
    if found["what"] == "depth" and right.lookback is not None:
        return  # the configuration itself is refused
    wrong = {
        "source_uri": lambda: replace(right, moved=True),
        "depth": lambda: replace(right, depth=(world.plan.depth + 1) % 3),
        # Without a watermark there are no limits for scans.
        "tracking": lambda: replace(
            right, watermark=not right.watermark, full_scan=None, budget=None
        ),
        "name": lambda: replace(right, called="t" if right.called == "s" else "s", has_id=False),
    }[found["what"]]()
    # Where nothing was done yet any configuration is right.
    if right != world.settings or not all(map(partial(_has_batches, world), range(right.sources))):
        return
    world.counts[f"misconfigured {found['what']}"] += 1
    world.excused.update(
        {"the configuration now says", "is of the files below", "whose names make the same"}
    )
    if found["what"] == "name":
        world.excused.add("is missing, but")
    if wrong.moved:
        _copied(director)
    director.rolled_out(wrong, found["what"])
    world.after(found["secs"], lambda: director.rolled_out(world.right, "what is right"))


def _copied(director: Director) -> None:
    """Give the other location files under the same names and under new ones."""
    world = director.world
    uri = source_uri(0, moved=True)
    for (source, path), file in list(world.files.items()):
        if source == source_uri(0) and file.versions:
            more = {"path": path, "manner": file.manner}
            director.written(uri, event(0, "write", **more))


def regraced(director: Director, found: Event) -> None:
    """Change the grace period, for longer or for shorter."""
    world = director.world
    world.right = replace(world.right, grace=found["grace"])
    world.graces.append((world.now, found["grace"]))
    world.counts["grace changed"] += 1
    director.rolled_out(world.right, f"grace {found['grace']:.0f} s")


def renamed(director: Director, _found: Event) -> None:
    """Rename the sources; an `id:` names the state that each continues."""
    world = director.world
    world.right = replace(world.right, called="t", has_id=True)
    world.counts["sources renamed"] += 1
    director.rolled_out(world.right, "names with an id")


def original(director: Director, found: Event) -> None:
    """Leave the checkpoint of an original that ran before; its rows are in a table."""
    world = director.world
    if not world.settings.watermark:
        return
    for number in range(world.settings.sources):
        uri = source_uri(number)
        done = sorted(
            (
                path
                for source, path in world.files
                if source == uri
                and path.count("/") == world.plan.depth
                and path.endswith(".ndjson")
                and not is_hidden(path)
            ),
            key=order_key,
        )
        done = done[: len(done) - len(done) * found["left"] // 100]
        if not done:
            continue
        value_only = found.get("value_only") or not world.plan.depth
        # By partition only the newest of each counts.
        newest = {split(path, world.plan.depth)[0]: path for path in done}
        if value_only:
            newest = dict([max(newest.items(), key=lambda item: partition_key(item[0]))])
            if world.plan.depth:
                world.closed[uri] = partition_key(next(iter(newest)))
        named = {p: split(path, world.plan.depth)[1] for p, path in newest.items()}
        document = {
            "schema_version": 1,
            "watermark": {"state": "Active", "value": max(newest.values(), key=order_key)},
            "partition_watermarks": {} if value_only else named,
            "last_update_ts": int(world.now),
        }
        world.bucket(SINK).put(
            adaptor.checkpoint_path(world.settings, number), json.dumps(document).encode()
        )
        world.inherited.update((uri, path) for path in done)
        world.said[uri] += named.items()
        world.deeds["original"] += 1
        world.counts["checkpoints of the original"] += 1
        world.note(f"operator: the original was here: {document['watermark']['value']}")


def mended(director: Director, _found: Event) -> None:
    """Files that were condemned are replaced by good ones, under their names."""
    world = director.world
    for (source, path), file in list(world.files.items()):
        if file.versions[-1].flavour and file.deleted is None:
            world.counts["mended"] += 1
            director.written(source, event(0, "write", path=path, manner=file.manner))


_DEEDS: dict[str, Callable[[Director, Event], None]] = {
    "mended": mended,
    "replay": commands.run,
    "backfill": commands.run,
    "replayed": commands.run,
    "rewound": commands.run,
    "ingest": commands.run,
    "cancelled": commands.run,
    "rolled_back": commands.run,
    "discarded": commands.run,
    "redone": commands.run,
    "spoiled": manual_changes.spoiled,
    "copied": manual_changes.copied,
    "brought_back": manual_changes.brought_back,
    "regraced": regraced,
    "renamed": renamed,
    "original": original,
    "set_aside": losses.set_aside,
    "put_back": losses.put_back,
    "part_lost": losses.part_lost,
    "log_cleaned": losses.log_cleaned,
    "mirror_lost": mirror_lost,
    "stray": other_writers.stray,
    "compacted": other_writers.compacted,
    "vacuumed": other_writers.vacuumed,
    "restored": other_writers.restored,
    "log_cut": other_writers.log_cut,
    "moved": commands.run,
    "staging_lost": staging_lost,
    "checkpoint_lost": checkpoint_lost,
    "misconfigured": misconfigured,
}
