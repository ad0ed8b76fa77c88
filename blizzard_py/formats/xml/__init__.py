"""The format XML: framing by the names of tags, and decoding by expat.

`encoding` makes UTF-8 of a file, `markup` has the lexical rules, `framing` finds the records within
their `parents`. `elements` makes trees of a piece, `columns` Arrow columns of trees, and
`documents` is the format.
"""
