"""A discarded group leaves its duty to remove rows to the groups behind it."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from blizzard_core.handover.groups import Group
from penguin_py.planning.replacement import Unreplaced, unreplaced_by
from tests.support.group_publisher import Publisher, S, ids, reading, rows
from tests.support.table_harness import TableHarness

EVERYTHING = (f"{S}/", f"{S}0")


def discard_group(
    world: TableHarness, source: Publisher, *replaced: tuple[str, str], app_id: str | None = None
) -> None:
    """Publish a group that does not fit the table, and discard it."""
    bad = {"id": ["text"], "_unit": [f"{S}/z/000000"]}
    source.group([bad], replace=replaced)
    more = {} if app_id is None else {"app_id": app_id}
    world.run(world.penguin(**more))
    world.penguin(**more).discard([], S, dry_run=False)


@pytest.mark.promise("G-095")
def test_next_group_does_the_reset_of_a_discarded_group(world: TableHarness) -> None:
    source = Publisher(world)
    for number, unit in enumerate("abc"):
        source.group([rows(unit, 0, [number])], replace=[reading(S, unit, 0)])
    world.run()
    discard_group(world, source, EVERYTHING)
    assert ids(world) == [0, 1, 2]  # nothing goes before something comes
    source.group([rows("m", 0, [10])], replace=[reading(S, "m", 0)])
    world.run()
    assert ids(world) == [10]


@pytest.mark.promise("G-095")
def test_later_reading_replaces_the_slice_of_a_discarded_group(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 0, [1]), rows("a", 5, [5, 6, 7])], replace=[reading(S, "a", 0)])
    world.run()
    discard_group(world, source, reading(S, "a", 5))
    source.group([rows("a", 7, [70])], replace=[reading(S, "a", 7)])
    world.run()
    assert ids(world) == [1, 70]
    source.group([rows("a", 9, [90])], replace=[reading(S, "a", 9)])
    world.run()
    assert ids(world) == [1, 70, 90]  # what was made good is not done twice


def test_groups_of_other_units_leave_what_is_due(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 5, [5, 6])], replace=[reading(S, "a", 0)])
    source.group([rows("b", 5, [100])], replace=[reading(S, "b", 0)])
    world.run()
    discard_group(world, source, reading(S, "a", 5))
    source.group([rows("b", 7, [101])], replace=[reading(S, "b", 7)])
    world.run()
    assert ids(world) == [5, 6, 100, 101]
    source.group([rows("a", 6, [60])], replace=[reading(S, "a", 6)])
    world.run()
    assert ids(world) == [60, 100, 101]


def test_next_group_replaces_slices_of_several_discarded_groups(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 3, [3, 4, 5])], replace=[reading(S, "a", 0)])
    source.group([rows("b", 3, [30])], replace=[reading(S, "b", 0)])
    world.run()
    for low in (5, 3, 6):
        discard_group(world, source, reading(S, "a", low))
    discard_group(world, source, reading(S, "b", 3))
    source.group(
        [rows("a", 7, [7]), rows("b", 9, [90])], replace=[reading(S, "a", 7), reading(S, "b", 9)]
    )
    world.run()
    assert ids(world) == [7, 90]


def test_the_duty_is_found_again_without_the_mirror(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 5, [5, 6])], replace=[reading(S, "a", 0)])
    world.run()
    discard_group(world, source, reading(S, "a", 5))
    world.storage.delete("_penguin/events_checkpoint.json")
    world.put("9.parquet", {"id": [9], "_unit": ["q/"]}, output_id="p/q/9/1/0")
    world.run()  # a commit of files in between
    world.storage.delete("_penguin/events_checkpoint.json")
    source.group([rows("a", 6, [60])], replace=[reading(S, "a", 6)])
    world.run()
    assert ids(world) == [9, 60]


@pytest.mark.promise("G-095")
@pytest.mark.parametrize("is_running", [True, False])
def test_another_instance_takes_over_the_duty(world: TableHarness, *, is_running: bool) -> None:
    source = Publisher(world)
    source.group([rows("a", 5, [5, 6])], replace=[reading(S, "a", 0)])
    world.run()
    other = world.penguin()
    if is_running:
        world.run(other)
    discard_group(world, source, reading(S, "a", 5), app_id="another")
    source.group([rows("a", 6, [60])], replace=[reading(S, "a", 6)])
    world.run(other)
    assert ids(world) == [60]
    source.group([rows("a", 8, [80])], replace=[reading(S, "a", 8)])
    world.run(world.penguin(app_id="another"))  # and it knows that it was done
    assert ids(world) == [60, 80]


def test_rows_of_a_compacted_slice_go_as_well(world: TableHarness) -> None:
    source = Publisher(world)
    source.group([rows("a", 0, [1]), rows("a", 5, [5, 6])], replace=[reading(S, "a", 0)])
    source.group([rows("b", 0, [100])], replace=[reading(S, "b", 0)])
    world.run()
    discard_group(world, source, reading(S, "a", 5))
    world.delta().optimize.compact()
    source.group([rows("a", 6, [60])], replace=[reading(S, "a", 6)])
    world.run()
    assert ids(world) == [1, 60, 100]


@pytest.mark.parametrize(
    ("own", "left", "due", "rest"),
    [
        ([("b", "c")], [("a", "b")], [], [("a", "b")]),
        ([("b", "c")], [("c", "d")], [], [("c", "d")]),
        ([("b", "c")], [("a", "bb"), ("e", "f")], [("a", "bb")], [("e", "f")]),
        ([("b", "c"), ("e", "f")], [("a", "z")], [("a", "z")], []),
        ([], [("a", "z")], [], [("a", "z")]),
        ([("b", "d")], [("a", "c"), ("b", "e")], [("a", "e")], []),
        ([("b", "c")], [], [], []),
    ],
)
def test_unreplaced_range_is_due_in_full_when_a_group_meets_it(
    own: Sequence[tuple[str, str]],
    left: Sequence[tuple[str, str]],
    due: Sequence[tuple[str, str]],
    rest: Sequence[tuple[str, str]],
) -> None:
    group = Group("s", 1, 1, "b", (), tuple(own))
    assert unreplaced_by(group, left) == Unreplaced(tuple(due), tuple(rest))
