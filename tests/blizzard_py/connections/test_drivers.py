"""The drivers name places that exist: they are loaded by name, so no type checker sees them."""

from __future__ import annotations

from importlib import import_module

import pytest

from blizzard_py.connections.drivers import DRIVERS, reader_of


@pytest.mark.parametrize("driver", sorted(DRIVERS))
def test_each_driver_names_a_connection_and_a_reader(driver: str) -> None:
    module, _, name = DRIVERS[driver].connects.partition(":")
    assert callable(getattr(import_module(module), name))
    assert callable(reader_of(driver))
