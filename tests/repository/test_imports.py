"""Shared helpers of tests lie in tests/support."""

from __future__ import annotations

import ast

from tests.support.scenario import ROOT


def test_no_test_module_is_imported() -> None:
    found = [
        f"{path.name}:{node.lineno} {node.module}"
        for path in (ROOT / "tests").rglob("*.py")
        if "node_modules" not in path.parts
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ImportFrom) and ".test_" in (node.module or "")
    ]
    assert found == []
