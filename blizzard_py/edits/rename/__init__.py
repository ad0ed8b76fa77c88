"""``blizzard rename``: a source keeps its state when its names change, or its files move.

State is named after pipeline and source (or the source's ``id``). A rename takes it from
the old id to the new one:

1. the old checkpoint becomes a *tombstone* in one fenced save: it names the new id and holds the
   whole state. Every release refuses to run on it, so the old name has no owner any more, and the
   rename only goes forward;
2. journals, segments, dead letters and the inferred schema are copied;
3. ``_blizzard_fence/{old id}~moved.json`` names the new id, and the checkpoint is created under
   the new id;
4. the tombstone drops the state, and stays.

After a crash the same command goes on. Everything is copied again while the tombstone holds the
state and there is no new checkpoint. After that only step 4 remains.

A rename is refused in three cases:

* while a batch is being published, because its outputs are staged under the old name;
* for a stale checkpoint, which could not be noticed under the new name;
* if there was work under the new name, which would count as work of this source.

The copied objects of the old name stay; delete them when you like.

**Files that moved.** A checkpoint belongs to the files below one ``source_uri``. With
``moved_from`` it is used for the same files, under the same names, at another URI. The newest done
names of every tracked partition must be there. Dead letters name files by URI, so they are
rewritten.
"""

from blizzard_py.edits.rename.current import RenameRefused
from blizzard_py.edits.rename.run import Rename, Renamed

__all__ = ["Rename", "RenameRefused", "Renamed"]
