"""``blizzard checkpoint rebuild``: a lost checkpoint is made again from what earlier work left.

What was settled is known: the journal says it batch by batch, and the segments of the
ledger (or, with ``use_watermark: false``, of the set) that it is folded into; all segments
count that are there, since each holds only names that were done. So of everything that
the source lists, what is settled is done, and everything else is new. Names lower than the one that
the next scan has to start behind are remembered with the time that the journal gives, and no clock
moves the start.

**Batches that were being published** are in the journal, too, with their outputs. What
is still staged comes back as ``publishing`` and the next start finishes it. Outputs that
are neither staged nor in place nor in the table's log are lost:

* if none of the batch's rows can be in the table, its files are tried again;
* if some are, or the log does not tell, every file of it gets a dead letter: to ingest
  it again could double rows, to say nothing would lose them.

Both are put into the rebuilt checkpoint as a batch in ``publishing`` with these outcomes,
so the batch protocol carries them out and a death at any moment leaves nothing half done.

**Where it would be guessing it refuses**: if the table tells of batches, or holds
outputs, that neither journal nor ledger know, or a segment is gone that the old
checkpoint names. Then it says from when on, and the operator says what is done
(``done_before``). What was said so is noted in the ledger, and so is what only the checkpoint that
is there says, as of files that an original has done.

The checkpoint of a query over event time is kept, and only what it counts on is made again
(`blizzard_py.edits.rebuild.query`).

Everything is read first; then one conditional write replaces exactly what was looked at.
A daemon that runs is fenced by it; one that saved meanwhile makes it refuse. The
old checkpoint is kept beside the new one.
"""

from blizzard_py.edits.rebuild.decide import BatchDecision, Doubt, Judgement, Rebuilt
from blizzard_py.edits.rebuild.run import Rebuild

__all__ = ["BatchDecision", "Doubt", "Judgement", "Rebuild", "Rebuilt"]
