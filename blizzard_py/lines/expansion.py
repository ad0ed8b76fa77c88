"""The growth of a file on its way to rows, against its stored size.

Kilobytes of gzip are megabytes of anything, kilobytes of zstd gigabytes, and ``{}`` is a row of
as many empty values as there are columns. The writer pays for what is stored, and the task for
what becomes of it, so the one bounds the other.
"""

from __future__ import annotations

from blizzard_core.bounds import EXPANSION_FREE_BYTES
from blizzard_py.lines.failure import FileFailed

# Most values take more than a byte of their line, and 8 in memory, empty or not.
_CELLS_OF_A_BYTE = 4


class Expansion:
    """Counts one file's bytes and values; `FileFailed` once there are too many for its size.

    ``stored`` is what was listed, ``most`` how many bytes each of these may become. A file that
    is larger by now counts as large as what was read of it.
    """

    def __init__(self, stored: int, most: int) -> None:
        self._stored = stored
        self._most = most
        self._grown = 0

    def add(self, grown: int, stored: int = 0) -> None:
        """So many more bytes, out of ``stored`` in all up to now."""
        self._stored = max(self._stored, stored)
        self._grown += grown
        if self._grown > max(EXPANSION_FREE_BYTES, self._stored * self._most):
            raise FileFailed(
                "decompress",
                f"becomes more than {self._most:,} times the {self._stored:,} bytes that are"
                " stored of it, empty values counted; if that is right, raise"
                " error_handling.advanced.max_expansion",
            )

    def add_cells(self, cells: int) -> None:
        """So many more values, empty ones too."""
        self.add(cells // _CELLS_OF_A_BYTE)
