"""References in the documentation: links, anchors, paths, modules and commands."""

from __future__ import annotations

import ast
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import click
import pytest
import yaml

from blizzard_py.__main__ import main as blizzard
from penguin_py.__main__ import main as penguin
from tests.repository import cli_reference, layers
from tests.support.scenario import ROOT

DOCS = ROOT / "docs"
PAGES = [
    ROOT / "CONTRIBUTING.md",
    ROOT / "README.md",
    ROOT / "SECURITY.md",
    *sorted(DOCS.rglob("*.md")),
]
TOP = "blizzard_core|blizzard_py|penguin_py|benchmarks|configs|demo|deploy|docs|tests"
PROGRAMS = {"blizzard": blizzard, "penguin": penguin}
SESSIONS = {"blizzard plans", "blizzard reads"}  # so PostgreSQL lists them
# Keyed tables, discovery, and selection and cleaning of files brought their own to 60,000.
WORDS_AT_MOST = 66_280  # bars of tables and other signs are no words
DESIGN_WORDS_AT_MOST = 12_800
ARCHITECTURE_LINES_AT_MOST = 250

each_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))


@cache
def read(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def without_blocks(text: str) -> str:
    return re.sub(r"^( *)```.*?^\1```", "", text, flags=re.DOTALL | re.MULTILINE)


def code_of(text: str) -> Iterator[str]:
    """Yield each inline code span, and each line of the code blocks."""
    joined = text.replace("\\\n", " ")
    for block in re.findall(r"^ *```\w*\n(.*?)^ *```", joined, re.DOTALL | re.MULTILINE):
        yield from (line.strip() for line in block.splitlines())
    yield from (" ".join(span.split()) for span in re.findall(r"`([^`]+)`", without_blocks(joined)))
    yield from (line.strip() for line in joined.splitlines() if line.startswith("    "))


# --- links ------------------------------------------------------------------------------------


@cache
def anchors_of(page: Path) -> frozenset[str]:
    """Return the anchors that GitHub, and the site, make of the headings."""
    found: list[str] = []
    for heading in re.findall(r"^#+ +(.+?) *#*$", without_blocks(read(page)), re.MULTILINE):
        text = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading).replace("`", "")
        anchor = re.sub(r"[^\w\- ]", "", text.lower()).replace(" ", "-")
        found.append(f"{anchor}-{found.count(anchor)}" if anchor in found else anchor)
    return frozenset(found)


# Only the links of the changelog: it names commands and modules that are gone.
@pytest.mark.parametrize(
    "page", [*PAGES, ROOT / "CHANGELOG.md"], ids=lambda page: str(page.relative_to(ROOT))
)
def test_links_and_anchors_exist(page: Path) -> None:
    text = without_blocks(read(page))
    links = re.findall(r"\]\((?!https?://|mailto:)([^)\s]+)\)", text)
    links += re.findall(r"^\[[^\]]+\]: +(?!https?://)(\S+)", text, re.MULTILINE)
    for link in links:
        path, _, anchor = link.partition("#")
        target = (page.parent / path).resolve() if path else page
        assert target.is_file() or (target.is_dir() and not page.is_relative_to(DOCS)), link
        if page.is_relative_to(DOCS):
            assert target.is_relative_to(DOCS), f"{link}: the site lacks it; write `path` instead"
        if anchor:
            assert anchor in anchors_of(target), link


def test_every_anchor_of_an_alert_exists() -> None:
    text = (ROOT / "deploy/monitoring/alerts.yaml").read_text("utf-8")
    links = re.findall(r"(docs/[\w/-]+\.md)#([\w-]+)", text)
    assert len(links) > 20
    for path, anchor in links:
        assert anchor in anchors_of(ROOT / path), f"{path}#{anchor}"


# --- paths and modules ------------------------------------------------------------------------


@cache
def names_in(module: Path) -> frozenset[str]:
    """Return the top-level names of a module."""
    tree = ast.parse(module.read_text("utf-8"))
    names = {
        alias.asname or alias.name
        for n in ast.walk(tree)
        if isinstance(n, ast.ImportFrom)
        for alias in n.names
    }
    for node in tree.body:
        if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.Assign):
            names |= {target.id for target in node.targets if isinstance(target, ast.Name)}
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    return frozenset(names)


def module_exists(dotted: str) -> bool:
    """Say whether it is a module, or a name in one."""
    path = ROOT.joinpath(*dotted.split("."))
    if path.is_dir() or path.with_suffix(".py").is_file():
        return True
    parent, name = path.parent, path.name
    module = parent / "__init__.py" if parent.is_dir() else parent.with_suffix(".py")
    return module.is_file() and name in names_in(module)


@each_page
def test_repository_paths_exist(page: Path) -> None:
    text = read(page)
    for path in re.findall(rf"(?<![\w/.~-])((?:{TOP})/[\w.*/-]*[\w*/])", text):
        if path.startswith("tests/") and "." not in path and "/" not in path[6:]:
            continue  # two words with a slash between them
        assert (ROOT / path).exists() or ("*" in path and list(ROOT.glob(path))), path


@each_page
def test_modules_exist(page: Path) -> None:
    for code in code_of(read(page)):
        for dotted in re.findall(r"(?:^|python -m )((?:\w+_py|blizzard_core)(?:\.\w+)+)", code):
            assert module_exists(dotted), dotted
        for dotted in re.findall(r"python -m ((?:benchmarks|demo|tests)(?:\.\w+)*)", code):
            assert module_exists(dotted), dotted


# --- commands ---------------------------------------------------------------------------------


@each_page
def test_make_targets_exist(page: Path) -> None:
    makefile = read(ROOT / "Makefile")
    for code in code_of(read(page)):
        for target in re.findall(r"^make ([a-z][a-z-]+)", code):
            assert f"\n{target}:" in makefile, target


def commands_of(page: Path) -> Iterator[str]:
    for code in code_of(read(page)):
        for part in re.split(r"&&|\||;|\s#\s", re.sub(r"(?<=\w)\|(?=[\w-])", "/", code)):
            found = re.match(r"^(?:\$ )?(?:\w+=\S+ )*((?:blizzard|penguin) .+)", part.strip())
            if found and found[1] not in SESSIONS:
                yield found[1]


def find_error(line: str) -> str:
    """Return the unknown subcommand or flag of a command line; empty if all are known."""
    words = re.sub(r"[\[\]'\"]", " ", line).split()
    command: click.Command = PROGRAMS[words[0]]
    flags = {"--help"}
    for word in words[1:]:
        flags |= {o for p in command.params for o in (*p.opts, *p.secondary_opts)}
        # What stands between slashes are alternatives.
        given = word.partition("=")[0].split("/")
        if word.startswith("--"):
            known = flags
        elif isinstance(command, click.Group) and re.fullmatch("[a-z/]+", word):
            known = set(command.commands)
            command = command.commands.get(given[0], command)
        else:
            continue
        if not known.issuperset(given):
            return word
    return ""


@each_page
def test_commands_and_their_flags_exist(page: Path) -> None:
    errors = {line: error for line in commands_of(page) if (error := find_error(line))}
    assert errors == {}


@pytest.mark.parametrize(
    ("line", "error"),
    [
        ("blizzard run config.yaml --once", ""),
        ("blizzard requests list/show/cancel CONFIG", ""),
        ("blizzard checkpoint set CONFIG --pipeline P", ""),
        ("blizzard walk config.yaml", "walk"),
        ("penguin run config.yaml --twice", "--twice"),
        ("blizzard requests list/hide CONFIG", "list/hide"),
    ],
)
def test_an_unknown_command_or_flag_is_found(line: str, error: str) -> None:
    assert find_error(line) == error


# --- the site and the design pages ------------------------------------------------------------


def pages_in(nav: object) -> Iterator[str]:
    if isinstance(nav, str):
        yield nav
    elif isinstance(nav, (list, dict)):
        for part in nav.values() if isinstance(nav, dict) else nav:
            yield from pages_in(part)


def test_every_page_is_in_the_navigation_once() -> None:
    # The extensions have tags of Python's, which the safe loader refuses.
    text = re.sub(r"!!python\S+", "", read(ROOT / "mkdocs.yml"))
    listed = list(pages_in(yaml.safe_load(text)["nav"]))
    assert sorted(listed) == sorted(str(page.relative_to(DOCS)) for page in DOCS.rglob("*.md"))


def test_the_site_is_built_without_a_warning(tmp_path: Path) -> None:
    site = tmp_path / "site"
    done = subprocess.run(
        [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(site)],
        cwd=ROOT,
        env={**os.environ, "NO_MKDOCS_2_WARNING": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    index = (site / "search/search_index.json").read_text("utf-8")
    assert "exactly-once" in index
    for page in site.rglob("*.html"):
        fetched = re.findall(r'<(?:script|img|link)\b[^>]*(?:src|href)="(https?:[^"]+)', read(page))
        assert fetched == [], page
        prose = re.sub(r"<pre.*?</pre>|<code.*?</code>", "", read(page), flags=re.DOTALL)
        # Lists need four spaces where GitHub takes two.
        assert re.findall(r"```|<(?:p|li)>[^<]*\n *(?:[-*]|\d+\.) ", prose) == [], page


def test_the_layer_diagram_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert layers.main(["--check"]) is None


def test_the_page_of_commands_is_up_to_date(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)
    assert cli_reference.main(["--check"]) is None


def test_a_stale_layer_diagram_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / layers.PAGE).parent.mkdir(parents=True)
    (tmp_path / layers.PAGE).write_text(f"# A\n{layers.BEGIN}\n{layers.END}\nend\n", "utf-8")
    (tmp_path / "pyproject.toml").write_bytes((ROOT / "pyproject.toml").read_bytes())
    monkeypatch.chdir(tmp_path)
    assert (
        layers.main(["--check"])
        == f"{layers.PAGE}: the import contracts have changed; run `make docs`"
    )
    assert layers.main([]) is None
    assert layers.main(["--check"]) is None
    assert "blizzard_core ─" in layers.PAGE.read_text("utf-8")


def words_below(folder: Path) -> int:
    words = (word for page in folder.rglob("*.md") for word in read(page).split())
    return sum(any(sign.isalnum() for sign in word) for word in words)


def test_all_pages_together_stay_short() -> None:
    assert words_below(DOCS) <= WORDS_AT_MOST


def test_design_pages_stay_short() -> None:
    assert words_below(DOCS / "design") <= DESIGN_WORDS_AT_MOST
    lines = read(DOCS / "design/architecture.md").splitlines()
    assert len(lines) <= ARCHITECTURE_LINES_AT_MOST


@pytest.mark.parametrize("name", ["architecture.md", "protocol.md"])
def test_design_pages_name_modules_by_full_path(name: str) -> None:
    for code in re.findall(r"`([^`\n]+)`", without_blocks(read(DOCS / "design" / name))):
        if re.fullmatch(r"[a-z][a-z_]*(/[a-z_]+)+(\.py)?/?|[a-z_]+\.py", code):
            assert (ROOT / code).exists(), code
