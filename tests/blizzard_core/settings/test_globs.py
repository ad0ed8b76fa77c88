"""Patterns of paths: what they match, beside a matcher that tries everything, and what is wrong."""

from __future__ import annotations

import re
import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.settings.globs import Glob, parse_all, parse_globs, starts_of
from blizzard_core.watermark.selection import NameSelection

LETTERS = "ab.%é\n"
NAMES = st.text(LETTERS, min_size=1, max_size=3)
PATHS = st.lists(NAMES, min_size=1, max_size=4).map("/".join)
# Text, as the pattern has it, and the characters that it stands for.
FIXED = [(each, each) for each in "ab%é"]
TOKENS = st.sampled_from(
    [*FIXED, ("?", LETTERS), ("*", ""), ("[ab]", "ab"), ("[!a]", LETTERS.replace("a", ""))]
)
COMPONENTS = st.lists(TOKENS, min_size=1, max_size=3).filter(
    lambda tokens: "**" not in "".join(text for text, _ in tokens)
)
PATTERNS = st.lists(st.one_of(COMPONENTS, st.just([("**", "")])), min_size=1, max_size=4)


def is_name(tokens: list[tuple[str, str]], name: str) -> bool:
    if not tokens:
        return not name
    (text, stands_for), rest = tokens[0], tokens[1:]
    if text == "*":
        return any(is_name(rest, name[at:]) for at in range(len(name) + 1))
    return bool(name) and name[0] in stands_for and is_name(rest, name[1:])


def is_path(pattern: list[list[tuple[str, str]]], names: list[str]) -> bool:
    if not pattern:
        return not names
    first, rest = pattern[0], pattern[1:]
    if first == [("**", "")]:
        least = 0 if rest else 1
        return any(is_path(rest, names[at:]) for at in range(least, len(names) + 1))
    return bool(names) and is_name(first, names[0]) and is_path(rest, names[1:])


def is_matched(globs: tuple[Glob, ...], path: str) -> bool:
    return any(glob.matches(path) for glob in globs)


@given(pattern=PATTERNS, path=PATHS)
def test_pattern_matches_what_a_plain_search_finds(
    pattern: list[list[tuple[str, str]]], path: str
) -> None:
    globs = parse_globs("/".join("".join(text for text, _ in part) for part in pattern))
    assert is_matched(globs, path) == is_path(pattern, path.split("/"))
    assert not is_matched(globs, path) or path.startswith(globs[0].start)


@pytest.mark.parametrize(
    ("pattern", "yes", "no"),
    [
        ("region={eu,us}/**", ["region=eu/a", "region=us/b/c"], ["region=eu", "region=asia/a"]),
        ("m={08..11}/a", ["m=08/a", "m=11/a"], ["m=8/a", "m=12/a"]),
        ("{1..3}", ["1", "3"], ["01", "4"]),
        ("{a,b{c,d}}x", ["ax", "bcx", "bdx"], ["bx"]),
        ("{a/b,c}/*", ["a/b/1", "c/1"], ["a/1"]),
        ("a{,.gz}", ["a", "a.gz"], ["a."]),
        ("**/tmp/**", ["tmp/a", "x/tmp/a", "x/y/tmp/z/a"], ["tmp", "x/tmp", "tmpx/a"]),
        ("**/**/a", ["a", "x/a", "x/y/a"], ["b"]),
        ("**/a", ["/a", "x//a", "//x/a"], ["/b"]),
        ("x/**/t/**/a", ["x//t/a", "x/t//a"], ["x/a"]),
        ("[*][?][[]", ["*?["], ["abc"]),
        ("[]]{a,b}", ["]a"], ["]"]),
        ("[!a-c]x", ["dx"], ["ax", "/x"]),
        ("A*", ["Abc"], ["abc"]),
        (r"a\*", [r"a\b"], ["a*"]),
    ],
)
def test_forms_of_patterns(pattern: str, yes: list[str], no: list[str]) -> None:
    globs = parse_globs(pattern)
    assert [path for path in (*yes, *no) if is_matched(globs, path)] == yes


@pytest.mark.parametrize(
    ("pattern", "message"),
    [
        ("/a", "relative to source_uri"),
        ("s3://b/a", "relative to source_uri"),
        ("a//b", "empty component"),
        ("a/", "write folder/**"),
        ("", "empty component"),
        ("../a", "'..'"),
        ("a**", "stands alone"),
        ("[a", "without ]"),
        ("{a,b", "without }"),
        ("a}", "without {"),
        ("{a}", "no choice"),
        ("{3..1}", "must ascend"),
        ("{1..2000}", "at most 1,000"),
        ("{1..100}{1..100}", "more than 1,000"),
        ("[z-a]", "must ascend"),
        ("[a/]b", "brackets"),
        ("_tmp/**", "hidden"),
        ("a/.b", "hidden"),
        ("a\0", "no name has"),
    ],
)
def test_wrong_pattern_is_named_with_a_remedy(pattern: str, message: str) -> None:
    with pytest.raises(ValueError, match=re.escape(message)):
        parse_globs(pattern)
    with pytest.raises(ValueError, match="more than 1,000"):
        parse_all(["{1..600}", "a{1..600}"])


def test_pattern_that_nobody_can_read_is_refused() -> None:
    for pattern, message in (
        ("{a,b}" * 5000, "more than 100 braces"),
        ("{a," * 3000 + "b" + "}" * 3000, "more than 100 braces"),
        ("a" * 20_000, "more than 10,000 characters"),
        ("{1..999}" + "a" * 5000, "more than 1,000,000"),
    ):
        with pytest.raises(ValueError, match=message):
            parse_globs(pattern)


def test_long_names_cost_no_search() -> None:
    began = time.process_time()
    for pattern in ("*a*a*a*a*a*b", "**/a*/**/a*/**/a*/**/b", "**/*a*a*a*/**/*a*a*b"):
        for name in ("a" * 1000, "a/" * 500 + "a", ("a" * 30 + "/") * 30):
            assert not is_matched(parse_globs(pattern), name)
    assert time.process_time() - began < 5


SELECTIONS = st.tuples(*[st.lists(PATTERNS, max_size=2)] * 2)


@given(one=SELECTIONS, other=SELECTIONS, paths=st.lists(PATHS, max_size=9))
def test_disjoint_selections_share_no_name(
    one: tuple[list[Any], list[Any]], other: tuple[list[Any], list[Any]], paths: list[str]
) -> None:
    chosen = [
        [["/".join("".join(t for t, _ in part) for part in p) for p in side] for side in each]
        for each in (one, other)
    ]
    starts = [starts_of("r/", *each) for each in chosen]
    selections = [NameSelection(tuple(include), tuple(exclude)) for include, exclude in chosen]
    if starts[0].is_disjoint_from(starts[1]):
        assert not any(selections[0].takes(p) and selections[1].takes(p) for p in paths)
    assert starts[0].is_disjoint_from(starts[1]) == starts[1].is_disjoint_from(starts[0])


@pytest.mark.parametrize(
    ("one", "other", "is_disjoint"),
    [
        (["t=1/**"], ["t=2/**"], True),
        (["t=1/**"], ["t=17/**"], True),
        (["t=1*/**"], ["t=17/**"], False),
        (["t={1,3}/**"], ["t={2,4}/*.json"], True),
        (["t={1,2}/**"], ["t=2/**"], False),
        (["*/a.json"], ["*/b.json"], False),
        ([], ["t=2/**"], False),
    ],
)
def test_beginnings_prove_that_no_name_is_shared(
    one: list[str], other: list[str], is_disjoint: bool
) -> None:
    assert starts_of("r/", one, []).is_disjoint_from(starts_of("r/", other, [])) == is_disjoint
    assert starts_of("r/", [], ["t=2/**"]).is_disjoint_from(starts_of("r/t=2/", [], []))
    assert not starts_of("r/", [], ["t=2/*"]).is_disjoint_from(starts_of("r/t=2/", [], []))
