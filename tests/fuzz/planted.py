"""Planted defects: proof that the fuzzing finds such ones."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from typing import Any

from blizzard_core.handover import groups
from blizzard_core.settings import yaml_file
from blizzard_py.dead_letters import reader
from blizzard_py.formats.ndjson import columns, parse
from blizzard_py.lines import framing
from penguin_py.intake import footers
from tests.fuzz.targets import lines


def _loses_a_line() -> None:
    """Lose a line that begins right behind a blank line at the end of a chunk."""
    honest = framing.framed

    def framed(blocks: Iterable[bytes], *bounds: int) -> Iterator[Any]:
        for piece in honest(blocks, *bounds):
            if isinstance(piece, framing.Piece) and piece.data.endswith(b"\n\n"):
                yield framing.Piece(piece.data[:-1], piece.offset)
            else:
                yield piece

    lines.framed = framed  # type: ignore[attr-defined]  # where the target has it from


def _counts_no_rows() -> None:
    """Rows and lines are taken for the same."""

    def parsed(self: parse.LineParser, chunk: bytes) -> parse.Parsed:
        rows_at, lines = parse.record_lines(chunk)
        table = columns.read_json(chunk, self._schema.read)
        return parse.Parsed(self._schema.finish(table, chunk), lines, rows_at)

    parse.LineParser._parse = parsed  # type: ignore[method-assign]  # the defect


def _leaves_the_check() -> None:
    """Footers go to the library as they are."""
    footers.FooterCheck.__call__ = lambda *_: None  # type: ignore[method-assign]  # the defect


def _leads_out() -> None:
    """Let a manifest name any file."""
    groups._is_unit_file = lambda path: "unit-" in path


def _leaks_secrets() -> None:
    """Messages are as the checks made them."""
    yaml_file.Document.as_written = lambda _, text: text  # type: ignore[method-assign]  # as above


def _goes_too_deep() -> None:
    """Letters are read as the standard library reads JSON."""
    reader.json_value = json.loads  # type: ignore[attr-defined]  # as above


# With the target that has to find it.
PLANTED: dict[str, tuple[str, Callable[[], None]]] = {
    "loses a line": ("framing", _loses_a_line),
    "counts no rows": ("records", _counts_no_rows),
    "leaves the check": ("footers", _leaves_the_check),
    "leads out": ("manifests", _leads_out),
    "tells secrets": ("configuration", _leaks_secrets),
    "goes too deep": ("letters", _goes_too_deep),
}
