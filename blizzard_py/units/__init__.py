"""Work units, pure and public: ranges of time and listed values, planned one by one.

All calls are functions of their arguments: they open nothing and keep nothing. Times are aware
datetimes. Everything wrong raises `UnitError`, a `ConfigError`.
"""

from blizzard_core.errors import UnitError

__all__ = ["UnitError"]
