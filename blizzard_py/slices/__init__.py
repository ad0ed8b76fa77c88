"""Slices: the parts in which a table or an API is read, and whose rows a reading replaces. Pure.

A **slice** is a range of a source's values whose rows are replaced together. A window on watermark
columns is one slice, or is cut into several. The same holds for each reading of a work unit
(`units`). A snapshot is one slice with all rows. This package has the common parts: comparing and
writing values (`compare`, `notation`, `iso`, `instants`), the calendar and ranges cut by it
(`calendars`, `cutting`), the next reading (`lookback`, `windows`), the text in `_unit` by which
rows are replaced (`names`), and digests of rows that were read before (`digests`).

Nothing here opens or stores anything. Users' own programs may call `blizzard_py.columns` and
`blizzard_py.units`.
"""
