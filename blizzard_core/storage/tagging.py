"""Tags of objects on condition of a version, in stores whose tags have no such condition.

1. The object is looked at, and must have the version.
2. Its tags are read and written, with one more. If the store keeps versions, both name the version,
   and that is all: whoever overwrites the object makes another one.
3. Otherwise the object is looked at again. If it is another one now, the tag is taken off it.

A death between 2 and 3 may leave the tag on another object. So a repeated call takes it off any
object of another version.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from blizzard_core.errors import Conflict, NotFound, TagsFull
from blizzard_core.storage.objects import ObjectStorage

# The most tags of an object, on S3 and on Azure.
_MOST_TAGS = 10


@dataclass(frozen=True, slots=True)
class ObjectVersion:
    """The version of an object, as in its `Entry`, and its id if the store keeps versions."""

    version: str
    version_id: str | None


class TaggedObjects(ObjectStorage):
    """Stores whose objects have tags. Each method but `tag_if` raises `NotFound` without one."""

    def object_version(self, path: str) -> ObjectVersion:
        """Return what the object is now."""
        raise NotImplementedError

    def read_tags(self, path: str, found: ObjectVersion) -> Mapping[str, str]:
        """Return all tags of that version, or of the object if versions are not kept."""
        raise NotImplementedError

    def write_tags(self, path: str, found: ObjectVersion, tags: Mapping[str, str]) -> None:
        """Replace all tags of what `read_tags` reads; none may be given."""
        raise NotImplementedError

    def tag_if(self, path: str, version: str, tag: str) -> bool:
        """Tag an object if it has this version; see `Storage.tag_if`."""
        name, _, value = tag.partition("=")
        try:
            found = self.object_version(path)
            if version and found.version == version:
                tags = self.read_tags(path, found)
                if tags.get(name) != value:
                    tags = {**tags, name: value}
                    if len(tags) > _MOST_TAGS:
                        raise TagsFull(f"{self.uri}/{path}: has {_MOST_TAGS} other tags already")
                    self.write_tags(path, found, tags)
                if found.version_id is not None:
                    return True
                found = self.object_version(path)
                if found.version == version:
                    return True
            tags = self.read_tags(path, found)
            if tags.get(name) == value:
                rest = {other: tags[other] for other in tags if other != name}
                self.write_tags(path, found, rest)
        except NotFound:
            return False
        raise Conflict(f"{self.uri}/{path}: changed by another writer, so it is not tagged")
