"""The promises of docs/reference/guarantees.md and the tests that prove them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path

from tests.support.scenario import ROOT

PAGE = ROOT / "docs/reference/guarantees.md"


def promise_ids() -> list[str]:
    return re.findall(r"^\| (G-\d{3}) \| \S", PAGE.read_text(encoding="utf-8"), re.MULTILINE)


def marks_of(path: Path) -> Iterator[tuple[str, str]]:
    """Yield each id that a test of the module is marked with, and the test."""
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if not isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
            continue
        for decorator in node.decorator_list:
            if ast.unparse(decorator).startswith("pytest.mark.promise("):
                assert isinstance(decorator, ast.Call)
                for argument in decorator.args:
                    yield ast.literal_eval(argument), f"{path.name}::{node.name}"


@cache
def all_marks() -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for promise, test in marks_of(path):
            found.setdefault(promise, []).append(test)
    return found


def test_every_row_of_a_promise_has_an_id() -> None:
    rows = [line for line in PAGE.read_text(encoding="utf-8").splitlines() if line.startswith("| ")]
    assert [row for row in rows if not re.match(r"\| (id|G-\d{3}) \| ", row)] == []


def test_every_id_stands_once_and_in_order() -> None:
    ids = promise_ids()
    assert len(ids) > 200
    assert ids == sorted(set(ids))


def test_every_promise_has_a_test() -> None:
    assert [promise for promise in promise_ids() if promise not in all_marks()] == []


def test_every_mark_names_a_promise() -> None:
    ids = set(promise_ids())
    assert {promise: tests for promise, tests in all_marks().items() if promise not in ids} == {}


def test_every_marked_function_is_a_test() -> None:
    tests = [test for tests in all_marks().values() for test in tests]
    assert [test for test in tests if "::test_" not in test] == []
