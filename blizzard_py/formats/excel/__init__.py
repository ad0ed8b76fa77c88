"""The format Excel: workbooks of the kind Open XML, read as a stream of their parts.

`archive` opens the zip archive, `elements` walks XML in bounded memory. `workbook` finds the sheet,
its texts and its date formats; `cells` has the rules of cell values, and `sheet` yields rows.
`records` is the format, and `decode` makes the declared columns.
"""
