"""``blizzard rename``: a source keeps its state when its names change, or its files move.

State is named after pipeline and source (or the source's ``id``). A rename takes it from
the old id to the new one:

1. the old checkpoint becomes a *tombstone* in one fenced save: it says where the state
   goes and holds the whole of it. Every release refuses to run on it, so from here on
   nobody can go on under the old name, and the rename only goes forward;
2. journals, segments, dead letters and the inferred schema are copied;
3. ``_blizzard_fence/{old id}~moved.json`` says where the state goes, and the checkpoint is
   created under the new id;
4. the tombstone lets go of what it held, and stays.

Killed anywhere, the same command goes on: as long as the old tombstone holds the state
and there is no new checkpoint, everything is copied again; after that only step 4 is left.
It is refused while a batch is being published, since that one's outputs are staged under
the old name, and for a stale checkpoint: under the new name nobody could tell. So it is where there
was work under the new name before, which would count as this one's. What was copied is left where
it was; delete it when you like.

**Files that moved.** A checkpoint is of the files below one ``source_uri``. With
``moved_from`` it is taken over for the same files, under the same names, at another one:
the newest names that are done in every tracked partition have to be there. Dead letters
name files by URI, so they are rewritten.
"""

from blizzard_py.edits.rename.current import RenameRefused
from blizzard_py.edits.rename.run import Rename, Renamed

__all__ = ["Rename", "RenameRefused", "Renamed"]
