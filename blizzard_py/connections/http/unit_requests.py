"""A work unit's request: what is configured, with its placeholders filled in. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from blizzard_py.connections.http.model import HttpSource, Request
from blizzard_py.connections.placeholders import Values, in_path, in_text


def filled(request: Request, values: Values) -> Request:
    """The unit's request. Raises `SourceError` for a value that cannot stand where it has to."""
    return replace(
        request,
        path=in_path(request.path, values),
        params=in_text(request.params, values),
        body=in_text(request.body, values),
    )


def with_request(source: HttpSource, request: Request) -> HttpSource:
    """The source, asked this."""
    return replace(source, request=request)


def packed(request: Request) -> dict[str, Any]:
    """What differs from unit to unit, as a task's spec has it."""
    return {"path": request.path, "params": dict(request.params), "body": request.body}


def unpacked(request: Request, spec: Mapping[str, Any]) -> Request:
    """The inverse of `packed`, given the request as configured."""
    return replace(request, path=spec["path"], params=spec["params"], body=spec["body"])
