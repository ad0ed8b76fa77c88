"""What Blizzard writes into files and paths and Penguin reads out of them again."""

from __future__ import annotations

from collections.abc import Mapping

# The key of a Parquet file's metadata that says which task of which batch wrote it.
OUTPUT_ID_KEY = "blizzard.output_id"
# The key of a Parquet file's metadata that says in which of its columns there is a NaN: their
# numbers, with commas. No footer counts NaN, and bounds leave it out.
NAN_COLUMNS_KEY = "blizzard.nan_columns"

# What stands for null in a directory's name, in Hive and everywhere since.
NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"


def nan_columns_of(pairs: Mapping[bytes, bytes] | None) -> frozenset[int] | None:
    """The numbers of a file's columns that hold NaN; None where its footer does not say."""
    text = (pairs or {}).get(NAN_COLUMNS_KEY.encode())
    if text is None:
        return None
    try:
        return frozenset(int(number) for number in text.split(b",") if number)
    except ValueError:
        return None
