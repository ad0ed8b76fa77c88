"""Words of a command line that may be pasted, and times."""

from __future__ import annotations

import itertools
import subprocess

import pytest

from blizzard_core.text import in_utc, iso, shell_word, utf8_name
from tests.support.hostile_texts import HOSTILE

ODD = [
    "a b",
    "it's",
    "$(touch /tmp/x)",
    "`id`",
    "a\nb; id",
    "\x1b[201~id\n",
    "\u202egpj.exe",
    "back\\slash\n'",
    "caf\udce9",
    "~root",
    "",
]


@pytest.mark.parametrize("text", [*ODD, *HOSTILE])
def test_a_shell_word_is_one_word_without_control_characters(text: str) -> None:
    word = shell_word(text)
    assert word.isprintable()
    if "\0" in text:
        return  # no argument can hold it
    script = f"printf '%s' {word}".encode()
    shown = subprocess.run(["bash"], input=script, capture_output=True, check=True).stdout
    try:
        given = text.encode("utf-8", "surrogateescape")
    except UnicodeEncodeError:  # half of a character, which is no byte of a name either
        given = text.encode("utf-8", "surrogatepass")
    assert shown == given


def test_times_are_written_as_in_the_log_to_the_second() -> None:
    assert iso(1_800_000_000.9) == "2027-01-15T08:00:00Z"
    assert in_utc(1_800_000_000.9) == "2027-01-15 08:00:00"


@pytest.mark.parametrize("moment", [1e300, -1e300, 10**400, float("nan"), float("inf")])
def test_impossible_times_print_as_no_calendar_time(moment: float) -> None:
    assert iso(moment) == in_utc(moment) == "a time that no calendar has"


@pytest.mark.promise("G-039")
def test_no_two_names_have_one_spelling() -> None:
    parts = ("\\", "udcff", "ud", "cff", "\udcff", "\udcfe", "é", "/")
    names = {
        "".join(chosen) for size in range(6) for chosen in itertools.product(parts, repeat=size)
    }
    assert len({utf8_name(name).encode() for name in names}) == len(names)


@pytest.mark.parametrize("name", ["", "a b.json", r"C:\users\\x", "ü", r"\udef", "\n", r"a\u00ff"])
def test_a_name_without_an_escape_stays_as_it_is(name: str) -> None:
    assert utf8_name(name) == name
