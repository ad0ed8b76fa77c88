"""A configuration that means harm: refused by name before anything is made of it."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from blizzard_core.errors import ConfigError
from blizzard_core.settings import yaml_file
from blizzard_core.settings.yaml_file import load_yaml


def problem(tmp_path: Path, text: str) -> str:
    path = tmp_path / "config.yaml"
    path.write_text(text)
    with pytest.raises(ConfigError) as caught:
        load_yaml(path, {})
    [told] = caught.value.problems
    return told


def laughs(levels: int) -> str:
    """A list of ten, ten times of that, and so on."""
    first = "a0: &a0 [x,x,x,x,x,x,x,x,x,x]\n"
    return first + "".join(
        f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]\n" for i in range(1, levels)
    )


@pytest.mark.parametrize("levels", [6, 9, 300])
def test_aliases_that_grow_are_refused(tmp_path: Path, levels: int) -> None:
    told = "has more than 250,000 values, aliases counted; split it"
    assert problem(tmp_path, laughs(levels)) == told


@pytest.mark.parametrize(
    ("text", "line"), [("a: &a [*a]\n", 1), ("b: 1\na: &a {b: {c: *a}}\n", 2), ("&a [*a]", 1)]
)
def test_an_alias_to_what_holds_it_is_refused_with_its_line(
    tmp_path: Path, text: str, line: int
) -> None:
    assert problem(tmp_path, text) == f"line {line}: holds itself by an alias; write it out"


@pytest.mark.parametrize("text", ["[" * 5000, "a: " + "[" * 900 + "]" * 900, "{a: " * 3000])
def test_deep_nesting_is_refused(tmp_path: Path, text: str) -> None:
    assert problem(tmp_path, text) == "is nested too deeply to be a configuration"


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    assert problem(tmp_path, "#" * (yaml_file.CONFIG_BYTES + 1)) == "is larger than 4 MiB; split it"


def test_aliases_of_an_honest_file_work(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, y: 4}\n")
    assert load_yaml(path, {}).data == {
        "a": {"x": 1, "y": [2, 3]},
        "b": {"x": 1, "y": [2, 3]},
        "c": {"x": 1, "y": 4},
    }


@pytest.mark.parametrize(
    "text", ['tables: {"a\\ud800": 1}', 'tables: {a: "\\udfff"}', "tables: {a: '${ODD}'}"]
)
def test_what_no_name_can_hold_is_a_problem(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    document = load_yaml(path, {"ODD": os.fsdecode(b"\xff")})
    [problem] = document.problems
    assert "(line 1): has half of a surrogate pair" in problem
    str(document.data).encode()
