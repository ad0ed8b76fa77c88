"""The files a schema is inferred from, and their first lines."""

from __future__ import annotations

from collections.abc import Sequence

from blizzard_core.errors import Unavailable
from blizzard_core.storage.protocol import Entry, Storage
from blizzard_py.job import JobFile
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.failure import FileFailed

_BOM = b"\xef\xbb\xbf"


def chosen(files: Sequence[Entry], count: int) -> list[Entry]:
    """Return at most ``count`` files, evenly spread: the first, the last and some between.

    Formats change with time, so neighbours show less than distant files.
    """
    if len(files) <= count:
        return list(files)
    if count == 1:
        return [files[-1]]
    last = len(files) - 1
    return [files[round(index * last / (count - 1))] for index in range(count)]


def first_lines(storage: Storage, file: Entry, limit: int) -> list[bytes]:
    """Return the whole lines within the first ``limit`` decompressed bytes of a file.

    A file that is damaged or gone gives the lines that could be read, since its
    verdict is the ingest's. Raises `Unavailable` if the store does not answer.
    """
    data = bytearray()
    whole = False
    try:
        with opened(storage, JobFile(file.path, file.size)) as blocks:
            for block in blocks:
                data += block
                if len(data) > limit:
                    break
            else:
                whole = True
    except FileFailed as error:
        if error.outcome == "retry":
            raise Unavailable(f"{storage.uri}/{file.path}: {error.reason}") from error
    lines = bytes(data[:limit]).removeprefix(_BOM).split(b"\n")
    return lines if whole else lines[:-1]
