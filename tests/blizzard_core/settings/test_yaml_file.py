"""A configuration that means harm: refused by name before anything is made of it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from pydantic import BaseModel

from blizzard_core.errors import ConfigError
from blizzard_core.settings import yaml_file
from blizzard_core.settings.document import Config
from blizzard_core.settings.load import load_config
from blizzard_core.settings.sources import SourceSettings
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
    with pytest.raises(ConfigError, match="is larger than 4 MiB"):
        load_yaml(Path("/dev/zero"), {})  # which says of itself that it is empty


@pytest.mark.parametrize(
    ("text", "kind"),
    [
        ("a: !!timestamp 2001-99-99", "timestamp"),
        ("a: !!timestamp x", "timestamp"),
        ("a: !!int x", "int"),
        ("a: !!float x", "float"),
        ("a: !!bool x", "bool"),
        ("a: !!float 1" + ":1" * 190 + ".5", "float"),
    ],
)
def test_invalid_yaml_scalars_are_reported_with_their_line(
    tmp_path: Path, text: str, kind: str
) -> None:
    told = problem(tmp_path, text)
    assert told.startswith("is not YAML: line ")
    assert told.endswith(f": there is no such {kind}; put quotes around a text")


@pytest.mark.parametrize("text", ["9" * 5000, "!!int 1" + ":1" * 50_000, "!!int 0x" + "F" * 50_000])
def test_a_number_of_many_digits_is_refused_before_it_is_counted(tmp_path: Path, text: str) -> None:
    told = "is not YAML: line 1, column 4: a number of more than 400 characters"
    assert problem(tmp_path, f"a: {text}") == told


@pytest.mark.parametrize(
    "text",
    [
        *("on", "off", "yes", "No", "NO", "y", "n"),
        *("2024-05-01", "2024-05-01T10:00:00Z", "2001-99-99", "12:30:00", "1:1.5"),
        *("010", "007", "0x1F", "0b1", "0o17", "1_000", "1e3", "+.inf.", "tRUE"),
    ],
)
def test_plain_text_stays_text_whatever_yaml_1_1_makes_of_it(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"a: [{text}]\n{text}: 1\n")
    assert load_yaml(path, {}).data == {"a": [text], text: 1}


@pytest.mark.parametrize(
    ("text", "value"),
    [
        *(("true", True), ("FALSE", False), ("0", 0), ("-17", -17), ("1.5", 1.5)),
        *((".5e-3", 0.0005), ("~", None), ("null", None), ("", None), ("1.", 1.0)),
    ],
)
def test_plain_values_are_what_yaml_1_2_says(tmp_path: Path, text: str, value: object) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"a: {text}\n")
    found = load_yaml(path, {}).data["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize("text", ["${A:-", "${A:-$", "${file:/", "${file:/a:-", "${", "$${"])
def test_variables_that_never_end_are_looked_at_once(tmp_path: Path, text: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"a: '{text * 20_000}'\n")
    load_yaml(path, {})  # minutes, where each of them looks for its end in all that follows


def test_defaults_may_hold_dollars(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: '${A:-$5 {x$} and ${B:-b}'\n")
    assert load_yaml(path, {}).data == {"a": "$5 {x$ and b"}


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("$BUCKET/raw", "$BUCKET is not filled in; write ${BUCKET}, or $$BUCKET for the text"),
        ("${SECRET-x}", "write ${SECRET}; a default follows :-, as in ${SECRET:-…}, or $${ for"),
        ("${A:=x}", "write ${A}; a default follows :-, as in ${A:-…}, or $${ for the text ${"),
        ("${A", "${ is not followed by a variable; write ${A}, or $${ for the text ${"),
        ("${1}", "${ is not followed by a variable; write ${VAR}, or $${ for the text ${"),
    ],
)
def test_variables_of_other_tools_are_refused(tmp_path: Path, text: str, problem: str) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(f"a: {{ b: '{text}' }}\n")
    [found] = load_yaml(path, {"BUCKET": "b", "SECRET": "s", "A": "a"}).problems
    assert found.startswith("a.b (line 1): ")
    assert problem in found


def test_dollars_without_a_variable_stay(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: ['$.price', 'x$', '$$5', '_$folder$', '$$HOME', '$user', '$1']\n")
    assert load_yaml(path, {"HOME": "/root", "user": "u"}).data == {
        "a": ["$.price", "x$", "$$5", "_$folder$", "$HOME", "$user", "$1"]
    }


def test_a_nul_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text('a: "/tmp/\\0x"\n"b\\0": 1\n')
    found = load_yaml(path, {})
    assert sorted(found.problems) == [
        "(top level) (line 1): has a NUL character",
        "a (line 1): has a NUL character",
    ]


def test_aliases_of_an_honest_file_work(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("a: &a {x: 1, y: [2, 3]}\nb: *a\nc: {<<: *a, y: 4}\n")
    assert load_yaml(path, {}).data == {
        "a": {"x": 1, "y": [2, 3]},
        "b": {"x": 1, "y": [2, 3]},
        "c": {"x": 1, "y": 4},
    }


def test_other_encodings_have_a_remedy(tmp_path: Path) -> None:
    path = tmp_path / "c.yaml"
    path.write_bytes("tables: {}".encode("utf-16"))
    with pytest.raises(ConfigError, match=r"is not UTF-8 text .*; save it as UTF-8"):
        load_yaml(path, {})


@pytest.mark.parametrize(
    "text", ['tables: {"a\\ud800": 1}', 'tables: {a: "\\udfff"}', "tables: {a: '${ODD}'}"]
)
def test_lone_surrogates_are_reported_as_a_problem(tmp_path: Path, text: str) -> None:
    path = tmp_path / "c.yaml"
    path.write_text(text)
    document = load_yaml(path, {"ODD": os.fsdecode(b"\xff")})
    [problem] = document.problems
    assert "(line 1): has half of a surrogate pair" in problem
    str(document.data).encode()


def test_a_key_is_a_word_also_where_yaml_takes_it_for_true(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text("on: [id]\noff: {no: on}\nkept: &kept true\nYes: *kept\n")
    found = load_yaml(path, {})
    assert found.data == {"on": ["id"], "off": {"no": "on"}, "kept": True, "Yes": True}
    assert found.locate(("off", "no")) == "off.no (line 2)"


def _words(annotation: Any, seen: set[Any]) -> Iterator[str]:
    """The words that a setting of this type may be, also inside of other blocks."""
    if get_origin(annotation) is Literal:
        yield from (value for value in get_args(annotation) if isinstance(value, str))
        return
    inner: tuple[Any, ...] = get_args(annotation)
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        if annotation in seen:
            return
        seen.add(annotation)
        inner = tuple(field.annotation for field in annotation.model_fields.values())
    for each in inner:
        yield from _words(each, seen)


def test_every_word_that_a_setting_may_be_needs_no_quotes(tmp_path: Path) -> None:
    words = sorted(set(_words(Config, set())))
    assert {"off", "none", "1ms"} <= set(words)
    path = tmp_path / "config.yaml"
    path.write_text("".join(f"- {word}\n" for word in words).replace("- ", "  - "))
    path.write_text("a:\n" + path.read_text())
    assert load_yaml(path, {}).data == {"a": words}


def test_a_truth_may_be_any_word_for_it(tmp_path: Path) -> None:
    path = tmp_path / "config.yaml"
    path.write_text(
        "pipelines: {p: {sources: {m: {source_uri: raw, use_watermark: no,"
        " advanced: {order_guard: off}}},"
        " sink: {table_uri: lake}, schema: {fields: [{name: id, type: int64, nullable: off}]}}}\n"
    )
    pipeline = load_config(path).pipelines["p"]
    source = pipeline.sources["m"]
    assert isinstance(source, SourceSettings)
    assert (source.advanced.order_guard, source.use_watermark) == ("off", False)
    assert not pipeline.schema_.fields[0].nullable
