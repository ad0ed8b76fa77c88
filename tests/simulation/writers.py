"""Files of writers in a plan: well-behaved ones and all others."""

from __future__ import annotations

from tests.simulation.drawing import Drawing
from tests.simulation.plan import (
    DAY,
    START,
    directory,
)

REGIONS = ("ap", "eu", "us")
ODD = ("a b", "%41", "ü", "x+y", "1-", "z=1", "\U0001f427", "A", "%2F", "n~")


def write(
    drawing: Drawing,
    at: float,
    *,
    early: bool = False,
    manner: str | None = None,
    flavour: str | None = None,
    source: int | None = None,
    unreadable: float | None = None,
    path: str | None = None,
) -> None:
    """One new file, in most cases a well-behaved one; ``path`` is what it is called if not that."""
    chance, settings_ = drawing.chance, drawing.settings
    drawing.count += 1
    made = at
    manner = (
        manner
        or chance.choices(
            (
                "in_order",
                "disordered",
                "too_late",
                "old_partition",
                "future",
                "root",
                "odd",
                "hidden",
            ),
            (50, 25, 8, 5, 2, 4, 3, 1),
        )[0]
    )
    if early and manner in {"future", "odd", "hidden"}:
        manner = "in_order"
    if manner == "disordered":
        made -= settings_.grace * chance.random()
    if manner == "too_late":
        made -= settings_.grace * (1 + 5 * chance.random())
    folder = directory(settings_.layout, START + made, chance.choice(REGIONS))
    stem = f"{int(START + made)}-{drawing.count:03d}"
    ending = ".ndjson"
    match manner:
        case "old_partition":
            folder = directory(settings_.layout, START + made - DAY * chance.choice((1, 2, 5, 30)))
        case "future" if settings_.layout in {"days", "hours"}:
            far = chance.choice(("date=9999-12-31", "date=2031-01-01"))
            folder = f"{far}/" if settings_.layout == "days" else f"{far}/hour=00/"
        case "root":
            folder = ""
        case "odd":
            stem = f"{chance.choice(ODD)}-{drawing.count:03d}"
            if settings_.layout == "regions":
                folder = f"{chance.choice(ODD)}/"
        case "hidden":
            folder, ending = chance.choice((("_tmp/", ".ndjson"), (folder, ".txt")))
    path = path or f"{folder}{stem}{ending}"
    drawing.written.append(path)
    flavour = flavour or chance.choices((None, "bad", "v2"), (90, 5, 5))[0]
    dated = chance.choices((None, "replicated", "multipart", "ahead"), (70, 12, 12, 3))[0]
    shift = {
        None: None,
        "replicated": -DAY * (1 + 50 * chance.random()),
        "multipart": -chance.choice((30.0, 400.0, 3 * DAY)),
        "ahead": chance.choice((300.0, 400 * DAY)),
    }[dated]
    drawing.add(
        at,
        "write",
        source=(chance.randrange(settings_.sources) if source is None else source) or None,
        path=path,
        manner=manner,
        rows=chance.choice((1, 1, 2, 3)),
        bad_rows=1 if drawing.one_in(15) else None,
        flavour=flavour,
        dated=dated,
        shift=shift,
        unreadable=unreadable
        or (chance.choice((5.0, 40.0, 200.0)) if drawing.one_in(12) else None),
    )


def below(drawing: Drawing) -> str:
    """Return a name in the folder of the last file, just below its own."""
    folder, slash, name = drawing.written[-1].rpartition("/")
    seconds = int(name.partition("-")[0]) - 1
    return f"{folder}{slash}{seconds}-{drawing.count + 1:03d}.ndjson"


def rewrite(drawing: Drawing) -> None:
    if drawing.written:
        at = drawing.now + 20 * drawing.chance.random()
        drawing.add(at, "rewrite", path=drawing.chance.choice(drawing.written))


def delete(drawing: Drawing) -> None:
    if drawing.written:
        at = drawing.now + 20 * drawing.chance.random()
        drawing.add(at, "delete", path=drawing.chance.choice(drawing.written))
