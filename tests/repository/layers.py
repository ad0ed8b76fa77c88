"""The layer diagram of docs/design/architecture.md, from the import contracts.

    python -m tests.repository.layers [--check]

A contract of type ``layers`` in pyproject.toml lists layers from top to bottom; modules of one
layer are separated by ``|`` (independent of one another) or ``:`` (free to import one another).
The diagram shows the two daemons side by side on the core, then each inner contract. With
``--check`` a stale page is an error and nothing is written.
"""

from __future__ import annotations

import re
import sys
import tomllib
from collections.abc import Sequence
from itertools import zip_longest
from pathlib import Path

PAGE = Path("docs/design/architecture.md")
DAEMONS = ("blizzard_py", "penguin_py")
CORE = "blizzard_core"
BEGIN, END = "<!-- layers: begin -->", "<!-- layers: end -->"


def read_contracts(pyproject: Path = Path("pyproject.toml")) -> dict[str, list[str]]:
    """Return the layers of each package that has a contract, from top to bottom."""
    tool = tomllib.loads(pyproject.read_text("utf-8"))["tool"]["importlinter"]
    return {
        package: [_clean(layer) for layer in contract["layers"]]
        for contract in tool["contracts"]
        if contract["type"] == "layers"
        for package in contract["containers"]
    }


def _clean(layer: str) -> str:
    # An optional layer stands in parentheses, which say nothing to a reader.
    return re.sub(r"[()]", "", layer)


def draw_stack(package: str, layers: Sequence[str], width: int = 0) -> list[str]:
    """Return the lines of one package: a box with its name and a line for each layer."""
    width = max(width - 4, len(package) + 2, *map(len, layers))
    top = f"┌─ {package} ".ljust(width + 3, "─") + "┐"
    return [top, *(f"│ {layer:<{width}} │" for layer in layers), f"└{'─' * (width + 2)}┘"]


def draw_diagram(contracts: dict[str, list[str]]) -> str:
    """Return the text of the diagram: the daemons on the core, then the inner contracts."""
    left, right = (draw_stack(name, contracts[name]) for name in DAEMONS)
    width = max(len(left[0]) + 2 + len(right[0]), len(draw_stack(CORE, contracts[CORE])[0]))
    right = draw_stack(DAEMONS[1], contracts[DAEMONS[1]], width - len(left[0]) - 2)
    # Both daemons stand on the core, so the shorter one begins lower.
    pairs = zip_longest(reversed(left), reversed(right), fillvalue="")
    house = [f"{a:<{len(left[0])}}  {b}".rstrip() for a, b in reversed(list(pairs))]
    blocks = [house, draw_stack(CORE, contracts[CORE], width)]
    blocks += [
        draw_stack(name, layers)
        for name, layers in contracts.items()
        if name not in {*DAEMONS, CORE}
    ]
    return "\n".join("\n".join(block) for block in blocks)


def insert_diagram(page: str, diagram: str) -> str:
    """Return the page with the diagram between its two marks."""
    before, _, rest = page.partition(BEGIN)
    _, _, after = rest.partition(END)
    if not after:
        raise ValueError(f"{PAGE}: the marks {BEGIN} and {END} are missing")
    return f"{before}{BEGIN}\n\n```text\n{diagram}\n```\n\n{END}{after}"


def main(arguments: Sequence[str]) -> str | None:
    """Write the page, or with ``--check`` return an error if it is stale."""
    page = PAGE.read_text("utf-8")
    drawn = insert_diagram(page, draw_diagram(read_contracts()))
    if "--check" in arguments:
        stale = f"{PAGE}: the import contracts have changed; run `make docs`"
        return stale if drawn != page else None
    PAGE.write_text(drawn, "utf-8")
    return None


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
