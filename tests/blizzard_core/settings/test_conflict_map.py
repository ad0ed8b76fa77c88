"""Places that overlap are found without comparing each with each, and they are the same."""

from __future__ import annotations

import random

from blizzard_core.settings.checks import places as checks
from blizzard_core.settings.checks.places import Area
from blizzard_core.settings.yaml_file import Document

_PARTS = ("a", "b", "ab", "a-b", "ä")


def test_overlaps_are_those_of_a_pairwise_comparison() -> None:
    chance = random.Random(18)
    for _ in range(200):
        areas = [
            Area(
                "s3://" + "".join(f"{chance.choice(_PARTS)}/" for _ in range(chance.randint(1, 4))),
                chance.choice((None, None, "one", "two")),
            )
            for _ in range(30)
        ]
        places = [checks._Place(f"{n}", area.root, area) for n, area in enumerate(areas)]  # noqa: SLF001  # what the module decides by
        near = checks._Map(places)  # noqa: SLF001  # the same
        for area in areas:
            found = [number for number, _ in near.overlapping(area)]
            assert found == [n for n, other in enumerate(areas) if area.overlaps(other)]


def test_many_places_are_not_compared_each_with_each() -> None:
    class Compared(Area):
        """Counts how often it is held against another."""

        times = 0

        def overlaps(self, other: Area) -> bool:
            Compared.times += 1
            return super().overlaps(other)

    places = [
        checks._Place(f"{n}", f"s3://b/{n}", Compared(f"s3://b/{n}/"))  # noqa: SLF001  # as above
        for n in range(2000)
    ]
    assert list(checks._shared(places, "{other}")) == []  # noqa: SLF001  # as above
    assert Compared.times <= 2000


def test_conflicts_come_in_a_stable_order() -> None:
    pipelines = {
        name: {
            "sources": {"m": {"source_uri": "s3://raw/x"}},
            "sink": {"table_uri": "s3://lake/t"},
        }
        for name in "abc"
    }
    told = checks.conflicts(Document("c.yaml", {"pipelines": pipelines}, ()))
    assert [line.partition(":")[0] for line in told] == [
        "pipelines.b.sources.m.source_uri",
        "pipelines.c.sources.m.source_uri",
        "pipelines.b.sink.table_uri",
        "pipelines.c.sink.table_uri",
    ]
