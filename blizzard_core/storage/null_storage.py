"""An empty storage, for a source that has no files."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import BinaryIO, NoReturn

from blizzard_core.errors import NotFound
from blizzard_core.storage.protocol import Entry, ListingPage, NameTest, Range


class NullStorage:
    """A `Storage` without objects that accepts none. ``uri`` is the source's name."""

    def __init__(self, uri: str) -> None:
        self.uri = uri

    def list_range(self, after: str, until: str | None) -> Iterator[ListingPage]:  # noqa: ARG002  # the protocol gives it
        return iter(())

    def list_ranges(
        self,
        ranges: Sequence[Range],  # noqa: ARG002  # the protocol gives it
        may_be_wanted: NameTest | None = None,  # noqa: ARG002  # the protocol gives it
    ) -> Iterator[ListingPage]:
        return iter(())

    def stat(self, path: str) -> Entry | None:  # noqa: ARG002  # the protocol gives it
        return None

    def read(self, path: str) -> bytes:
        self._missing(path)

    def read_range(self, path: str, start: int, end: int) -> bytes:  # noqa: ARG002  # the protocol gives it
        self._missing(path)

    def open_input(self, path: str) -> BinaryIO:
        self._missing(path)

    def open_output(self, path: str) -> BinaryIO:
        self._missing(path)

    def put_atomic(self, path: str, data: bytes) -> None:  # noqa: ARG002  # the protocol gives it
        self._missing(path)

    def read_versioned(self, path: str) -> tuple[bytes, str]:
        self._missing(path)

    def put_if(self, path: str, data: bytes, version: str | None) -> str:  # noqa: ARG002  # the protocol gives it
        self._missing(path)

    def rename(self, source: str, target: str) -> None:  # noqa: ARG002  # the protocol gives it
        self._missing(source)

    def rename_if_absent(self, source: str, target: str) -> None:  # noqa: ARG002  # see above
        self._missing(source)

    def sync(self, path: str) -> None:
        self._missing(path)

    def delete(self, path: str) -> None:
        """Do nothing: there is no object."""

    def delete_if(self, path: str, version: str) -> bool:  # noqa: ARG002  # the protocol gives it
        return False

    def tag_if(self, path: str, version: str, tag: str) -> bool:  # noqa: ARG002  # the protocol gives it
        return False

    def delete_tree(self, prefix: str) -> int:  # noqa: ARG002  # the protocol gives it
        return 0

    def _missing(self, path: str) -> NoReturn:
        raise NotFound(f"{self.uri}/{path}: {self.uri} has rows and no files")
