"""The two sources of a replay, made from the live one's parts, and their dead letters."""

from __future__ import annotations

from dataclasses import replace

from blizzard_core.settings.sources import OnBadRecord, SourceSettings
from blizzard_core.storage.protocol import Storage
from blizzard_py.dead_letters.reader import DeadLetter, original_of
from blizzard_py.job import Engine, Place
from blizzard_py.sources.parts import Parts
from blizzard_py.state.siblings import RECORDS_SUFFIX, REPLAY_SUFFIX


def records_uri(live: Parts) -> str:
    """Return where the records of a source are written to be read again."""
    return f"{live.stores.dlq.uri}/{live.id}{RECORDS_SUFFIX}"


def file_parts(live: Parts, engine: Engine) -> Parts:
    """The source that reads whole files again."""
    # A replay is not stopped by what fails again: it has its letter, and others wait.
    on_bad: OnBadRecord = (
        "quarantine_file" if live.errors.on_bad_record == "fail" else live.errors.on_bad_record
    )
    return replace(
        live,
        suffix=REPLAY_SUFFIX,
        engine=engine,
        ingest=replace(live.ingest, on_bad_record=on_bad),
        source=_source(live),
        asked=None,
        errors=live.errors.model_copy(update={"max_failures": 0, "on_bad_record": on_bad}),
    )


def _source(live: Parts) -> SourceSettings:
    """The letters are the only bound, and every one is to get its answer."""
    if not isinstance(live.source, SourceSettings):
        # Rows of tables and APIs are in their letters; files of them there are none.
        found = SourceSettings(source_uri=live.stores.source.uri, id=live.source.id)
    else:
        found = live.source
    return found.model_copy(
        update={
            "use_watermark": True,
            "units": None,
            "partition_filter": found.partition_filter
            and found.partition_filter.model_copy(update={"lookback": None}),
            "advanced": found.advanced.model_copy(
                update={"late_sweep_interval": 0, "order_guard": "off"}
            ),
        }
    )


def record_parts(live: Parts, engine: Engine, storage: Storage) -> Parts:
    """The source that reads the records below `records_uri`, which ``storage`` is."""
    files = file_parts(live, engine)
    return replace(
        files,
        suffix=RECORDS_SUFFIX,
        source=files.files.model_copy(
            update={"advanced": files.files.advanced.model_copy(update={"compression": "none"})}
        ),
        ingest=replace(
            live.ingest,
            source=Place(storage.uri, live.ingest.sink.options),
            # Those that are good now are not to wait for those that are not.
            on_bad_record="quarantine_record",
            max_bad_fraction=1.0,
        ),
        errors=files.errors.model_copy(update={"on_bad_record": "quarantine_record"}),
        stores=replace(live.stores, source=storage),
    )


def original(live: Parts, letter: DeadLetter) -> DeadLetter:
    """The letter as of the source's file, also where a replay had written its record anew.

    Which line of the source's file that was nobody knows then.
    """
    records = f"{records_uri(live)}/"
    if not letter.uri.startswith(records):
        return letter
    path = original_of(letter.uri.removeprefix(records))
    return replace(letter, uri=f"{live.stores.source.uri}/{path}", line=0)
