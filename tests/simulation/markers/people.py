"""Events around the daemons: files come and change, processes die, people lose things."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from blizzard_core.delta_json import commit_path
from blizzard_core.handover.complete import completions_path, confirmed_path
from blizzard_core.handover.published import JOURNAL_FOLDER
from tests.simulation.faults import Shot
from tests.simulation.markers.blizzard import SOURCE_ID

if TYPE_CHECKING:
    from tests.simulation.markers.world import MarkerWorld

_CHECKPOINT = f"_blizzard/{SOURCE_ID}_checkpoint.json"
PARTITIONS = ("date=2023-01-01", "date=2023-01-02", "date=2023-01-03")


class People:
    """The events of a plan by their names."""

    def __init__(self, world: MarkerWorld) -> None:
        self._world = world
        held = world.lake.objects.get(_CHECKPOINT)
        self._copy = None if held is None else held.data

    def file(self, path: str, text: str = "1") -> None:
        """Let a source file appear, or change."""
        self._world.raw.put(path, text.encode())
        self._world.appeared.setdefault(path, self._world.scheduler.now)

    def first(self) -> None:
        for partition in PARTITIONS[:2]:
            self.file(f"{partition}/m.ndjson")

    def late(self) -> None:
        partition = self._world.chance.choice(PARTITIONS[:2])
        self.file(
            f"{partition}/{self._world.chance.choice('ab')}{len(self._world.appeared)}.ndjson"
        )

    def new(self) -> None:
        self.file(
            f"{self._world.chance.choice(PARTITIONS[:2])}/n{len(self._world.appeared)}.ndjson"
        )

    def newest(self) -> None:
        self.file(f"{PARTITIONS[2]}/n{len(self._world.appeared)}.ndjson")

    def replaced(self) -> None:
        if self._world.appeared:
            path = self._world.chance.choice(sorted(self._world.appeared))
            self._world.raw.put(path, b"22")

    def rival_blizzard(self) -> None:
        self._world.start("blizzard", self._shot())

    def rival_penguin(self) -> None:
        self._world.start("penguin", self._shot())

    def kill(self) -> None:
        if self._world.living:
            self._world.dies(self._world.chance.choice(list(self._world.living)))

    def restart_with_fault(self) -> None:
        self.kill()
        self._world.start(self._world.chance.choice(("blizzard", "penguin")), self._shot())

    def _shot(self) -> Shot:
        kinds = (
            "dies_before",
            "dies_after",
            "answer_lost",
            "lands_late",
            "pauses_before",
            "pauses_after",
        )
        kind = self._world.chance.choice((*kinds, "refused"))
        secs = self._world.chance.random() * 3.0
        return Shot(
            kind,
            self._world.chance.choice(("any", "write")),
            self._world.chance.randrange(60),
            secs,
        )

    def mirror_lost(self) -> None:
        self._world.lake.delete(completions_path(SOURCE_ID))

    def confirmed_lost(self) -> None:
        self._world.lake.delete(confirmed_path(SOURCE_ID))

    def journal_lost(self) -> None:
        paths = [p for p in self._world.lake.objects if p.startswith(f"{JOURNAL_FOLDER}/")]
        if paths:
            self._world.lake.delete(self._world.chance.choice(sorted(paths)))

    def restored_table(self) -> None:
        """RESTORE of the table to a version."""
        if not self._world.versions:
            return
        target = self._world.chance.choice(sorted(self._world.versions))
        newest = max(self._world.versions)
        first = json.loads(self._world.lake.objects[commit_path(0)].data)
        entry = {**first, "id": "restore", "ours": False, "ids": []}
        entry["all"] = sorted(self._world.versions[target])
        self._world.lake.put(commit_path(newest + 1), json.dumps(entry).encode())

    def log_deleted(self) -> None:
        for version in list(self._world.versions):
            self._world.lake.delete(commit_path(version))
        self._world.forget_log()

    def checkpoint_restored(self) -> None:
        """Stop Blizzard and bring its first checkpoint back; the fence record is lost, too."""
        self._world.stop("blizzard")
        if self._copy is not None:
            self._world.lake.put(_CHECKPOINT, self._copy)
            self._world.lake.delete(f"_blizzard_fence/{SOURCE_ID}.json")

    def state_deleted(self) -> None:
        """All of Blizzard's state is deleted; people begin anew."""
        for path in [p for p in self._world.lake.objects if p.startswith("_blizzard")]:
            if not path.startswith("_blizzard/complete"):
                self._world.lake.delete(path)
