"""Classification of delta-rs's messages. Pure.

delta-rs raises one class for most errors, so only the message shows the kind.
"""

from __future__ import annotations

import re

from blizzard_core.redact import redacted
from blizzard_core.text import shortened
from penguin_py.model import REMOVAL_RETENTION_SECS

_PASSING = re.compile(
    r"object.?store|generic (s3|http|gcs|microsoft|local)|error sending|timed? ?out|connection"
    r"|os error|interrupted|too many requests|service unavailable",
    re.IGNORECASE,
)
# The class of a delta-rs panic; it cannot be imported, and is no
# `Exception`.
_PANIC = "PanicException"
_UNSUPPORTED = "Unsupported table features"
# delta-rs's message when a listing from its own commit on contains an older one.
_OLDER_LISTED = "Invalid table version"
_IGNORES_START = (
    ". The store seems to ignore startFrom in listings. Azurite before 3.37 does: set"
    " AZURITE_BLOB_STORAGE_URL in the environment to AZURE_STORAGE_ENDPOINT without the account."
    " OneLake does where workspaces are written by name: write their GUIDs"
)
# Of months and years the shortest there are: the log must not be thought to remember longer.
_UNITS = {
    "year": 365 * 86_400.0,
    "month": 28 * 86_400.0,
    "week": 7 * 86_400.0,
    "day": 86_400.0,
    "hour": 3600.0,
    "minute": 60.0,
    "second": 1.0,
    "millisecond": 1e-3,
    "microsecond": 1e-6,
    "nanosecond": 1e-9,
}
_PART = r"([+-]?\s*(?:\d+(?:\.\d*)?|\.\d+))\s+([a-z]+)"
_INTERVAL = re.compile(rf"\s*(?:interval\s+)?({_PART}(?:\s+{_PART})*)\s*")
_INTERVAL_PART = re.compile(_PART)
_ANSI = re.compile(r"\x1b\[[0-9;]*m")


# A message quotes paths and values of the log, of any length.
_LOOKED_AT = 20_000


def is_failure(error: BaseException) -> bool:
    """Return whether this is a failure, a panic of delta-rs included, and not a requested end."""
    return isinstance(error, Exception) or type(error).__name__ == _PANIC


def clean_message(error: BaseException) -> str:
    """Return delta-rs's message without colours, credentials and stack frames.

    Its beginning and its end, where the reason stands, if it is long.
    """
    text = _ANSI.sub("", str(error)).partition("\n   0: ")[0]
    return shortened(redacted(" ".join(shortened(text, _LOOKED_AT).split())))


def is_passing(message: str) -> bool:
    """Return whether the store failed, and not the commit."""
    return _PASSING.search(message) is not None


def is_unsupported(message: str) -> bool:
    """Return whether the table needs a feature that delta-rs lacks."""
    return _UNSUPPORTED in message


def commit_remedy(message: str, uri: str) -> str:
    """Return the remedy for a commit that Azure refuses, to be appended; empty if not known."""
    is_azure = uri.startswith(("az://", "abfs://", "abfss://"))
    return _IGNORES_START if is_azure and _OLDER_LISTED in message else ""


def interval_secs(text: str | None) -> float | None:
    """Parse Delta's ``interval 1 week 2 days`` to seconds as Spark does; the default if not set.

    None if it is not understood or negative.
    """
    if text is None:
        return REMOVAL_RETENTION_SECS
    match = _INTERVAL.fullmatch(text.lower())
    if match is None:
        return None
    total = 0.0
    for number, name in _INTERVAL_PART.findall(match[1]):
        unit = _UNITS.get(name.removesuffix("s"))
        if unit is None or ("." in number and unit != 1.0):
            return None
        total += float("".join(number.split())) * unit
    return total if total >= 0 else None
