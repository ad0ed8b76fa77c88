"""Batches of a poll's files, which shrink while their commits are refused. Pure."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence

from blizzard_core.storage.protocol import Entry


class Batches:
    """Files that wait to be tried, oldest first, at most ``most`` in a batch.

    A batch whose commit can never land is put back and halved until it is one file. That file is
    tried once more, and is to blame if it is refused again. Each success doubles the next batch, so
    one bad file among a thousand costs some twenty tries.
    """

    def __init__(self, most: int) -> None:
        self._most = most
        self._size = most
        self._suspect: Entry | None = None
        self._queue: deque[Entry] = deque()

    def __len__(self) -> int:
        return len(self._queue)

    def __iter__(self) -> Iterator[Entry]:
        return iter(self._queue)

    def add(self, entries: Iterable[Entry]) -> None:
        """Append files to the queue."""
        self._queue.extend(entries)

    def put_back(self, entries: Sequence[Entry]) -> None:
        """Put files back to the front, in their order."""
        self._queue.extendleft(reversed(entries))

    def take(self) -> list[Entry]:
        """Take the next batch."""
        return [self._queue.popleft() for _ in range(min(len(self._queue), self._size))]

    def landed(self) -> None:
        """Record that the latest batch was committed or rejected."""
        self._size = min(2 * self._size, self._most)

    def refused(self, batch: Sequence[Entry]) -> bool:
        """Return whether the refused batch is one file that is to blame.

        If not, it is put back.
        """
        if len(batch) == 1 and self._suspect == batch[0]:
            return True
        self.put_back(batch)
        self._size = max(1, len(batch) // 2)
        self._suspect = batch[0] if len(batch) == 1 else None
        return False

    def clear(self) -> None:
        """Forget the queue and the suspect."""
        self._queue.clear()
        self._size = self._most
        self._suspect = None
