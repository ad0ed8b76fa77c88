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
from blizzard_core.settings.document import Config
from blizzard_py.app.notifications import with_inbox
from blizzard_py.app.source_kinds import opener_of
from blizzard_py.app.wiring import context_of, joined, owners
from blizzard_py.ingest.jobs import Jobs
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
        for where in owners(config)
        for parts in [live_owner(config, where, engine)]
    ]


def live_owner(config: Config, where: tuple[str, str], engine: Engine) -> SourceContext:
    """Return the parts of the owner of the source's checkpoint, with a live view of each source.

    Those of several sources of a query are the first one's by name, with all of them as members.
    """
    name = where[0]
    first, *others = [each.source for each in config.pipelines[name].branches] or [where[1]]
    place = _shown(config, (name, first))
    views = {o: SourceActivity(*_shown(config, (name, o)), time.time) for o in others}
    lead = (
        LeadActivity(place, time.time, first=first, others=views)
        if others
        else SourceActivity(*place, time.time)
    )
    every = {first: lead, **views}.items()
    return joined(config, [context_of(config, (name, each), engine, view) for each, view in every])


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
        opener_of(parts),
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

        return StreamJobs(parts, parts.event_time.settings)
    if parts.watch is not None:
        from blizzard_py.streaming.observed_watermark import ObservedWatermarkJobs  # noqa: PLC0415  # see above

        return ObservedWatermarkJobs(parts, parts.watch)
    return Jobs(parts.engine)
