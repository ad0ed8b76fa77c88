"""Construction of the workers that ingest: sources with what runs their batches and shows them.

`blizzard_py.app.wiring` makes what they share with commands that only look.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from blizzard_core.checkpoint.writer_identity import TakeoverPolicy, allow_takeover
from blizzard_core.errors import BlizzardError
from blizzard_core.settings.document import Config
from blizzard_py.app.notifications import with_inbox
from blizzard_py.app.wiring import context_of, joined, kind_of
from blizzard_py.engines.lazy import HasSession
from blizzard_py.ingest.jobs import Jobs, PlainJobs
from blizzard_py.ingest.request_acceptance import RequestEffects
from blizzard_py.ingest.source_pipeline import SourcePipeline
from blizzard_py.job import Engine
from blizzard_py.sources.activity import SourceActivity
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.files.lead_activity import LeadActivity
from blizzard_py.sources.protocol import Source


def build(
    config: Config,
    engine: Engine,
    *,
    fresh: bool = False,
    admission: TakeoverPolicy = allow_takeover,
    once: bool = False,
) -> list[SourcePipeline]:
    """Return a worker for every source of every pipeline. Opens no connection.

    Sources of one query over event time share one. ``fresh`` forces a cold start if the checkpoint
    is missing, whatever else exists. ``admission`` may leave sources to the daemon that runs them.
    With ``once`` no budget limits their scans, and no notification is read.
    """
    return [
        source_pipeline(with_inbox(replace(parts, once=once)), fresh=fresh, admission=admission)
        for name, pipeline in config.pipelines.items()
        for parts in (
            [live_query(config, name, engine)]
            if len(pipeline.branches) > 1
            else [live_source(config, (name, source), engine) for source in pipeline.sources]
        )
    ]


def live_source(config: Config, where: tuple[str, str], engine: Engine) -> SourceContext:
    """Return what a source is made of, with its live view. Opens no connection."""
    return context_of(config, where, engine, SourceActivity(*_shown(config, where), time.time))


def live_query(config: Config, name: str, engine: Engine) -> SourceContext:
    """Return what the one worker of a query over event time is made of, with a view of each source.

    They are the first one's by name, with all of them as members.
    """
    first, *others = (branch.source for branch in config.pipelines[name].branches)
    members = {other: live_source(config, (name, other), engine) for other in others}
    views = {other: each.activity for other, each in members.items() if each.activity is not None}
    where = (name, first)
    lead = LeadActivity(_shown(config, where), time.time, first=first, others=views)
    return joined(config, [context_of(config, where, engine, lead), *members.values()])


def live_owner(config: Config, where: tuple[str, str], engine: Engine) -> SourceContext:
    """Return the parts of the owner of the source's checkpoint, with its live view."""
    if len(config.pipelines[where[0]].branches) > 1:
        return live_query(config, where[0], engine)
    return live_source(config, where, engine)


def _shown(config: Config, where: tuple[str, str]) -> tuple[str, str]:
    """Return the name and the place of a source as its view shows them."""
    return "/".join(where), config.pipelines[where[0]].sources[where[1]].uri


def source_pipeline(
    parts: SourceContext,
    *,
    fresh: bool = False,
    admission: TakeoverPolicy = allow_takeover,
    requests_only: bool = False,
    replica_id: str = "",
    taken: Callable[[], None] = lambda: None,
) -> SourcePipeline:
    """One source as its settings describe it; see `SourcePipeline` for the options."""
    return SourcePipeline(
        parts,
        kind_of(parts).opener(parts),
        fresh=fresh,
        admission=admission,
        jobs=_jobs_of(parts),
        requests_only=requests_only,
        effects=partial(_effects, parts),
        replica_id=replica_id,
        taken=taken,
    )


def _effects(parts: SourceContext, source: Source[Any]) -> RequestEffects:
    # Whatever only looks never needs what executes requests.
    from blizzard_py.app.request_effects import effects_of  # noqa: PLC0415  # see above

    return effects_of(parts, source)


def _jobs_of(parts: SourceContext) -> Jobs:
    # They bring kernels along, which a daemon without event time never needs in its process.
    if parts.event_time is not None:
        from blizzard_py.streaming.jobs import StreamJobs  # noqa: PLC0415  # see above

        return StreamJobs(parts, parts.event_time.settings, session_of(parts.engine))
    if parts.watch is not None:
        from blizzard_py.streaming.observed_watermark import ObservedWatermarkJobs  # noqa: PLC0415  # see above

        return ObservedWatermarkJobs(PlainJobs(parts.engine), parts, parts.watch)
    return PlainJobs(parts.engine)


def session_of(engine: Engine) -> Callable[[], Any]:
    """Return what gives the engine's Spark session. Starts nothing."""
    if isinstance(engine, HasSession):
        return engine.session

    def none() -> Any:
        raise BlizzardError("this command does not ingest")

    return none
