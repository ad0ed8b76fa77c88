"""Formats of source files: from bytes to the declared columns, with an address for each record.

`protocol` is the contract, `names` the list of formats. A format has two halves. The first cuts a
file into pieces of whole records, in order and in bounded memory. The second makes rows of a piece
and depends on nothing else, so it may run in a thread or in a child process.
"""
