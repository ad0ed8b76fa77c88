"""Structured logs: for people on a terminal, JSON lines everywhere else.

One event per fact, with pipeline, source and batch bound to it. Values under
names that look like secrets and credentials inside URIs are masked here, as
the last step before printing, so no caller can forget it.
"""

from __future__ import annotations

import io
import logging
import re
import sys
from typing import Any, TextIO

import structlog

_SECRET = re.compile(r"secret|token|password|account_key|access_key|sas|credential", re.IGNORECASE)
_USERINFO = re.compile(r"(?<=://)[^/@\s]+@")
MASK = "***"

LEVELS = ("debug", "info", "warning", "error")


def configure(level: str, stream: TextIO | None = None) -> None:
    """Set up logging for the process. Logs go to stderr; stdout belongs to results."""
    out: Any = _Stderr() if stream is None else stream
    number = getattr(logging, level.upper())
    renderer: Any
    if out.isatty():
        renderer = structlog.dev.ConsoleRenderer()
    else:
        renderer = structlog.processors.JSONRenderer(ensure_ascii=False, default=str)
    structlog.configure(
        processors=[
            structlog.contextvars.merge_contextvars,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            mask_secrets,
            renderer,
        ],
        wrapper_class=structlog.make_filtering_bound_logger(number),
        logger_factory=structlog.PrintLoggerFactory(out),
        cache_logger_on_first_use=False,
    )
    # Libraries log through the standard module; only their warnings matter here.
    logging.basicConfig(stream=out, level=logging.WARNING, format="%(name)s: %(message)s")


class _Stderr(io.TextIOBase):
    """Whatever ``sys.stderr`` is when a line is written: a live view puts itself in its place."""

    def write(self, text: str) -> int:
        return sys.stderr.write(text)

    def flush(self) -> None:
        sys.stderr.flush()

    def isatty(self) -> bool:
        return sys.stderr.isatty()


def get_logger(**bound: Any) -> structlog.typing.FilteringBoundLogger:
    """A logger with facts bound to it."""
    logger: structlog.typing.FilteringBoundLogger = structlog.get_logger(**bound)
    return logger


def mask_secrets(_logger: Any, _method: str, event: Any) -> Any:
    """Mask secret-looking keys and credentials inside URIs, in nested values too."""
    return {key: _masked(key, value) for key, value in event.items()}


def _masked(key: str, value: Any) -> Any:
    if _SECRET.search(key):
        return MASK
    if isinstance(value, str):
        return _USERINFO.sub(f"{MASK}@", value)
    if isinstance(value, dict):
        return {str(k): _masked(str(k), v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_masked("", v) for v in value]
    return value
