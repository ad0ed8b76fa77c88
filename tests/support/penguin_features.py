"""The table of features in docs/reference/penguin.md, from the tested contract.

python -m tests.support.penguin_features     # writes it
"""

from __future__ import annotations

from pathlib import Path

from blizzard_core.table.contract import (
    FEATURES,
    PARTITION_TYPES,
    READER_VERSIONS,
    WRITER_VERSIONS,
)

DOCS = Path(__file__).parents[2] / "docs/reference/penguin.md"
# The text above the table says it once.
WAITING = "; if it asks you to wait, run it again after 24 hours"
BEGIN, END = "<!-- features -->\n", "<!-- /features -->\n"


def table() -> str:
    """Every feature of the protocol that is known here, and what becomes of it.

    Refused features with the same remedy share a row.
    """
    taken = [f"`{name}`" for name, feature in FEATURES.items() if feature.takes]
    shared: dict[str, list[str]] = {}
    for name, feature in FEATURES.items():
        remedy = feature.remedy.removeprefix("run ").replace(WAITING, "")
        for spelling in (f"'{name}'", name):
            remedy = remedy.replace(f"FEATURE {spelling}", "FEATURE …")
        if not feature.takes:
            shared.setdefault(remedy, []).append(f"`{name}`")
    lines = [f"Taken: {', '.join(taken)}.\n\n"]
    lines.append("| refused feature | what to do |\n|---|---|\n")
    lines += [f"| {', '.join(names)} | {remedy} |\n" for remedy, names in shared.items()]
    lines.append("| any other | it is not known here |\n\n")
    versions = [", ".join(map(str, found)) for found in (READER_VERSIONS, WRITER_VERSIONS)]
    lines.append(f"Reader versions: {versions[0]}; writer versions: {versions[1]}. ")
    lines.append(f"Types of partition columns: {', '.join(f'`{t}`' for t in PARTITION_TYPES)}.\n")
    return "".join(lines)


def stored() -> str:
    """Return the list in the document."""
    text = DOCS.read_text(encoding="utf-8")
    return text.partition(BEGIN)[2].partition(END)[0]


if __name__ == "__main__":
    text = DOCS.read_text(encoding="utf-8")
    before, after = text.partition(BEGIN)[0], text.partition(END)[2]
    DOCS.write_text(f"{before}{BEGIN}{table()}{END}{after}", encoding="utf-8")
