"""Commands that undo and redo, beside the daemons: rollback, discard, redo, old checkpoints.

None of them widens what is right, but for letters that people close: what a rollback undoes is no
excuse any more, what a redo has told is there, and a checkpoint of before ingests nothing again.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import partial
from typing import TYPE_CHECKING

from blizzard_py.app.refused_files import give_up_all, order_of
from blizzard_py.app.submit import RequestOrder
from blizzard_py.app.workers import source_pipeline
from blizzard_py.dead_letters import reader as letters
from blizzard_py.edits import checkpoint_edit, history
from blizzard_py.edits.checkpoint_store import CheckpointStore, Version
from blizzard_py.selection.refused import refused_outputs, replaced_outputs
from tests.simulation import adaptor
from tests.simulation.plan import Event, event, source_uri
from tests.simulation.processes import Process
from tests.simulation.quiet import Quiet
from tests.simulation.scheduler import Executor
from tests.simulation.world import DLQ, SINK, SimulatedWorld

if TYPE_CHECKING:
    from tests.simulation.director import Director


def rolled_back(_director: Director, found: Event, process: Process) -> None:
    """Restore the checkpoint of before an edit; the undone edit excuses nothing."""
    world, number = process.world, found.get("source", 0)
    if world.deeds[f"rolled back {found.at}"] or world.calm:
        return
    source = source_pipeline(process.parts(number))
    versions = CheckpointStore(source.sink, source.id).versions()
    known = [each for each in versions if isinstance(each, Version)][1:]
    if not known:
        return
    to = known[min(found.get("back", 0), len(known) - 1)]
    seen = checkpoint_edit.read_checkpoint(source)
    after = history.roll_back(source, seen, to)
    uri, epoch = source_uri(number), 0 if seen.writer is None else seen.writer.epoch
    before, count = world.edits[uri], world.deeds[f"edits of {uri}"]
    world.deeds[f"rolled back {found.at}"] += 1
    checkpoint_edit.change(source, seen, lambda _state: after, process.clock(), why="a typo")
    world.counts["rolled back"] += 1
    world.note(f"{process.name}: {to.name} is back")
    then, _, another = to.name.removeprefix("epoch-").partition("-")
    # Nothing came of changes since that version, and those before it are in force again.
    in_force = world.held.get((uri, int(then)), before)
    if another:  # of two copies of an epoch, one by somebody who died: nobody knows which is whose
        in_force = (
            *in_force,
            *(e for (of, _), kept in world.held.items() if of == uri for e in kept),
        )
    if world.deeds[f"edits of {uri}"] != count:  # somebody else changed it meanwhile: who was last?
        in_force = (*world.edits[uri], *in_force)
    world.edited(uri, epoch, in_force)


def discarded(_director: Director, found: Event, process: Process) -> None:
    """One object of letters, or some, are closed for good."""
    from tests.simulation import commands  # noqa: PLC0415  # which knows of this module

    world, number = process.world, found.get("source", 0)
    live = process.parts(number)
    there = {each.id: each for each in letters.objects(live.stores.dlq, live.letters_id)}
    if found.at not in world.chosen:
        some = sorted(there)
        world.chosen[found.at] = world.chance.sample(some, min(len(some), found["count"]))
    chosen = [there[name] for name in world.chosen[found.at] if name in there]
    if not chosen:
        return
    world.closing.update(uri for each in chosen for uri in _files_of(world, each.path))
    select = {"letters": [each.id for each in chosen]}
    commands.requested(process, number, RequestOrder("close_letters", select, why="test data"))
    world.counts["letters closed"] += len(chosen)


def _files_of(world: SimulatedWorld, path: str) -> frozenset[str]:
    held = world.bucket(DLQ).objects.get(path)
    lines = [] if held is None else held.data.splitlines()
    return frozenset(json.loads(line)["path"] for line in lines)


def redone(_director: Director, found: Event, process: Process) -> None:
    """Ingest the source files of Penguin's rejected files again, once the schema is mended."""
    from tests.simulation import commands  # noqa: PLC0415  # which knows of this module

    world, number = process.world, found.get("source", 0)
    world.spoiling = 0
    live = process.parts(number)

    def give_up(outputs: Sequence[str]) -> None:
        pool = Executor(world.scheduler, 4)
        activity = Quiet(f"{process.name}/penguin", world.note)
        sink = process.client(SINK)
        table = adaptor.table_pipeline(world.settings, sink, pool, process, activity)
        table.discard(list(outputs), None, dry_run=False)

    late = replaced_outputs(live)
    if late:
        give_up([output.output_id for output in late])
    outputs = refused_outputs(live)
    if not outputs:
        return
    order_of(live, outputs)  # refused before anything is given up
    outputs = give_up_all(live, outputs, give_up)
    commands.requested(process, number, order_of(live, outputs))
    world.counts["outputs redone"] += len(outputs)


# -- what people do to the state ------------------------------------------------------------


def spoiled(director: Director, found: Event) -> None:
    """Roll out a schema that the table does not take, for so many outputs."""
    world = director.world
    if world.log_entries():  # what comes first makes the table
        world.spoiling += found["count"]
        world.note("operator: the schema is changed, and the table does not take it")


def copied(director: Director, _found: Event) -> None:
    """Copy a checkpoint."""
    world = director.world
    held = world.bucket(SINK).objects.get(adaptor.checkpoint_path(world.settings, 0))
    if held is not None and not world.copies:
        world.copies.append((adaptor.checkpoint_path(world.settings, 0), held.data))
        world.note("operator: the checkpoint is copied")


def brought_back(director: Director, found: Event) -> None:
    """Put the copy in the checkpoint's place; rebuild it where the daemon refuses it."""
    world = director.world
    sink = world.bucket(SINK)
    if not world.copies:
        return
    path, data = world.copies.pop()
    if path != adaptor.checkpoint_path(world.settings, 0) or path not in sink.objects:
        return
    newest = sink.get(path).data
    for process in director.processes["blizzard"]:
        if not process.is_over:
            process.died()
    sink.put(path, data)
    world.counts["old checkpoints brought back"] += 1
    world.excused |= {
        "is stale",
        "the checkpoint lists it and it is missing",
        "of the journal is missing. Restore it",
        "is neither staged, nor",
    }
    world.note("operator: the checkpoint is as it was copied")

    back = partial(_newest_back, director, path, newest)

    def rebuilt() -> None:
        from tests.simulation import commands  # noqa: PLC0415  # which knows of this module

        world.rebuilt.add(0)
        commands.run(director, event(0, "rebuild", otherwise=back, over=True))

    world.after(found["secs"], rebuilt)


def _newest_back(director: Director, path: str, newest: bytes, looks: int = 2) -> None:
    """Restore the newest checkpoint where the daemon refuses the copy and so does a rebuild."""
    world = director.world
    if director.latest("blizzard").is_well:
        # It knows of all that came, and goes on; or has just begun, and refuses it yet.
        if looks:
            world.after(20.0, partial(_newest_back, director, path, newest, looks - 1))
        return
    for process in director.processes["blizzard"]:
        if not process.is_over:
            process.died()
    world.bucket(SINK).put(path, newest)
    world.note("operator: the newest checkpoint is brought back")
