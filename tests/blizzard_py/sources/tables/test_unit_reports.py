"""Work units on the status page and in `explain`, starting from the configuration."""

from __future__ import annotations

import contextlib
import threading
from pathlib import Path

from blizzard_py.app.explaining import explain
from tests.support.unit_shop import UnitShop


def test_a_poll_lays_out_the_grid_and_what_was_saved_colours_it(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path, grace="3d", values={"name": "survey", "list": "s1,s2"})
    shop.put(("2020-01-05", "s1", "a"))
    with contextlib.closing(shop.worker()) as worker:
        assert worker.activity.to_json()["units"] is None
        while worker.cycle(threading.Event()):
            pass
        found = worker.activity.to_json()["units"]
    assert found["rows"] == [{"name": "s1", "cells": "dg"}, {"name": "s2", "cells": "dg"}]
    assert found["columns"][1][1:] == ["2020-02-01T00:00:00.000Z", "2020-02-22T09:30:00.000Z"]
    with contextlib.closing(shop.worker()) as worker:
        worker.cycle(threading.Event())
        assert worker.activity.to_json()["units"]["counts"]["grace"] == 2


def test_unit_read_twice_is_explained_by_its_last_batch(tmp_path: Path) -> None:
    shop = UnitShop(tmp_path)
    shop.put(("2020-02-05", "s1", "a"))
    shop.run()
    shop.put(("2020-02-22 10:00:00", "s1", "b"), ("2020-02-22 11:00:00", "s1", "c"))
    shop.passes(days=1)
    shop.run()
    found = explain(shop.config(), "p/answers#2020-02-01T00:00:00.000Z/{}")
    assert found.batch.rows == 2
