"""Selection of the files that an operator's request brings. Writes nothing but files of records.

`candidates` reads which files a request names, a page at a time; `claims` says how each stands to
the source; `choose` decides what becomes of it by the mode of the request, and `earlier` where rows
that are to be replaced lie. Only the owner of the source's checkpoint decides, between two batches,
so nothing can come between a decision and the save that queues the files.
"""
