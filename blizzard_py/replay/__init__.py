"""Replay: dead letters are ingested after all, exactly once, beside the live daemon.

A source has two replays, each a source of its own with its own checkpoint:

* ``{pipeline}_{source}~replay`` reads whole files again, where they lie;
* ``{pipeline}_{source}~records`` reads single records, which are first written as
  NDJSON below ``{dlq}/{pipeline}_{source}~records/``, in the folders of the file
  they are from, so that rows go to the same partition of the table.

The live watermarks are never written. The steps, and what a death after each means:

1. record files are written under names that follow from the letters; again on
   the next run, the same;
2. **the checkpoint is saved with the files in its queue and the letters' names**:
   from here on the letters are taken, and the next run only finishes them. Of an object
   with more files than may be queued at once a part is queued, then steps 3 and 2 again;
   the last part takes the letter;
3. the batch protocol of `blizzard_py.ingest.source_pipeline` drains the queue. A file or record
   that fails again has a new letter before it leaves the queue;
4. the letters are moved to ``replayed/``, and the checkpoint forgets their names.

A file that is another's to ingest is left to it: one that the live daemon has
still to do or will find late, and one that was ingested since its letter. Two
replays at once fence each other. ``--replace`` (`blizzard_py.replay.replacing`) puts files that
were ingested before into the queue of ``~replay``, in step 2.
"""

from blizzard_py.replay.choosing import ReplaceRefused
from blizzard_py.replay.replacing import Replacement, Replacing
from blizzard_py.replay.run import Drain, Outcome, Replay, Report
from blizzard_py.replay.sources import file_parts, record_parts, records_uri
from blizzard_py.replay.taken import Taken

__all__ = [
    "Drain",
    "Outcome",
    "ReplaceRefused",
    "Replacement",
    "Replacing",
    "Replay",
    "Report",
    "Taken",
    "file_parts",
    "record_parts",
    "records_uri",
]
