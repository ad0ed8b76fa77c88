"""Submission of an operator's request, which is then followed until it is over.

A command writes its request and rings the bell. If a daemon works on the source, the daemon
executes the request and the command follows it. If no daemon does, because the writer released the
checkpoint or was a process of this machine that has ended, the command executes it. For requests
that ingest files it becomes the source's owner for that time; all others are one conditional write.
"""

from __future__ import annotations

import datetime as dt
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from importlib.metadata import version
from typing import Any

from blizzard_core.checkpoint.writer_identity import Writer, is_running
from blizzard_core.daemon import Loop, run
from blizzard_core.errors import FencedError, StateError, StorageError
from blizzard_core.redact import redacted
from blizzard_core.settings.document import Config
from blizzard_core.settings.needed_extras import check_extras, needed_extras
from blizzard_core.signals import INTERRUPTED, stop_on_signals
from blizzard_py.app.engine import spark_engine
from blizzard_py.app.request_effects import effects_of, fingerprint_of
from blizzard_py.app.wiring import owner_context, view_of
from blizzard_py.app.workers import live_owner, source_pipeline
from blizzard_py.edits import checkpoint_edit
from blizzard_py.edits.checkpoint_store import (
    CheckpointStore,
    EditRefused,
    Note,
    Stored,
    current_user,
)
from blizzard_py.engines.java import require_java
from blizzard_py.engines.lazy import LazyEngine
from blizzard_py.ingest.request_acceptance import decide_request, end_record
from blizzard_py.requests.document import BRINGING, Kind, Request
from blizzard_py.requests.mailbox import Mailbox
from blizzard_py.requests.progress import RequestResult, counts_text
from blizzard_py.selection.ingested_since_request import first_after
from blizzard_py.sources.cold_start import check_cold_start
from blizzard_py.sources.context import SourceContext
from blizzard_py.sources.stale import require_current, world_of
from blizzard_py.state.checkpoint_file import check_identity
from blizzard_py.state.source_state import SourceState, checkpoint_path

# A daemon reads requests at least every `blizzard_core.daemon.CALL_SECS`. A command waits for two
# such turns and a margin before it returns without an answer.
_PATIENCE_SECS = 150.0
_LOOK_SECS = 2.0


@dataclass(frozen=True, slots=True)
class Waits:
    """A command's waiting: ``sleep`` between polls, ``clock`` in epoch seconds, ``tell`` a line."""

    sleep: Callable[[float], None]
    clock: Callable[[], float]
    tell: Callable[[str], None]
    wait: bool = True
    take_over: bool = False


@dataclass(frozen=True, slots=True)
class RequestOrder:
    """The part of a request that its author decides, as `Request` has it.

    Without ``once_more`` one that has ended is followed, and not done again.
    """

    kind: Kind
    select: Mapping[str, Any]
    options: Mapping[str, Any] = field(default_factory=dict)
    why: str = ""
    once_more: bool = field(default=True, kw_only=True)


def submit_and_follow(
    config: Config, where: tuple[str, str], order: RequestOrder, waits: Waits
) -> RequestResult:
    """Submit a request, follow it, and return its end.

    If it is not accepted in time it stays, and its state is ``open``. Raises `EditRefused` where
    nothing was ingested yet, `StateError`, `StorageError`.
    """
    parts = owner_context(config, where)
    bring = partial(_bring_here, config, where) if order.kind in BRINGING else None
    return submit_request(parts, order, waits, bring)


def submit_request(
    parts: SourceContext, order: RequestOrder, waits: Waits, bring: Callable[[], int] | None
) -> RequestResult:
    """Submit a request for the source of these parts, follow it, and return its end.

    ``bring`` executes it as the source's owner; see `submit_and_follow`.
    """
    store = CheckpointStore(parts.stores.sink, parts.id)
    seen = _load(parts, store, order)
    mailbox = Mailbox(parts.stores.sink, parts.id)
    request = request_of_order(parts, order, seen.state, waits.clock())
    request_id, is_new = mailbox.submit(
        request, seen.state.work.requests, once_more=order.once_more
    )
    waits.tell(f"request {request_id} for {parts.name}{'' if is_new else ', made before'}")
    return _Following(parts, store, mailbox, request_id, order, waits, bring).result()


def request_of_order(
    parts: SourceContext, order: RequestOrder, state: SourceState, now: float
) -> Request:
    """Return a request of the current user for a source in a state."""
    return Request(
        kind=order.kind,
        select=order.select,
        options=order.options,
        config=fingerprint_of(parts),
        by=current_user(),
        at=dt.datetime.fromtimestamp(now, dt.UTC).isoformat(timespec="seconds"),
        why=redacted(order.why),
        release=version("blizzard-penguin"),
        since=first_after(state),
    )


def _load(parts: SourceContext, store: CheckpointStore, order: RequestOrder) -> Stored:
    """Return the checkpoint. Raises as `check_begin` does without one.

    Raises `StateError` for one of other files: those of these names its owner would take.
    """
    seen = store.load()
    if seen.raw is None:
        check_begin(parts, order)
    where = f"{parts.stores.sink.uri}/{checkpoint_path(parts.id)}"
    check_identity(seen.state, parts.identity, parts.source.id, where)
    return seen


def check_begin(parts: SourceContext, order: RequestOrder) -> None:
    """Raise `EditRefused` for a source without a checkpoint, unless the order begins one.

    Raises `ColdStartRefused` if its checkpoint is lost.
    """
    check_cold_start(parts)
    if order.options.get("begin_live_at_end"):
        return
    begin = "give --begin-live-at-end, with which it begins at --to, or "
    ways = begin if order.select.get("values") else ""
    raise EditRefused(f"{parts.name}: has no checkpoint; {ways}have it run once first")


@dataclass(frozen=True, slots=True)
class _Following:
    """A request that is followed; see `submit_request`."""

    parts: SourceContext
    store: CheckpointStore
    mailbox: Mailbox
    id: str
    order: RequestOrder
    waits: Waits
    bring: Callable[[], int] | None

    def result(self) -> RequestResult:
        """Wait for the end; what is known by then."""
        waits = self.waits
        began, outcome, takes_over = waits.clock(), RequestResult(self.id, ""), waits.take_over
        owner = ""
        while True:
            # Read the checkpoint first. A request that has no end afterwards was not done before.
            # If another process executes it meanwhile, the conditional write fails.
            seen = _load(self.parts, self.store, self.order)
            known = self._known(seen)
            if known.state not in {"open", "waiting", "running"}:
                return known
            if takes_over or seen.writer is None or is_running(seen.writer) is False:
                takes_over = False
                found = self._here(seen, known)
                if found is not None:
                    return found
                continue
            if not owner:
                owner = _owner(seen.writer)
                waits.tell(f"{owner} does it; following. Ctrl-C ends following, not the request.")
            if known.counts != outcome.counts:
                outcome, began = known, waits.clock()
                waits.tell(f"{self.id}: {counts_text(known.counts)}")
            is_late = known.state != "running" and waits.clock() - began > _PATIENCE_SECS
            if not waits.wait or is_late:
                return known
            waits.sleep(_LOOK_SECS)

    def _known(self, seen: Stored) -> RequestResult:
        """Return the state of the request from the mailbox, else from the checkpoint."""
        end = self.mailbox.end_record(self.id)
        if end is not None:
            return RequestResult(self.id, end.state, end.reason, end.counts)
        known = seen.state.work.requests.get(self.id)
        if known is None:
            return RequestResult(self.id, "open")
        return RequestResult(self.id, known.state, known.reason, known.counts)

    def _here(self, seen: Stored, known: RequestResult) -> RequestResult | None:
        """Execute the request without an owner; return its end, None to check again."""
        if self.bring is None:
            reason = _do_here(self.parts, seen, self.mailbox, self.id, self.waits.clock())
            if not reason or self.store.load().raw != seen.raw:
                return None
            return RequestResult(self.id, known.state, reason)  # there is nobody to wait for
        if not self.waits.wait:
            return known
        code = self.bring()
        if code == FencedError.exit_code:
            return None  # a daemon has it now
        after = self._known(_load(self.parts, self.store, self.order))
        if not code:
            return after
        why = "interrupted" if code == INTERRUPTED else "it ended with an error; see the log"
        return RequestResult(self.id, after.state, why, after.counts, code)


def _owner(writer: Writer) -> str:
    found = writer.process
    return "the daemon" if found is None else f"the daemon on {found.host} (pid {found.pid})"


def _do_here(
    parts: SourceContext, seen: Stored, mailbox: Mailbox, request_id: str, now: float
) -> str:
    """Do the request as the source's owner, or cancel it; why it could not be, empty if it was.

    A daemon that started meanwhile refuses the write, and has the request to do then.
    """
    found = view_of(parts)
    effects = effects_of(parts, found.source)
    after = seen.state
    try:
        require_current(seen.state, parts, world_of(parts, seen.state))
        is_cancelled = mailbox.is_cancelled(request_id)
        after = decide_request(
            mailbox, effects, seen.state, request_id, now, is_cancelled=is_cancelled
        )
        known = after.work.requests.get(request_id)
        if known is None:
            return "it was removed from the mailbox; give the command again"
        if after.work.requests == seen.state.work.requests:
            return known.reason  # it waits, as before
        request = mailbox.readable(request_id)
        reason = "" if request is None or not request.why else f", {request.why}"
        why = f"request {request_id}: {known.kind} {known.state}{reason}"
        # As it is: `change` would take a source that has done nothing yet for one that starts over.
        checkpoint_edit.put(found, seen, after, Note(current_user(), now, why))
    except (EditRefused, StateError) as error:
        return str(error)
    finally:
        found.close()
    end = end_record(known)
    if end is None:
        return known.reason
    with suppress(StorageError):  # the checkpoint says it, and the next daemon records it
        mailbox.end(request_id, end)
    return ""


def _bring_here(config: Config, where: tuple[str, str]) -> int:
    """Do what is requested of a source, as its owner, and nothing else; the exit code."""
    check_extras(needed_extras(config))
    require_java(config.spark.master)
    engine = LazyEngine(partial(spark_engine, config, "blizzard-requests"))
    worker = source_pipeline(live_owner(config, where, engine), requests_only=True)
    stop = threading.Event()
    grace_secs = config.global_.advanced.shutdown_grace
    with stop_on_signals(stop, grace_secs):
        try:
            code = run([worker], Loop(True, 0, grace_secs), stop)
            with suppress(StateError, StorageError):  # who comes next asks whether we run
                worker.release()
            return code
        finally:
            worker.end_jobs()
            engine.stop()
            worker.close()
