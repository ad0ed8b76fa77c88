"""Times of INT96 columns, which old Spark, Hive and Impala write.

Arrow reads them as nanoseconds and lets years before 1677 or after 2262 overflow to other times
without an error. As microseconds it cuts digits. So they are read in both units, and compared.
"""

from __future__ import annotations

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

_NANOSECONDS = 1000
# Microseconds that 64 bits of nanoseconds can be.
_LOWEST, _HIGHEST = -(1 << 63) // _NANOSECONDS + 1, (1 << 63) // _NANOSECONDS - 1


def int96_columns(file: pq.ParquetFile) -> list[str]:
    """Return the columns of that type; those within structs and lists are not named."""
    columns = (file.schema.column(at) for at in range(file.metadata.num_columns))
    return [each.path for each in columns if each.physical_type == "INT96"]


def exact_times(coarse: pa.Array, fine: pa.Array) -> pa.Array:
    """Return the times of both units, in nanoseconds if microseconds do not hold them.

    Raises `pa.ArrowInvalid` if neither unit holds all of them.
    """
    micros, nanos = coarse.cast(pa.int64()), fine.cast(pa.int64())
    within = pc.and_(pc.greater_equal(micros, _LOWEST), pc.less_equal(micros, _HIGHEST))
    digits = pc.not_equal(pc.multiply(pc.divide(nanos, _NANOSECONDS), _NANOSECONDS), nanos)
    if not pc.any(pc.and_(within, digits)).as_py():
        return coarse
    if not pc.all(within).as_py():
        raise pa.ArrowInvalid("INT96 times beyond the years 1677 to 2262 beside nanoseconds")
    return fine
