"""Limits of a batch: the time for one part of the work alone.

No letters, no reports, no merging: each process takes its share of the files and goes through
them, decompressing only, or making columns as well, or writing them as well.
"""

from __future__ import annotations

from collections.abc import Sequence
from concurrent.futures import Executor
from functools import partial
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq

from blizzard_core.storage.local import LocalStorage
from blizzard_py.formats.ndjson.columns import RecordSchema
from blizzard_py.formats.ndjson.parse import LineParser
from blizzard_py.job import FieldSpec, JobFile
from blizzard_py.kernels.write.parquet_file import encodings
from blizzard_py.lines.decompress import opened
from blizzard_py.lines.framing import Piece, framed

GUNZIP = "limit: gunzip only"
COLUMNS = "limit: + columns"
PARQUET = "limit: + Parquet"
LIMITS = (GUNZIP, COLUMNS, PARQUET)
# As many as a row group of the kernels holds, more or less.
_GROUP_BYTES = 64 << 20


def limit(
    pool: Executor, cores: int, fields: tuple[FieldSpec, ...], name: str, source: Path, sink: Path
) -> int:
    """Go as far as ``name`` says with all files of the folder; rows by lines."""
    sink.mkdir(parents=True)
    files = sorted(source.iterdir(), key=lambda path: -path.stat().st_size)
    shares = [tuple(path.name for path in files[n::cores]) for n in range(cores)]
    share = partial(_share, fields, name, str(source), sink)
    return sum(pool.map(share, range(cores), shares))


def _share(
    fields: tuple[FieldSpec, ...],
    name: str,
    source: str,
    sink: Path,
    number: int,
    files: Sequence[str],
) -> int:
    storage = LocalStorage(source)
    parser = LineParser(RecordSchema(fields))
    lines = 0
    waiting: list[pa.Table] = []
    waiting_bytes = 0
    writer: pq.ParquetWriter | None = None
    for path in files:
        with opened(storage, JobFile(path, 0)) as blocks:
            for chunk in framed(blocks):
                assert isinstance(chunk, Piece)
                if name == GUNZIP:
                    lines += chunk.data.count(b"\n")
                    continue
                table = parser.parse(chunk.data).table
                lines += table.num_rows
                if name == COLUMNS:
                    continue
                writer = writer or pq.ParquetWriter(
                    sink / f"{number}.parquet",
                    table.schema,
                    use_dictionary=encodings(table).dictionary,
                )
                waiting.append(table)
                waiting_bytes += table.nbytes
                if waiting_bytes > _GROUP_BYTES:
                    writer.write_table(pa.concat_tables(waiting))
                    waiting, waiting_bytes = [], 0
    if writer is not None:
        writer.write_table(pa.concat_tables([table.slice(0, 0), *waiting]))
        writer.close()
    return lines
