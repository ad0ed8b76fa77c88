"""Check names and docstrings against docs/reference/glossary.md.

    python -m tests.repository.vocabulary [FOLDER] [--count]

The glossary lists the words that no name may contain and the words that no docstring may begin
with. With a folder only files below it are checked; ``--count`` prints totals.
"""

from __future__ import annotations

import argparse
import ast
import re
import sys
from collections import Counter, defaultdict
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

GLOSSARY = Path("docs/reference/glossary.md")
PRODUCT = ("blizzard_core", "blizzard_py", "penguin_py")
CODE = (*PRODUCT, "tests", "benchmarks", "demo")
TEST_NAME_AT_MOST = 60

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])")
_DEFINED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


@dataclass(frozen=True, slots=True)
class Problem:
    """One finding: its kind, its place and the text for a reader."""

    kind: str
    path: Path
    line: int
    text: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.kind}: {self.text}"


@dataclass(frozen=True, slots=True)
class Words:
    """The word lists of the glossary, all in lower case."""

    names: frozenset[str]
    openings: frozenset[str]


def read_words(glossary: Path = GLOSSARY) -> Words:
    """Return the lists that stand in code blocks called ``names`` and ``openings``."""
    text = glossary.read_text("utf-8")
    blocks = {
        found["label"]: frozenset(found["words"].split())
        for found in re.finditer(
            r"```(?P<label>names|openings)\n(?P<words>.*?)```", text, re.DOTALL
        )
    }
    return Words(blocks["names"], blocks["openings"])


def check_file(path: Path, source: str, words: Words) -> Iterator[Problem]:
    """Yield the problems of one module."""
    tree = ast.parse(source)
    for line, docstring in _docstrings(tree):
        first = re.match(r"[A-Za-z]+", docstring)
        if first and first[0].lower() in words.openings:
            yield Problem("opening", path, line, docstring.splitlines()[0])
    for word in _words_of(path.stem) & words.names:
        yield Problem("module name", path, 1, f"{word!r} in {path.stem}")
    for node in ast.walk(tree):
        if not isinstance(node, _DEFINED):
            continue
        is_test = node.name.startswith("test_")
        if is_test and len(node.name) > TEST_NAME_AT_MOST:
            yield Problem("test name", path, node.lineno, f"{len(node.name)} characters")
        for word in set() if is_test else _words_of(node.name) & words.names:
            yield Problem("name", path, node.lineno, f"{word!r} in {node.name}")


def _docstrings(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the docstrings of the module, its definitions and their attributes, by line."""
    for node in ast.walk(tree):
        if not isinstance(node, (*_DEFINED, ast.Module)):
            continue
        yield getattr(node, "lineno", 1), ast.get_docstring(node) or ""
        for before, text in pairwise(node.body):
            if isinstance(before, (ast.Assign, ast.AnnAssign)) and isinstance(text, ast.Expr):
                value = getattr(text.value, "value", None)
                if isinstance(value, str):
                    yield text.lineno, value


def _words_of(name: str) -> set[str]:
    return {word.lower() for word in _WORD.findall(name)}


def find_doubles(paths: list[Path]) -> Iterator[Problem]:
    """Yield every public class of the product whose name another module has as well."""
    places: dict[str, list[tuple[Path, int]]] = defaultdict(list)
    for path in paths:
        if path.parts[0] not in PRODUCT:
            continue
        for node in ast.parse(path.read_text("utf-8")).body:
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places[node.name].append((path, node.lineno))
    for name, found in sorted(places.items()):
        for path, line in found if len(found) > 1 else ():
            others = ", ".join(str(other) for other, _ in found if other != path)
            yield Problem("class name", path, line, f"{name} is also in {others}")


def find_problems() -> list[Problem]:
    """Return all problems of the repository."""
    words = read_words()
    paths = sorted(path for folder in CODE for path in Path(folder).rglob("*.py"))
    paths = [path for path in paths if "node_modules" not in path.parts]
    found = [p for path in paths for p in check_file(path, path.read_text("utf-8"), words)]
    return [*found, *find_doubles(paths)]


def main() -> int:
    """Print the problems; return 1 if there are any."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", nargs="?", default="", help="only below this folder")
    parser.add_argument("--count", action="store_true", help="print totals by kind and folder")
    options = parser.parse_args()
    found = [p for p in find_problems() if str(p.path).startswith(options.folder)]
    if options.count:
        totals = Counter((p.kind, "/".join(p.path.parts[:2])) for p in found)
        lines = [f"{count:6} {kind:12} {place}" for (kind, place), count in sorted(totals.items())]
    else:
        lines = [str(problem) for problem in found]
    sys.stdout.write("".join(f"{line}\n" for line in lines))
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
