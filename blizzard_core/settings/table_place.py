"""The spelling of a table's directory, as far as deltalake and Blizzard read it alike.

Blizzard writes Parquet below the spelling itself. deltalake decodes `%20` on every store, and on
object stores it ends the path at `#` and `?`: the log would come into another directory, and
maybe into another table.
"""

from __future__ import annotations

import re
from typing import Annotated
from urllib.parse import unquote

from pydantic import AfterValidator

from blizzard_core.settings.base import Uri

_ENCODED = re.compile(r"%[0-9A-Fa-f]{2}")


def _checked(uri: str) -> str:
    encoded = _ENCODED.search(uri)
    if encoded is not None:
        raise ValueError(
            f"holds {encoded[0]}, which deltalake reads as {unquote(encoded[0])!r}: the log would"
            " come into another directory than the data. Write the name as it is in the store,"
            f" as {unquote(uri)!r}; a directory whose name holds {encoded[0]} cannot be a table"
        )
    cut = next((sign for sign in "?#" if "://" in uri and sign in uri), None)
    if cut is not None:
        raise ValueError(
            f"holds {cut!r}, at which deltalake ends the path: the log would come into another"
            " directory than the data. Choose a directory without it"
        )
    return uri


TableUri = Annotated[Uri, AfterValidator(_checked)]
