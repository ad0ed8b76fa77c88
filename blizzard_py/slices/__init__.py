"""Slices: what a table or an API is read in, and what one reading of it replaces. Pure.

A **slice** is a range of values of a source and what becomes of the rows that it had before. A
window on watermark columns is one, or is cut into several; so is each reading of a work unit
(`units`); a snapshot is one that holds everything. Here stands what they share: values, how they
are compared and written (`compare`, `notation`, `iso`, `instants`), the calendar and ranges cut
by it (`calendars`, `cutting`), what is read next (`lookback`, `windows`), the text in `_unit`
by which rows are replaced (`names`), and digests of rows that were read before (`digests`).

Nothing here opens or keeps anything. `blizzard_py.columns` and `blizzard_py.units` are what users'
own programs may call.
"""
