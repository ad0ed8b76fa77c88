"""Random histories of a source read by units, and its table.

Rows come late, change and go, within grace; both daemons die at any change of theirs, also twice in
a row; the base is gone for a while, the machine's clock is ahead for a poll; operators have units
read again, forget them, say how far they are, begin anew, replay letters, and bring old checkpoints
back, dying as well; others compact the table. In the end, when nothing is due any more, the table
holds what the base holds: each row once, of the last reading, in the unit it belongs to.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import random
from collections.abc import Callable, Iterator
from concurrent.futures import Executor
from dataclasses import dataclass, field
from pathlib import Path

import pyarrow as pa
import pytest
from deltalake import DeltaTable, write_deltalake
from deltalake.exceptions import TableNotFoundError

from blizzard_core.errors import BlizzardError, StateError
from blizzard_py.app import unit_operations
from blizzard_py.app.submit import Waits
from blizzard_py.edits import checkpoint_edit, unit_edits
from blizzard_py.slices.instants import moment
from blizzard_py.slices.units.state import UnitsState, known_end
from blizzard_py.sources.tables.units import UnitSource
from blizzard_py.state.source_state import SourceState, checkpoint_path
from tests.support.memory_store import Died
from tests.support.mortal_disk import Mortal
from tests.support.table_harness import TableHarness
from tests.support.unit_shop import ID, WHERE, UnitShop

SEEDS = range(8)
GRACE_DAYS = 3


@dataclass
class History:
    """One seed's world: a base, two daemons, and what befalls them."""

    shop: UnitShop
    draw: random.Random
    mortal: Mortal
    lake: TableHarness
    rows: int = 0
    theirs: int = 0
    told: list[str] = field(default_factory=list)
    kept: list[bytes] = field(default_factory=list)

    def play(self, steps: int) -> None:
        actions: list[tuple[int, Callable[[], None]]] = [
            (6, self.change),
            (5, self.passes),
            (8, self.blizzard),
            (6, self.penguin),
            (1, self.outage),
            (1, self.compaction),
            (1, self.neighbour),
            (2, self.settings),
            (2, self.clock_ahead),
            (2, self.keep),
            (1, self.restore),
            (3, self.operator),
        ]
        weights = [weight for weight, _ in actions]
        for _ in range(steps):
            [(_, action)] = self.draw.choices(actions, weights)
            self.told.append(action.__name__)
            action()

    def change(self) -> None:
        """Rows within grace come, change and go."""
        reach = GRACE_DAYS * 86_400 - 120
        for _ in range(self.draw.randint(1, 6)):
            when = self.shop.now - dt.timedelta(seconds=self.draw.randint(0, reach))
            day, survey = when.strftime("%Y-%m-%d %H:%M:%S"), self.draw.choice("ab")
            self.rows += 1
            match self.draw.randrange(4):
                case 0:
                    low = self.shop.now - dt.timedelta(seconds=reach)
                    since = low.strftime("%Y-%m-%d %H:%M:%S")
                    verb = self.draw.choice(
                        [
                            "DELETE FROM answers",
                            f"UPDATE answers SET text = 'changed {self.rows}:' || rowid",
                        ]
                    )
                    self.shop.execute(
                        f"{verb} WHERE day >= '{since}' AND rowid % 3 = {self.rows % 3}"
                    )
                case _:
                    self.shop.put((day, survey, f"row {self.rows}"))

    def passes(self) -> None:
        self.shop.passes(hours=self.draw.choice([1, 5, 13, 24, 40, 24 * 20]))

    def blizzard(self) -> None:
        """Poll with daemons of which some die."""
        for _ in range(self.draw.randint(1, 3)):
            self.mortal.left = self.draw.choice([-1, self.draw.randrange(30)])
            with contextlib.suppress(Died, BlizzardError):
                self.poll()
            self.mortal.left = -1

    def poll(self) -> None:
        """Start again from nothing where an old checkpoint is refused, as the message says."""
        try:
            self.shop.run()
        except StateError as error:
            if "reset --units" not in str(error):
                raise
            self.edit(lambda state: unit_edits.start_over(state, adopt=False))

    def clock_ahead(self) -> None:
        """Set the machine's clock, not the store's."""
        self.shop.ahead = dt.timedelta(hours=self.draw.choice([1, 30, 24 * 9, 24 * 50]))
        self.blizzard()
        self.shop.ahead = dt.timedelta(0)

    def keep(self) -> None:
        with contextlib.suppress(FileNotFoundError):
            self.kept.append(self.checkpoint.read_bytes())

    def restore(self) -> None:
        """Bring an older checkpoint back."""
        if self.kept:
            self.checkpoint.write_bytes(self.draw.choice(self.kept))

    @property
    def checkpoint(self) -> Path:
        return self.shop.lake / checkpoint_path(ID)

    def operator(self) -> None:
        """Change the checkpoint by hand, and perhaps die meanwhile."""
        self.mortal.left = self.draw.choice([-1, self.draw.randrange(8)])
        with contextlib.suppress(Died, BlizzardError):
            match self.draw.randrange(8):
                case 0:
                    self.edit(lambda state: unit_edits.start_over(state, adopt=False))
                case 1:
                    self.edit(checkpoint_edit.reset)
                case 2 | 3:
                    self.replay()
                case 4 | 5:
                    self.edit(self.lowered)
                case _:
                    self.edit(self.again)
        self.mortal.left = -1

    def replay(self) -> None:
        """Letters are replayed by a request, which the command does itself."""
        config = self.shop.config()
        now = self.shop.now.timestamp
        found = unit_operations.letters_of_units(config, WHERE, None)
        waits = Waits(lambda _secs: None, now, lambda _line: None, wait=False)
        unit_operations.replay_units(config, WHERE, found, "", waits)

    def edit(self, change: Callable[[SourceState], SourceState]) -> None:
        with contextlib.closing(self.shop.worker()) as worker:
            seen = checkpoint_edit.read_checkpoint(worker)
            checkpoint_edit.change(worker, seen, change, self.shop.now.timestamp())

    def lowered(self, state: SourceState) -> SourceState:
        """Forget a unit, or set its watermark to the same or a lower value."""
        known = state.kind.units or UnitsState()
        if not known.open:
            return state
        key = self.draw.choice(sorted(known.open))
        told = known_end(known.open[key])
        high = None
        if told is not None and self.draw.random() < 0.7:
            high = moment(told) - dt.timedelta(hours=self.draw.choice([0, 5, 50]))
        with contextlib.closing(self.shop.worker()) as worker:
            assert isinstance(worker.source, UnitSource)
            found = worker.source.preview(state)
            values = worker.source.query_spec.units
            return unit_edits.set_high(state, found, key, high, values.listed)

    def again(self, state: SourceState) -> SourceState:
        """Request a range of units again as a whole."""
        low = self.shop.now - dt.timedelta(days=self.draw.randrange(100))
        span = (low, low + dt.timedelta(days=self.draw.choice([1, 10, 60])))
        with contextlib.closing(self.shop.worker()) as worker:
            assert isinstance(worker.source, UnitSource)
            units = worker.source.query_spec.units
            assert units is not None
            found = worker.source.preview(state)
            return unit_edits.read_again(state, found, span, units.listed, ())[0]

    def outage(self) -> None:
        """Make the database unreadable for one poll."""
        self.shop.execute("ALTER TABLE answers RENAME TO gone")
        with contextlib.suppress(BlizzardError):
            self.shop.run()
        self.shop.execute("ALTER TABLE gone RENAME TO answers")

    def penguin(self) -> None:
        """Run a committer that may die."""
        for _ in range(self.draw.randint(1, 2)):
            self.mortal.left = self.draw.choice([-1, self.draw.randrange(12)])
            with contextlib.suppress(Died, BlizzardError):
                self.lake.run(own_prefixes=[])
            self.mortal.left = -1

    def compaction(self) -> None:
        """Another engine writes small files together, of all units."""
        with contextlib.suppress(TableNotFoundError):
            self.lake.delta().optimize.compact()

    def neighbour(self) -> None:
        """Append another writer's rows, without a unit."""
        with contextlib.suppress(TableNotFoundError):
            delta = self.lake.delta()
            self.theirs += 1
            rows = {"day": ["theirs"], "text": [f"theirs {self.theirs}"]}
            write_deltalake(delta, pa.table(rows), mode="append", schema_mode="merge")

    def settings(self) -> None:
        match self.draw.randrange(3):
            case 0:
                self.shop.units["max_units_per_run"] = self.draw.choice([1, 2, 500])
            case 1:
                self.shop.units["grace"] = f"{GRACE_DAYS + self.draw.choice([0, 2, 10])}d"
            case _:
                self.shop.units["parallel"] = self.draw.choice([1, 4])

    def finish(self) -> None:
        """Only poll, until no unit is due."""
        self.shop.units["max_units_per_run"] = -1
        for _ in range(12):
            self.shop.passes(days=1)
            with contextlib.suppress(BlizzardError):
                self.poll()
            self.lake.run(own_prefixes=[])

    def expected(self) -> list[tuple[str, str]]:
        rows = [(day, text) for day, _, text in self.shop.all()]
        return sorted([*rows, *(("theirs", f"theirs {n + 1}") for n in range(self.theirs))])

    def versions(self) -> Iterator[list[tuple[str, str]]]:
        """Yield the rows of each version that readers can see."""
        last = self.lake.delta().version()
        for version in range(last + 1):
            table = DeltaTable(self.lake.uri, version=version)
            rows = pa.table(table.to_pyarrow_dataset().to_table()).to_pylist()
            yield sorted((row["day"], row["text"]) for row in rows)


@pytest.fixture
def mortal() -> Iterator[Mortal]:
    found = Mortal()
    with pytest.MonkeyPatch.context() as patcher:
        found.patch(patcher)
        yield found


@pytest.mark.promise("G-153", "G-160")
@pytest.mark.parametrize("seed", SEEDS)
def test_table_converges_to_the_database(
    tmp_path: Path, mortal: Mortal, pool: Executor, seed: int
) -> None:
    draw = random.Random(seed)  # a history is repeated by its seed
    shop = UnitShop(
        tmp_path,
        grace=f"{GRACE_DAYS}d",
        partition=draw.choice(["none", "daily", "weekly", "monthly"]),
        values={"name": "survey", "list": "a,b"} if draw.random() < 0.5 else None,
    )
    history = History(shop, draw, mortal, TableHarness(str(shop.lake), pool))
    history.play(30)
    history.finish()
    *_, found = seen = list(history.versions())
    assert found == history.expected(), history.told
    twice = [rows for rows in seen if len(set(rows)) < len(rows)]
    assert not twice, history.told
