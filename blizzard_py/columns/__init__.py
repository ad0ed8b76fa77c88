"""Column watermarks, pure and public: how they are written, moved, compared and asked for.

A **watermark** is a dict, column → the highest value that was read. All calls here are
functions of their arguments (but for a default clock, and for `load` and `save`, which call
what they are given): they open nothing and keep nothing. Times without a zone are UTC.

Errors are `BlizzardError` s: `WatermarkError` for watermarks that cannot be read, written or
compared, `ConfigurationError` for settings that make no sense, `SourceError` for what a source
cannot be asked.

The planner's own parts lie beside it: `windows` (what is read next), `statements.window_where`
(its SQL) and `digests` (which rows were read before).
"""

from blizzard_core.errors import ConfigurationError, SourceError, WatermarkError
from blizzard_py.columns.backfill import chunks, remaining
from blizzard_py.columns.compare import advanced
from blizzard_py.columns.date_folders import folder_time, folders
from blizzard_py.columns.lookback import closing_day, effective, look_back, shift
from blizzard_py.columns.notation import deserialize, is_empty, serialize, stored
from blizzard_py.columns.provider import load, save
from blizzard_py.columns.records import high, rows
from blizzard_py.columns.requests import param, params, ranges, sent_to
from blizzard_py.columns.statements import cap, query, where

__all__ = [
    "ConfigurationError",
    "SourceError",
    "WatermarkError",
    "advanced",
    "cap",
    "chunks",
    "closing_day",
    "deserialize",
    "effective",
    "folder_time",
    "folders",
    "high",
    "is_empty",
    "load",
    "look_back",
    "param",
    "params",
    "query",
    "ranges",
    "remaining",
    "rows",
    "save",
    "sent_to",
    "serialize",
    "shift",
    "stored",
    "where",
]
