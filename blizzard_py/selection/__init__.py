"""Selection of the files that an operator's request ingests. Writes only files of records.

`candidates` reads the files of a request, a page at a time. `claims` says how each stands to the
source. `choose` decides by the mode of the request, and `replaced` finds the rows to replace. Only
the owner of the source's checkpoint decides, between two batches, so nothing can happen between a
decision and the save that queues the files.
"""
