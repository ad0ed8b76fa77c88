"""Letters of bad rows of work units, and commands that name units there are not."""

from __future__ import annotations

from pathlib import Path

import pytest
from click.testing import CliRunner

from blizzard_py.__main__ import main
from tests.support.unit_shop import ID, UnitShop


@pytest.fixture
def shop(tmp_path: Path) -> UnitShop:
    shop = UnitShop(tmp_path, values={"name": "survey", "list": "s1,s2"})
    fields = shop.document["pipelines"]["p"]["schema"]["fields"]
    fields.append({"name": "score", "type": "int64"})
    shop.execute("ALTER TABLE answers ADD COLUMN score")
    return shop


def run_command(shop: UnitShop, *words: str) -> tuple[int, str]:
    place = [str(shop.path()), "--pipeline", "p", "--source", "answers"]
    done = CliRunner().invoke(main, [*words, *place])
    return done.exit_code, done.output


def letters(shop: UnitShop) -> list[Path]:
    return sorted((shop.lake / "_blizzard" / "dlq" / ID).glob("*.ndjson"))


def test_bad_row_letters_close_after_their_units_are_read_again(shop: UnitShop) -> None:
    shop.put(("2020-01-05", "s1", "a"), ("2020-01-05", "s2", "b"))
    shop.execute("UPDATE answers SET score = 'bad'")
    shop.run()
    [letter] = letters(shop)
    again = ["backfill", "--from", "2020-01-05", "--to", "2020-01-06", "--values"]
    assert run_command(shop, *again, "s1")[0] == 0
    shop.run()
    both = letters(shop)
    assert letter in both  # it tells of the other unit as well
    assert len(both) == 2
    shop.execute("UPDATE answers SET score = 7")
    assert run_command(shop, *again, "s1,s2")[0] == 0
    shop.run()
    assert shop.texts() == ["a", "b"]
    assert letters(shop) == []


def test_a_unit_that_there_is_not_is_refused(shop: UnitShop) -> None:
    shop.put(("2020-01-05", "s1", "a"))
    shop.run()
    before = shop.checkpoint()
    words = ["checkpoint", "set", "--unit", "2020-01-01/s3", "--high", "2020-01-20", "--yes"]
    code, output = run_command(shop, *words)
    assert code == 1
    assert "no unit 's3'" in output
    assert shop.checkpoint() == before
