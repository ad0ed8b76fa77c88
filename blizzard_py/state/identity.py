"""Whose a state is: whether it may be gone on with under the names and the place that are given."""

from __future__ import annotations

from blizzard_core.errors import StateError
from blizzard_core.storage.opening import is_same_place
from blizzard_py.state.source_state import IN, Identity, SourceState


def check_identity(
    state: SourceState, parts_identity: Identity, own_id: str | None, where: str
) -> None:
    """Raise `StateError` if the state is another source's, or of files that lie elsewhere.

    With an ``id`` of its own a source may have been renamed; its files may not have moved.
    Where nothing was begun yet, a place that was mistaken may still be corrected.
    """
    known = state.source
    progress = state.progress
    begun = progress.value is not None or progress.partitions or state.processed
    if known is None or not (begun or state.in_flight or state.queue or state.retries):
        return
    names = (known.pipeline, known.source)
    if own_id is None and names != (parts_identity.pipeline, parts_identity.source):
        raise StateError(
            f"{where}: belongs to {'/'.join(names)}, whose names make the same file name; give one"
            " of the two an `id:`"
        )
    was, now = known.uri, parts_identity.uri
    if was == now and not _is_same_lake(known.lake, parts_identity.lake):
        was, now = f"{was}, {known.lake}", f"{now}, {parts_identity.lake}"
    if was != now and (state.columns or state.units):
        raise StateError(
            f"{where}: is of {was}, the configuration now says {now}; set"
            " connection and path (or table) back; or give the source another `id:` and start"
            " once with --fresh to read everything there; or, if it gives the same rows under its"
            f" new name, say so with `blizzard rename --moved-from '{known.uri}'`"
        )
    if not is_same_place(known.uri, parts_identity.uri):
        raise StateError(
            f"{where}: is of the files below {known.uri}, the configuration now says"
            f" {parts_identity.uri}; set source_uri back, give the source another `id:` and"
            " start once with --fresh to ingest everything there, or, if the same files were moved"
            " there under their names, say so with `blizzard rename`"
        )


def _is_same_lake(known: str | None, given: str | None) -> bool:
    """Return whether the same driver reads the same place; so where nobody wrote down which."""
    if known is None or given is None:
        return True
    (driver, _, place), (other, _, elsewhere) = known.partition(IN), given.partition(IN)
    return driver == other and is_same_place(place, elsewhere)
