"""Generator of ``docs/reference/limits.md`` from the constants of `blizzard_core.limits`."""

from __future__ import annotations

import ast
import inspect
import re
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import groupby, pairwise

from blizzard_core import limits

_HEAD = """\
# Limits

Files, answers, configurations and connections are accepted up to these limits. Data beyond a limit
costs neither the process nor other sources. A limit that honest data may reach has a configuration
key; the number is its default.
"""

_MIB, _KIB = 1 << 20, 1 << 10
_SECTION = "# --- "
_TEXT = re.compile(
    r"(?P<of>.+)\. Beyond: (?P<beyond>.+?)\.(?: Key: (?P<key>\S+))? Test: (?P<test>\S+)"
)


@dataclass(frozen=True, slots=True)
class LimitLine:
    """One line of the page: ``of`` what, what happens ``beyond`` it, the test that shows it."""

    area: str
    name: str
    value: int
    of: str
    beyond: str
    test: str
    key: str


def named_limits() -> Iterator[LimitLine]:
    """Yield each constant with the text below it. Raises `ValueError` without a text."""
    source = inspect.getsource(limits)
    lines = source.splitlines()
    for constant, text in pairwise(ast.parse(source).body):
        if not isinstance(constant, ast.Assign):
            continue
        (name,) = (target.id for target in constant.targets if isinstance(target, ast.Name))
        above = [line for line in lines[: constant.lineno] if line.startswith(_SECTION)]
        below = isinstance(text, ast.Expr) and ast.literal_eval(text.value)
        found = _TEXT.fullmatch(" ".join(str(below).split()))
        if found is None:
            raise ValueError(f"no text below {name} says what it bounds, what is beyond, its test")
        yield LimitLine(
            above[-1].strip("# -"),
            name,
            getattr(limits, name),
            found["of"],
            found["beyond"],
            found["test"],
            found["key"] or "",
        )


def limits_reference() -> str:
    """Return the whole document."""
    parts = [_HEAD]
    for area, group in groupby(named_limits(), lambda bound: bound.area):
        parts.append(f"\n## {area}\n")
        parts.append("| limit | | beyond it |\n|---|---|---|")
        parts += map(_row, group)
    return "\n".join(parts) + "\n"


def _row(bound: LimitLine) -> str:
    key = f"; key `{bound.key}`" if bound.key else ""
    return f"| {bound.of} | {_amount(bound)} | {bound.beyond}{key} |"


def _amount(bound: LimitLine) -> str:
    if not bound.name.endswith("_BYTES"):
        return f"{bound.value:,}"
    if bound.value < _KIB:
        return f"{bound.value:,} bytes"
    if bound.value % _MIB == 0:
        return f"{bound.value // _MIB:,} MiB"
    return f"{bound.value // _KIB:,} KiB"
