"""The growth of a file on its way to rows, relative to its stored size.

Kilobytes of gzip are megabytes of anything, kilobytes of zstd gigabytes, and ``{}`` is a row with
as many empty values as there are columns. The writer pays for the stored bytes and the task for the
result, so the stored size limits the result.
"""

from __future__ import annotations

from blizzard_core.limits import EXPANSION_FREE_BYTES
from blizzard_py.lines.failure import FileFailed

# Most values take more than a byte of their line, and 8 in memory, even if empty.
_CELLS_OF_A_BYTE = 4


class Expansion:
    """Counts one file's bytes and values; raises `FileFailed` if they are too many for its size.

    ``stored`` is the listed size, ``most`` the bytes that each stored byte may become. For a file
    that has grown, the bytes read count as its size.
    """

    def __init__(self, stored: int, most: int) -> None:
        self._stored = stored
        self._most = most
        self._grown = 0

    def add(self, grown: int, stored: int = 0) -> None:
        """Count so many more bytes, out of ``stored`` bytes in all up to now."""
        self._stored = max(self._stored, stored)
        self._grown += grown
        if self._grown > max(EXPANSION_FREE_BYTES, self._stored * self._most):
            raise FileFailed(
                "decompress",
                f"becomes more than {self._most:,} times its {self._stored:,} stored bytes,"
                " including empty values; if that is intended, raise"
                " error_handling.advanced.max_expansion",
            )

    def add_cells(self, cells: int) -> None:
        """Count so many more values, including empty ones."""
        self.add(cells // _CELLS_OF_A_BYTE)
