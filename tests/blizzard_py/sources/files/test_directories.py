"""Table directories from source paths: what fits, and what must never pass."""

from __future__ import annotations

import pytest

from blizzard_py.sources.directories import PartitionError, partition_of

DAY = "date=%Y-%m-%d"


@pytest.mark.parametrize(
    ("path", "template", "source", "expected"),
    [
        ("date=2024-01-28/f", DAY, None, "date=2024-01-28"),
        ("date=2024-01-28/hour=14/f", DAY, None, "date=2024-01-28"),
        ("hour=14/date=2024-01-28/f", f"{DAY}/hour=%H", None, "date=2024-01-28/hour=14"),
        ("region=eu/date=2024-01-28/f", f"region=eu/{DAY}", None, "region=eu/date=2024-01-28"),
        ("date=2024-01-28/f", f"source=main/{DAY}", None, "source=main/date=2024-01-28"),
        ("2024/01/28/f", DAY, "%Y/%m/%d", "date=2024-01-28"),
        ("2024/01/28/14/f", f"{DAY}/hour=%H", "%Y/%m/%d/%H", "date=2024-01-28/hour=14"),
        ("2024/01/28/deeper/f", DAY, "%Y/%m/%d", "date=2024-01-28"),
        ("dt=2024-01-28T14/f", f"{DAY}/hour=%H", "dt=%Y-%m-%dT%H", "date=2024-01-28/hour=14"),
    ],
)
def test_a_path_gives_the_directory(
    path: str, template: str, source: str | None, expected: str
) -> None:
    assert partition_of(path, template, source) == expected


@pytest.mark.parametrize(
    ("path", "template", "source"),
    [
        ("f", DAY, None),
        ("hour=14/f", DAY, None),
        ("date=junk/f", DAY, None),
        ("date=2024-1-28/f", DAY, None),
        ("date=2024-02-30/f", DAY, None),
        ("date=__HIVE_DEFAULT_PARTITION__/f", DAY, None),
        ("date=/f", DAY, None),
        ("region=us/date=2024-01-28/f", f"region=eu/{DAY}", None),
        ("2024/13/28/f", DAY, "%Y/%m/%d"),
        ("2024/01/f", DAY, "%Y/%m/%d"),
        # The file's own name is no directory.
        ("date=2024-01-28", DAY, None),
    ],
)
def test_a_path_that_does_not_say_is_an_error(path: str, template: str, source: str | None) -> None:
    with pytest.raises(PartitionError):
        partition_of(path, template, source)
