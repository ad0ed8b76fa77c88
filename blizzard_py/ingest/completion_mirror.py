"""The mirror of a source's completions, which Penguin reads. See `blizzard_core.handover.complete`.

It follows every save that changes completions, before anything is published. So an output of a late
file appears only behind the revocation. A delayed write of a daemon that was replaced is refused,
since its successor writes the mirror before it publishes. Who owns the checkpoint decides, and no
number: after an older checkpoint came back, or none, a predecessor may have a higher epoch.
"""

from __future__ import annotations

from collections.abc import Callable

from blizzard_core.checkpoint.document import encode, parsed
from blizzard_core.errors import Conflict, NotFound, StateError, Unavailable
from blizzard_core.handover.complete import MARKERS_FOLDER, Completions, parser, to_json
from blizzard_core.storage.protocol import Storage
from blizzard_py.state.completeness import Completeness, completions_of
from blizzard_py.state.state_paths import StatePaths

# A write that is refused over a write of our own is made again this often at most.
_TRIES = 5


class CompletionMirror:
    """The mirror of one source, written by the owner of its checkpoint."""

    def __init__(self, sink: Storage, source_id: str, check: Callable[[], None]) -> None:
        """Set where it is; ``check`` raises `FencedError` if the checkpoint has another owner."""
        self._sink = sink
        self._check = check
        self._path = StatePaths(source_id).completions
        self._where = f"{sink.uri}/{self._path}"
        self._version: str | None = None
        self._written = b""

    def look(self) -> int:
        """Note what is there, before a take-over; return its epoch. Raises `StorageError`.

        Whatever it is, it may be replaced. What a later owner writes has another version, and is
        not. The take-over goes on behind the epoch, which is higher than the checkpoint's if an
        older one was brought back: committers ignore a mirror of an earlier epoch.
        """
        epoch, self._version = self._read()
        return epoch

    def take(self, complete: Completeness | None, epoch: int) -> None:
        """Write the mirror after a take-over, whatever it was before. Raises as `write`."""
        self._written = b""
        self.write(complete, epoch)

    def write(self, complete: Completeness | None, epoch: int) -> None:
        """Write the completions if they differ from the written ones.

        Raises `FencedError` if a later owner has written, `StorageError`.
        """
        if complete is None:
            return
        data = encode(to_json(completions_of(complete, epoch)))
        if data == self._written:
            return
        for _ in range(_TRIES):
            try:
                self._version = self._sink.put_if(self._path, data, self._version)
            except Conflict:
                _, self._version = self._read()
                self._check()  # behind the read: a later owner's write is refused to us again
                continue
            self._written = data
            return
        raise Unavailable(
            f"{self._where}: the store refuses to replace it again and again; it is tried again,"
            " see whether the server honours If-Match"
        )

    def _read(self) -> tuple[int, str | None]:
        """Return the epoch of what is there, 0 if it cannot be read, and its version."""
        try:
            raw, version = self._sink.read_versioned(self._path)
        except NotFound:
            return 0, None
        try:
            return parser(Completions)(parsed(raw, self._where), self._where).epoch, version
        except StateError:
            return 0, version


def remove_certificates(sink: Storage, source_id: str) -> None:
    """Remove a source's completions and markers. Raises `StorageError`.

    Completions go first, so that no committer writes a marker again.
    """
    sink.delete(StatePaths(source_id).completions)
    sink.delete_tree(f"{MARKERS_FOLDER}/{source_id}")
    sink.delete(f"{MARKERS_FOLDER}/{source_id}.json")
