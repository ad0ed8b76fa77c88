"""Work units, pure and public: ranges of time and listed values, planned one by one.

All calls here are functions of their arguments: they open nothing and keep nothing. Times are
aware datetimes; those that are returned are in UTC, whole milliseconds. Everything wrong raises
`UnitError`, a `ConfigError`.

The pipeline's own parts lie beside it: `ranges` (a range as configured), `state` (what a
checkpoint knows), `due` (what is read next), `outcomes` (what follows) and `slices` (the text by
which rows are replaced).
"""

from blizzard_core.errors import UnitError
from blizzard_py.units.definitions import check
from blizzard_py.units.instants import resolve
from blizzard_py.units.limits import limit
from blizzard_py.units.planner import Plan, PlannedUnit, plan, settled
from blizzard_py.units.schemes import composite, partitions, scheme
from blizzard_py.units.values import unit_list, unit_name, units_from

__all__ = [
    "Plan",
    "PlannedUnit",
    "UnitError",
    "check",
    "composite",
    "limit",
    "partitions",
    "plan",
    "resolve",
    "scheme",
    "settled",
    "unit_list",
    "unit_name",
    "units_from",
]
