"""The check of names and docstrings finds what the glossary bans."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.repository.vocabulary import Words, check_file, find_doubles, read_words
from tests.support.scenario import ROOT

WORDS = Words(frozenset({"told", "kept"}), frozenset({"what"}))


@pytest.mark.parametrize(
    ("name", "source", "kind"),
    [
        ("kept_files", "", "module name"),
        ("files", "class KeptFiles: ...", "name"),
        ("files", "def what_was_told(): ...", "name"),
        ("files", '"""What this module does."""', "opening"),
        ("files", 'def read():\n    """What is read."""', "opening"),
        ("files", 'class File:\n    size: int\n    """What it weighs."""', "opening"),
        ("test_files", f"def test_{'a' * 60}(): ...", "test name"),
    ],
)
def test_a_problem_is_found(name: str, source: str, kind: str) -> None:
    found = list(check_file(Path(f"{name}.py"), source, WORDS))
    assert [problem.kind for problem in found] == [kind]


def test_a_plain_module_has_no_problem() -> None:
    source = '"""Names of files."""\n\ndef list_files():\n    """Return the files."""'
    assert not list(check_file(Path("files.py"), source, WORDS))


def test_a_class_name_used_twice_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    folder = Path("blizzard_core")
    folder.mkdir()
    paths = [folder / "a.py", folder / "b.py", folder / "c.py"]
    for path, name in zip(paths, ("Batch", "Batch", "_Batch"), strict=True):
        path.write_text(f"class {name}: ...")
    assert [problem.path for problem in find_doubles(paths)] == paths[:2]


def test_the_glossary_has_both_lists() -> None:
    words = read_words(ROOT / "docs/reference/glossary.md")
    assert {"told", "overtaken"} <= words.names
    assert {"what", "whether"} <= words.openings
