"""Faster stand-ins for what costs time and decides nothing about markers."""

from __future__ import annotations

import dataclasses
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from functools import lru_cache
from operator import attrgetter
from typing import Any, Self
from unittest import mock

import msgspec

from blizzard_core.checkpoint import document, fenced_writer
from blizzard_core.errors import NotFound
from blizzard_core.threads import ThreadPool
from blizzard_core.watermark.partition_time import span_of
from blizzard_py.ingest import completion_mirror, source_pipeline
from blizzard_py.sources import stale
from blizzard_py.sources.stale import World

# Documents that are kept decoded, of the last schedules.
_KEPT = 20_000
_PRODUCT = ("blizzard_core.", "blizzard_py.", "penguin_py.")


@lru_cache(None)
def _fields(kind: type) -> tuple[dict[str, int], Callable[[Any], tuple[Any, ...]]]:
    names = [each.name for each in dataclasses.fields(kind) if each.init and not each.kw_only]
    if len(names) < len(dataclasses.fields(kind)):
        raise TypeError(f"{kind} takes other arguments than its fields")
    places = {name: place for place, name in enumerate(names)}
    if len(names) == 1:
        return places, lambda found: (getattr(found, names[0]),)
    return places, attrgetter(*names)


def _replace(found: Any, /, **changes: Any) -> Any:
    """Return what `dataclasses.replace` returns, without its checks."""
    places, values = _fields(found.__class__)
    arguments = list(values(found))
    for name, value in changes.items():
        arguments[places[name]] = value
    return found.__class__(*arguments)


@lru_cache(_KEPT)
def _decoded(parse: Callable[[Any, str], Any], raw: bytes, where: str) -> Any:
    return parse(document.parsed(raw, where), where)


def _load(storage: Any, path: str, parse: Callable[[Any, str], Any]) -> Any:
    """Return what `document.load` returns; the same bytes are decoded once."""
    try:
        raw = storage.read(path)
    except NotFound:
        return None
    return _decoded(parse, raw, path)


class _Pool:
    """A pool of no threads: simulated requests come one after another."""

    def __init__(self, *_arguments: Any, **_options: Any) -> None: ...

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_error: object) -> None: ...

    def map(self, fn: Callable[..., Any], *items: Iterable[Any]) -> Iterator[Any]:
        return iter(list(map(fn, *items)))


def _look(_parts: Any, record: Any, _found: Any) -> World:
    return World(record, frozenset(), 0, 0, {})


def _waiting(_parts: Any, _world: Any) -> None:
    """Outputs have no footers. What they tell the journal tells, which is not lost as well."""


def _everywhere(real: Any, new: Any) -> Iterator[Any]:
    """Yield a patch for each module of the product that has imported something."""
    name = real.__name__
    for where, module in list(sys.modules.items()):
        if where.startswith(_PRODUCT) and module.__dict__.get(name) is real:
            yield mock.patch.object(module, name, new)


@contextmanager
def quick() -> Iterator[None]:
    """Play schedules fast."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(source_pipeline, "look", _look))
        stack.enter_context(mock.patch.object(stale, "waiting_of", _waiting))
        for module in (document, fenced_writer, completion_mirror):
            stack.enter_context(mock.patch.object(module, "encode", msgspec.json.encode))
        for real, new in (
            (dataclasses.replace, _replace),
            (dataclasses.asdict, msgspec.to_builtins),
            (document.load, _load),
            (span_of, lru_cache(_KEPT)(span_of)),
            (ThreadPool, _Pool),
        ):
            for patch in _everywhere(real, new):
                stack.enter_context(patch)
        yield
