"""Watch over removals of source files by the daemons: each object that goes was ingested.

Whoever removes an object, and however late, its content at that moment is in the table. In an
archive there is a copy of it.
"""

from __future__ import annotations

from urllib.parse import unquote

from tests.simulation import adaptor
from tests.simulation.engine import rows_of
from tests.simulation.other_writers import table_of
from tests.simulation.plan import source_uri
from tests.simulation.store import Bucket
from tests.simulation.world import SINK, SimulatedWorld

# A line of a file that only a later release reads.
_LATER = "v2"


def watch_sources(world: SimulatedWorld) -> None:
    """Look at each removal from a source of the world that is cleaned."""
    settings = world.settings
    for number in range(settings.sources if settings.clean is not None else 0):
        archive = world.bucket(adaptor.archive_uri(number)) if settings.archives else None
        _Watch(world, world.bucket(source_uri(number)), archive)


class _Watch:
    """The watch over one source's bucket."""

    def __init__(self, world: SimulatedWorld, bucket: Bucket, archive: Bucket | None) -> None:
        self._world = world
        self._bucket = bucket
        self._archive = archive
        self._delete = bucket.delete
        bucket.delete = self.delete  # type: ignore[method-assign]  # each removal goes through it

    def delete(self, path: str) -> None:
        """Remove an object, and look at what it was if no writer removes it."""
        task = self._world.scheduler.current
        is_writers = task is not None and task.owner.name == "director"
        if not is_writers and path in self._bucket.objects:
            self._look_at(path)
        self._delete(path)

    def _look_at(self, path: str) -> None:
        world, data = self._world, self._bucket.get(path).data
        world.counts["files cleaned"] += 1
        world.note(f"{path} is cleaned")
        wanted = {line for line in data.decode().splitlines() if line != _LATER}
        sink = world.bucket(SINK)
        there = {
            row for each in table_of(world).adds for row in rows_of(sink.get(unquote(each)).data)
        }
        if not wanted <= there:
            missing = min(wanted - there)
            world.wrongly_cleaned.append(f"{self._bucket.uri}/{path} had {missing}, in no table")
        held = None if self._archive is None else self._archive.objects.get(path)
        if self._archive is not None and (held is None or held.data != data):
            world.wrongly_cleaned.append(f"{self._bucket.uri}/{path} is not in the archive")
