"""Drawing of the pictures in docs/reference/event-time.md, from the oracle of real streams.

    python -m tests.support.event_time_picture docs

Each picture has a column for each batch. A dot is a row, as high as its event time; the line is
the watermark that a batch's rows met, and that the next ones will.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from tests.support.event_time_harness import TUMBLING
from tests.support.event_time_oracle import BASE, Oracle, row

# Newest rows, rows behind them, and one that is late: the table of the page's first part.
WINDOWS: Sequence[Mapping[str, Sequence[float]]] = (
    {"web": (107, 101)},
    {"web": (118,)},
    {"web": (102, 119)},
    {"web": (140,)},
)
# The table of its part about several sources, and what one of them has for closed windows.
SEVERAL: Sequence[Mapping[str, Sequence[float]]] = (
    {"web": (107,), "app": (101,)},
    {"web": (131,), "app": (112,)},
    {"web": (150,), "app": ()},
    {"web": (), "app": (122, 140)},
)

_STYLE = 'font-family="system-ui, sans-serif" font-size="13" role="img"'
_INK, _SOFT, _LINE, _LATE = "#12263f", "#39506b", "#1f6feb", "#c62828"
_SOURCES = {"web": "#39506b", "app": "#b26a00"}
_LEFT, _TOP, _BOTTOM, _WIDTH, _COLUMN = 64, 56, 46, 150, 12


@dataclass(frozen=True)
class Seen:
    """The picture's data: batches of a stream, the windows that came out, and the late rows.

    ``watermarks`` (ms) are those that each batch's rows met, and that they left.
    """

    title: str
    batches: Sequence[Mapping[str, Sequence[float]]]
    watermarks: Sequence[tuple[int, int]]
    windows: Sequence[tuple[float, float, int]]
    late: frozenset[tuple[str, float]]


def played(
    title: str,
    batches: Sequence[Mapping[str, Sequence[float]]],
    settings: Mapping[str, Any] | None = None,
) -> Seen:
    """Let batches come one by one, and look at what becomes of them."""
    oracle = Oracle(TUMBLING | dict(settings or {}), {name: {} for name in batches[0]})
    watermarks: list[tuple[int, int]] = []
    late: set[tuple[str, float]] = set()
    for batch in batches:
        before = oracle.judged_ms
        files = {name: [row(second) for second in some] for name, some in batch.items()}
        oracle.add_batch(files, whose={name: name for name in batch})
        watermarks.append((before, oracle.watermark_ms))
        late |= {(name, batch[name][line - 1]) for name, line in oracle.late}
        oracle.late.clear()
    windows = {(start, end, batch) for start, end, _, _, _, batch in oracle.emitted}
    return Seen(title, batches, watermarks, sorted(windows), frozenset(late))


def drawn(panels: Sequence[Seen], low: float, high: float, told: str) -> str:
    """Return an SVG with a panel for each stream, side by side."""
    height = 430
    width = sum(_LEFT + _WIDTH * len(panel.batches) + 2 * _COLUMN for panel in panels)
    box = f'viewBox="0 0 {width} {height}"'
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" {box} {_STYLE} aria-label={quoteattr(told)}>',
        f'  <rect width="{width}" height="{height}" rx="12" fill="#f6f8fb"/>',
    ]
    left = 0
    for panel in panels:
        parts += _panel(panel, left, height, (low, high))
        left += _LEFT + _WIDTH * len(panel.batches) + 2 * _COLUMN
    return "\n".join([*parts, "</svg>", ""])


def _panel(seen: Seen, left: int, height: int, span: tuple[float, float]) -> Iterator[str]:
    low, high = span
    scale = (height - _TOP - _BOTTOM) / (high - low)
    begin, end = left + _LEFT, left + _LEFT + _WIDTH * len(seen.batches)

    def y(second: float) -> float:
        return round(height - _BOTTOM - (second - low) * scale, 1)

    yield f'  <text x="{begin}" y="26" font-weight="600" fill="{_INK}">{escape(seen.title)}</text>'
    for second in range(int(low), int(high) + 1, 10):
        yield (
            f'  <line x1="{begin}" x2="{end}" y1="{y(second)}" y2="{y(second)}" stroke="#dde4ee"/>'
            f'<text x="{begin - 8}" y="{y(second) + 4}" text-anchor="end" fill="{_SOFT}">'
            f"{second} s</text>"
        )
    for start, stop, batch in seen.windows:
        edge = begin + _WIDTH * batch - 4
        yield (
            f'  <rect x="{begin}" y="{y(stop)}" width="{edge - begin}"'
            f' height="{round(y(start) - y(stop), 1)}" rx="3" fill="#1f6feb" fill-opacity="0.10"/>'
            f'<text x="{edge - 4}" y="{round((y(start) + y(stop)) / 2 + 4, 1)}" text-anchor="end"'
            f' font-size="11" fill="{_LINE}">out</text>'
        )
    yield from _rows(seen, begin, y)
    yield from _watermark(seen, begin, y, low)
    for number in range(1, len(seen.batches) + 1):
        x = begin + _WIDTH * (number - 1) + _WIDTH // 2
        yield (
            f'  <text x="{x}" y="{height - 18}" text-anchor="middle" fill="{_SOFT}">'
            f"batch {number}</text>"
        )


def _rows(seen: Seen, begin: int, y: Any) -> Iterator[str]:
    for number, batch in enumerate(seen.batches):
        for place, (name, some) in enumerate(sorted(batch.items())):
            for second in some:
                x = begin + _WIDTH * number + _WIDTH // 3 + 24 * place
                is_late = (name, second) in seen.late
                color = _LATE if is_late else _SOURCES[name]
                word = f"{second:g}" + (f" {name}" if len(batch) > 1 else "") + " late" * is_late
                yield (
                    f'  <circle cx="{x}" cy="{y(second)}" r="4.5" fill="{color}"/>'
                    f'<text x="{x + 9}" y="{y(second) + 4}" fill="{color}">{word}</text>'
                )


def _watermark(seen: Seen, begin: int, y: Any, low: float) -> Iterator[str]:
    """Draw the watermark as a batch's rows met it, and at the end as the next ones will."""
    points: list[str] = []
    for number, both in enumerate(seen.watermarks):
        for at, ms in enumerate(both):
            second = ms / 1000 - BASE.timestamp() if ms else low
            x = begin + _WIDTH * number + (0 if at == 0 else _WIDTH - 4)
            points.append(f"{x},{y(max(second, low))}")
            if at == 0:
                points.append(f"{x + _WIDTH - 4},{y(max(second, low))}")
    yield (
        f'  <polyline points="{" ".join(points)}" fill="none" stroke="{_LINE}" stroke-width="2.5"/>'
    )
    last = seen.watermarks[-1][1] / 1000 - BASE.timestamp()
    x = begin + _WIDTH * len(seen.watermarks) - 8
    yield (
        f'  <text x="{x}" y="{y(last) - 7}" text-anchor="end" font-weight="600" fill="{_LINE}">'
        "watermark</text>"
    )


def pictures() -> dict[str, str]:
    """Every picture by the name of its file."""
    one = played("delay 10 s, windows of 5 s", WINDOWS)
    slowest, fastest = (
        played(f"policy: {policy}", SEVERAL, {"policy": policy}) for policy in ("min", "max")
    )
    return {
        "event-time-windows.svg": drawn(
            [one],
            90,
            150,
            "Rows of four batches by their event times, the watermark ten seconds below the newest,"
            " windows that come out when it has reached their end, and one row that is late.",
        ),
        "event-time-policies.svg": drawn(
            [slowest, fastest],
            80,
            160,
            "The same rows of two sources under both policies: with min the watermark follows the"
            " slower source and no row is late, with max it follows the faster one.",
        ),
    }


def main(target: Path) -> None:
    """Write them all."""
    for name, text in pictures().items():
        (target / name).write_text(text)


if __name__ == "__main__":
    main(Path(sys.argv[1]))
