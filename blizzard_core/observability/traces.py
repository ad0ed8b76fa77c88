"""Traces of OpenTelemetry: one for each batch, from the scan that found its items to its commit.

The batch's id is the trace's id, and the id of its root span is a digest of the batch's key. So
Penguin adds its commit to the trace of each batch in it. No context is passed on, and a daemon that
takes a batch over continues its trace. An attempt that failed or was aborted is a root span of its
own.
"""

from __future__ import annotations

import hashlib
import secrets
import threading
import uuid
from collections.abc import Mapping
from importlib.metadata import version
from typing import TYPE_CHECKING

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import SpanContext, Status, StatusCode, TraceFlags

from blizzard_core.handover.outputs import output_id_of

if TYPE_CHECKING:
    from opentelemetry.sdk.trace.export import SpanExporter

    from blizzard_core.observability.runs import RunEvent

# Its path for traces, as the specification of OTLP has it.
_PATH = "/v1/traces"
CLOSE_SECS = 5.0


class Traces:
    """The sink that turns runs into spans."""

    def __init__(self, daemon: str, exporter: SpanExporter) -> None:
        release = version("blizzard-penguin")
        self._resource = Resource.create({"service.name": daemon, "service.version": release})
        self._scope = InstrumentationScope("blizzard-penguin", release)
        self._exporter = exporter
        self._processor = BatchSpanProcessor(exporter)  # a thread and a bounded queue of its own

    def take(self, event: RunEvent) -> None:
        """Queue the spans of a run that is over."""
        if event.kind == "start":
            return
        about = _attributes(event)
        error = event.error if event.kind == "fail" else None
        if event.job.daemon == "penguin":
            for key in event.result.batches:
                root = _root_of(key)
                self._add("commit", _child_of(root), root, (event.start, event.at), about, error)
            return
        root = _root_of(event.key)
        self._add("batch", root, None, (event.start, event.at), about, error)
        for step in event.steps:
            self._add(step.name, _child_of(root), root, (step.start, step.end))

    def close(self) -> None:
        """Send what waits, for `CLOSE_SECS` at most: the library tries for half a minute."""
        sending = threading.Thread(target=self._processor.shutdown, name="traces", daemon=True)
        sending.start()
        sending.join(CLOSE_SECS)
        if sending.is_alive():
            self._exporter.shutdown()  # ends a request that is repeated, and refuses others

    def _add(
        self,
        name: str,
        context: SpanContext,
        parent: SpanContext | None,
        between: tuple[float, float],
        about: Mapping[str, str | int] | None = None,
        error: str | None = None,
    ) -> None:
        start, end = (int(at * 1e9) for at in between)
        status = Status() if error is None else Status(StatusCode.ERROR, error)
        span = ReadableSpan(
            name,
            context,
            parent,
            self._resource,
            about,
            status=status,
            start_time=start,
            end_time=end,
            instrumentation_scope=self._scope,
        )
        self._processor.on_end(span)


def traces(daemon: str, endpoint: str) -> Traces:
    """Return the sink that sends to a collector over HTTP.

    The library reads ``OTEL_EXPORTER_OTLP_HEADERS`` and the other variables of its specification.
    """
    url = endpoint if endpoint.endswith(_PATH) else endpoint.rstrip("/") + _PATH
    return Traces(daemon, OTLPSpanExporter(url))


def _root_of(key: str) -> SpanContext:
    """Return the root span of the batch with this key, the same in both daemons."""
    found = output_id_of(f"{key}/")
    trace = secrets.randbits(128) if found is None else uuid.UUID(found.batch).int
    digest = hashlib.blake2b(key.encode(), digest_size=8).digest()
    return _context(trace, int.from_bytes(digest))


def _child_of(root: SpanContext) -> SpanContext:
    return _context(root.trace_id, secrets.randbits(64))


def _context(trace: int, span: int) -> SpanContext:
    flags = TraceFlags(TraceFlags.SAMPLED)
    # An id of zero is invalid.
    return SpanContext(trace or 1, span or 1, is_remote=False, trace_flags=flags)


def _attributes(event: RunEvent) -> dict[str, str | int]:
    job, result = event.job, event.result
    found: dict[str, str | int] = {f"{job.daemon}.job": job.name, f"{job.daemon}.table": job.table}
    if job.source is not None:
        found[f"{job.daemon}.source"] = job.source
    if event.kind == "complete":
        found |= {f"{job.daemon}.read.{name}": count for name, count in result.read.items()}
        found |= {f"{job.daemon}.written.{name}": count for name, count in result.written.items()}
        found[f"{job.daemon}.bad_rows"] = result.bad_rows
    if result.version is not None:
        found["penguin.version"] = result.version
    return found
