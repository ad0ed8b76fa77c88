"""The shipped artefact matches its source, and its contract holds."""

from __future__ import annotations

import re
from pathlib import Path

from tests.blizzard_py.formats.ndjson.fast import build


def test_the_artefact_is_what_the_source_gives(tmp_path: Path) -> None:
    made = tmp_path / "scan.wasm"
    build.sandboxed(made)
    assert made.read_bytes() == build.ARTEFACT.read_bytes(), "run: make kernel"


def test_the_bytes_do_not_depend_on_where_they_are_made(tmp_path: Path) -> None:
    copy = tmp_path / "another.c"
    copy.write_bytes(build.SOURCE.read_bytes())
    build.sandboxed(tmp_path / "scan.wasm", copy)
    assert (tmp_path / "scan.wasm").read_bytes() == build.ARTEFACT.read_bytes()


def test_the_source_can_be_held_in_mind() -> None:
    text = build.SOURCE.read_text()
    assert len(text.splitlines()) <= 800
    assert text.startswith("/* ")
    assert "CONTRACT" in text
    assert re.findall(r"#include <(.*)>", text) == ["stdint.h"]
