"""An older checkpoint brought back: what was published since leaves no row twice, and none out."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner

from blizzard_core.errors import StateError
from blizzard_core.handover.groups import group_path
from blizzard_core.storage.local import LocalStorage
from blizzard_py.__main__ import main
from blizzard_py.state.source_state import checkpoint_path
from tests.support.group_reader import groups_of
from tests.support.unit_shop import ID, UnitShop, snapshots, windows


def days(shop: UnitShop, first: int, last: int) -> list[str]:
    """Put a row for each of January's days; their texts."""
    texts = [f"d{day:02d}" for day in range(first, last + 1)]
    shop.put(*((f"2020-01-{text[1:]}", "s", text) for text in texts))
    return texts


def command(shop: UnitShop, *words: str) -> None:
    place = [str(shop.path()), "--pipeline", "p", "--source", "answers"]
    done = CliRunner().invoke(main, [*words, *place])
    assert done.exit_code == 0, done.output


def forget(shop: UnitShop) -> None:
    command(shop, "checkpoint", "set", "--unit", "2020-01-01", "--high", "none", "--yes")


def again(shop: UnitShop) -> None:
    command(shop, "backfill", "--from", "2020-01-01", "--to", "2020-01-02")


def longer_grace(shop: UnitShop) -> None:
    shop.units["grace"] = "40d"


@pytest.mark.parametrize("grace", [0, 3])
@pytest.mark.parametrize("whole", [forget, again, longer_grace, lambda _: None])
def test_stale_checkpoint_ingests_once_after_units_were_read(
    tmp_path: Path, grace: int, whole: Callable[[UnitShop], None]
) -> None:
    shop = UnitShop(tmp_path, now="2020-01-10T00:00:00", grace=f"{grace}d")
    texts = days(shop, 1, 30)
    shop.run()
    shop.passes(days=5)
    shop.run()
    checkpoint = shop.lake / checkpoint_path(ID)
    saved = checkpoint.read_bytes()
    shop.passes(days=5)
    whole(shop)
    shop.run()
    assert shop.texts() == texts[:19]
    checkpoint.write_bytes(saved)
    shop.units["grace"] = f"{grace}d"
    shop.passes(days=2)
    shop.run()
    assert shop.texts() == texts[:21]
    numbers = [group.seq for group in groups_of(shop.lake, ID)]
    assert numbers == [1, 2, 3, 4]


@pytest.fixture
def versions(monkeypatch: pytest.MonkeyPatch) -> list[bytes]:
    """Each version of the checkpoint that was ever saved."""
    saved: list[bytes] = []

    def recording(name: str) -> Callable[..., Any]:
        change = getattr(LocalStorage, name)

        def changed(storage: LocalStorage, path: str, data: bytes, *more: Any) -> Any:
            found = change(storage, path, data, *more)
            if path == checkpoint_path(ID):
                saved.append(data)
            return found

        return changed

    for name in ("put_if", "put_atomic"):
        monkeypatch.setattr(LocalStorage, name, recording(name))
    return saved


def _units(folder: Path) -> UnitShop:
    return UnitShop(folder, now="2020-01-05T00:00:00", partition="weekly", grace="2d")


def _forgotten(shop: UnitShop) -> None:
    shop.passes(days=3)
    if "units" in shop.source:
        forget(shop)
    else:
        value = "2020-01-03" if shop.source.get("watermark") else None
        if value:
            command(shop, "checkpoint", "set", "--column", f"day={value}", "--yes")


@pytest.mark.promise("G-158")
@pytest.mark.parametrize("begun", [_units, windows, snapshots])
def test_any_version_of_a_checkpoint_can_be_brought_back(
    tmp_path: Path, versions: list[bytes], begun: Callable[[Path], UnitShop]
) -> None:
    shop = begun(tmp_path)
    shop.now = shop.now.replace(year=2020, month=1, day=1)
    texts: list[str] = []
    for step in range(6):
        texts += days(shop, 1 + 3 * step, 3 + 3 * step)
        if step == 3:
            _forgotten(shop)
        else:
            shop.passes(days=3)
        shop.run()
    lake, now = shop.lake, shop.now
    saved = list(versions)
    assert len(saved) > 20
    for number, version in enumerate(saved):
        shop.folder = tmp_path / f"{number}"
        shutil.copytree(lake, shop.lake)
        shop.document["pipelines"]["p"]["sink"]["table_uri"] = str(shop.lake)
        (shop.lake / checkpoint_path(ID)).write_bytes(version)
        shop.now = now
        for _ in range(2):
            shop.passes(days=1)
            shop.run()
        assert shop.texts() == sorted(texts), number


@pytest.mark.promise("G-158")
def test_stale_checkpoint_is_refused_when_a_group_is_missing(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path, now="2020-01-10T00:00:00")
    texts = days(shop, 1, 30)
    shop.run()
    checkpoint = shop.lake / checkpoint_path(ID)
    saved = checkpoint.read_bytes()
    for _ in range(2):
        shop.passes(days=1)
        shop.run()
    checkpoint.write_bytes(saved)
    swept = shop.lake / group_path(ID, 2)
    group = swept.read_bytes()
    swept.unlink()
    with pytest.raises(StateError, match="group 2 replaced is not known"):
        shop.run()
    command(shop, "checkpoint", "reset", "--units", "--yes")
    shop.run()
    assert shop.checkpoint()["group_seq"] == 4
    swept.write_bytes(group)
    assert shop.texts() == texts[:11]


def test_checkpoint_from_before_a_units_reset_is_refused(
    tmp_path: Path, versions: list[bytes]
) -> None:
    """Also one in which a batch was being published can be reset."""
    shop = UnitShop(tmp_path, now="2020-01-10T00:00:00")
    texts = days(shop, 1, 30)
    for _ in range(2):
        shop.run()
        shop.passes(days=1)
    saved = [each for each in versions if b'"spec"' in each and b'"anew": true' not in each]
    assert any(b"publishing" in version for version in saved)
    command(shop, "checkpoint", "reset", "--units", "--yes")
    shop.run()
    for version in saved:
        (shop.lake / checkpoint_path(ID)).write_bytes(version)
        with pytest.raises(StateError, match="older than the last beginning from nothing"):
            shop.run()
        command(shop, "checkpoint", "reset", "--units", "--yes")
        shop.run()
        assert shop.texts() == texts[:11]
