"""The documents that can be held against the code are."""

from __future__ import annotations

import ast
import re

import pytest

from blizzard_py.core.reference import configuration_reference
from tests.scenario import ROOT

TESTS = ROOT / "tests"


def test_the_configuration_reference_is_the_generated_one() -> None:
    example = (ROOT / "configs/example.yaml").read_text(encoding="utf-8")
    stored = (ROOT / "docs/configuration.md").read_text(encoding="utf-8")
    assert stored == configuration_reference(example), "run `make docs`"


def test_the_reference_has_every_key_its_type_default_and_remark() -> None:
    text = configuration_reference((ROOT / "configs/example.yaml").read_text(encoding="utf-8"))
    for line in (
        "## `pipelines.NAME.sources.NAME.checkpoint`",
        "| `poll_interval_secs` | number, > 0 | `60` |  |",
        '| `order_guard` | `warn` `fail` `off` | `"warn"` | names that do not sort in time |',
        "| `total_concurrency` | whole number, ≥ 1, ≤ 256 | `8` |",
        "| `grace_period_secs` | number, ≥ 0 or `auto` | `300` |",
        "| `table_uri` | text | **required** |",
    ):
        assert line in text


def named_tests() -> list[tuple[str, str]]:
    text = (ROOT / "docs/guarantees.md").read_text(encoding="utf-8")
    return re.findall(r"`(test_\w+\.py)::(\w+)`", text)


def test_every_test_that_a_guarantee_names_exists() -> None:
    defined: dict[str, set[str]] = {}
    for file, name in named_tests():
        if file not in defined:
            tree = ast.parse((TESTS / file).read_text(encoding="utf-8"))
            defined[file] = {n.name for n in tree.body if isinstance(n, ast.FunctionDef)}
        assert name in defined[file], f"{file}::{name}"
    assert len(named_tests()) > 40


def test_every_guarantee_names_a_test() -> None:
    # The guards are held by the simulator itself.
    promises, _, _ = (
        (ROOT / "docs/guarantees.md").read_text(encoding="utf-8").partition("## The guards")
    )
    rows = [
        line
        for line in promises.splitlines()
        if line.startswith("| ") and "promise | proved by" not in line
    ]
    assert rows
    assert [row for row in rows if "::test_" not in row] == []


@pytest.mark.parametrize(
    "document", ["README.md", *(f"docs/{p.name}" for p in (ROOT / "docs").glob("*.md"))]
)
def test_links_and_make_targets_exist(document: str) -> None:
    path = ROOT / document
    text = path.read_text(encoding="utf-8")
    for target in re.findall(r"\]\((?!https?://|#)([^)#]+)", text):
        assert (path.parent / target).exists(), target
    for target in re.findall(
        r"`((?:docs|configs|deploy|tests|blizzard_py|penguin_py)/[\w./-]+)`", text
    ):
        assert (ROOT / target).exists() or list(ROOT.glob(f"{target}*")), target
    makefile = (ROOT / "Makefile").read_text(encoding="utf-8")
    for target in re.findall(r"(?:^|`)make ([a-z][a-z-]+)", text, re.MULTILINE):
        assert f"\n{target}:" in makefile, target
