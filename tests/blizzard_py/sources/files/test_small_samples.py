"""Names of a few files that do not sort in time."""

from __future__ import annotations

import random
import uuid

import pytest

from blizzard_core.storage.protocol import Entry
from blizzard_py.sources.files.small_samples import disorder

HOUR = 3600.0


def files(*names: str, every: float = HOUR) -> list[Entry]:
    """Return files that were written in this order."""
    return [Entry(name, 1, 1e9 + number * every) for number, name in enumerate(names)]


def random_uuid(chance: random.Random) -> uuid.UUID:
    return uuid.UUID(int=chance.getrandbits(128), version=4)


CHANCE = random.Random(5)
UUIDS = [str(random_uuid(CHANCE)) for _ in range(12)]


@pytest.mark.parametrize(
    "names",
    [
        [f"part-0000{n}-{each}-c000.json" for n, each in enumerate(UUIDS[:3])],
        [f"part-00000-{UUIDS[0]}.c000.snappy.parquet"],
        [f"date=2024-01-01/{each}.json" for each in UUIDS],
        [f"events-{each.upper()}.json" for each in UUIDS],
        [each.replace("-", "") for each in UUIDS],
    ],
)
def test_random_parts_are_found(names: list[str]) -> None:
    found = disorder(files(*names, every=0))
    assert names[0] in found.message or found.examples[0] in names
    assert "set use_watermark: false" in found.message


@pytest.mark.parametrize(
    "names",
    [
        [f"2024-01-{day:02}-{each}.json" for day, each in enumerate(UUIDS, 1)],
        [f"17000000{n:02}-{each}.json" for n, each in enumerate(UUIDS)],
        [f"events-{n:06}-{each}.json" for n, each in enumerate(UUIDS)],
        [f"0190163d-8694-739b-aea5-966c26f8ad{n:02}.json" for n in range(12)],
        [f"{n:03}.json" for n in range(12)],
        [f"{10**31 + n}.json" for n in range(12)],
        ["orders.csv"],
        [],
    ],
)
def test_names_that_may_sort_are_not_accused(names: list[str]) -> None:
    assert disorder(files(*names)) is None


def test_disorder_of_ten_names_is_found() -> None:
    names = [f"{letter}.json" for letter in "gcjaibhdfe"]
    found = disorder(files(*(f"d/{name}" for name in names)))
    assert found.place == "d"
    assert disorder(files(*names, every=1.0)) is None  # a copy's times prove nothing
    assert disorder(files(*names[:9])) is None


def test_sorted_names_with_some_late_ones_pass() -> None:
    names = [f"{n:02}.json" for n in (0, 1, 3, 2, 4, 5, 7, 6, 8, 9)]
    assert disorder(files(*names)) is None
