"""Imports of the code, compared with `pyproject.toml` and with the table of extras."""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Iterator
from itertools import pairwise
from typing import Any

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from blizzard_core.extras import DISTRIBUTION, EXTRAS
from tests.support.scenario import ROOT

TEXT = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
PROJECT: dict[str, Any] = tomllib.loads(TEXT)["project"]
OPTIONAL: dict[str, list[str]] = PROJECT["optional-dependencies"]
OURS = {"blizzard_core", "blizzard_py", "penguin_py"}
# One module a line, as the linter wants it. Much faster than the syntax trees.
IMPORT = re.compile(
    r"^ *(?:from ([a-z][\w.]*) import |import ([\w.]+)(?: as \w+)?(?:  #.*)?$)", re.MULTILINE
)
# Modules that are named otherwise than their packages.
NAMES = {
    "dateutil": "python-dateutil",
    "hcl2": "python-hcl2",
    "openlineage": "openlineage-python",
    "helm_python": "helm-python-sdk",
    "yaml": "pyyaml",
}

OPENTELEMETRY = {
    "exporter": "opentelemetry-exporter-otlp-proto-http",
    "proto": "opentelemetry-proto",
    "sdk": "opentelemetry-sdk",
    "trace": "opentelemetry-api",
}


def names(requirements: list[str]) -> set[str]:
    return {canonicalize_name(Requirement(each).name) for each in requirements}


def imported(*folders: str) -> Iterator[tuple[str, str]]:
    """Yield files and the modules of other packages that they import."""
    for folder in folders:
        for path in (ROOT / folder).rglob("*.py"):
            if "node_modules" in path.parts:
                continue
            for found in IMPORT.finditer(path.read_text(encoding="utf-8")):
                yield str(path.relative_to(ROOT)), found[1] or found[2]


def distribution_of(module: str) -> str | None:
    """Return the declared name of a module's package; None for the standard library and us."""
    top = module.partition(".")[0]
    if top in sys.stdlib_module_names | OURS | {"tests", "benchmarks", "demo", "_typeshed"}:
        return None
    if top == "opentelemetry":
        return OPENTELEMETRY[module.split(".")[1]]
    if top in {"azure", "google"}:
        _, second, *more = module.split(".")
        second = "auth" if second == "oauth2" else second  # a part of the same package
        return "-".join([top, second, *(more[:1] if second == "storage" else [])])
    return canonicalize_name(NAMES.get(top, top))


def test_every_imported_package_is_declared() -> None:
    declared = names(PROJECT["dependencies"])
    for extra in EXTRAS:
        declared |= names(OPTIONAL[extra])
    missing = {
        f"{path}: {module}"
        for path, module in imported(*OURS)
        if (found := distribution_of(module)) and found not in declared
    }
    assert missing == set()


def test_every_package_of_the_tests_is_declared() -> None:
    declared = names(PROJECT["dependencies"])
    for requirements in OPTIONAL.values():
        declared |= names(requirements)
    missing = {
        f"{path}: {module}"
        for path, module in imported("tests", "benchmarks", "demo")
        if (found := distribution_of(module)) and found not in declared
    }
    assert missing == set()


def test_table_of_extras_is_that_of_the_project() -> None:
    assert set(OPTIONAL) == {*EXTRAS, "all", "dev"}
    (everything,) = OPTIONAL["all"]
    assert Requirement(everything).name == PROJECT["name"] == DISTRIBUTION
    assert Requirement(everything).extras == set(EXTRAS)


def test_page_of_the_installation_has_a_row_for_each_extra() -> None:
    page = (ROOT / "docs/start/install.md").read_text(encoding="utf-8")
    assert {*re.findall(r"^\| `([a-z0-9]+)` \|", page, re.MULTILINE)} == {*EXTRAS, "all"}


@pytest.mark.parametrize("name", EXTRAS)
def test_modules_of_an_extra_come_with_its_packages(name: str) -> None:
    found = {distribution_of(module) for module in EXTRAS[name].modules}
    assert found == names(OPTIONAL[name])
    assert EXTRAS[name].missing() is None


def test_every_upper_limit_has_a_reason() -> None:
    lines = TEXT.splitlines()
    unexplained = [
        line
        for above, line in pairwise(lines)
        if re.match(r'\s*"[\w.\[\],-]+[^"]*(<|==)\d', line)
        and "#" not in line
        and not above.lstrip().startswith("#")
    ]
    assert unexplained == []
