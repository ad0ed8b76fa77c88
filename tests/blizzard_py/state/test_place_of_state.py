"""A state goes on under another spelling of its place, and under no other place."""

from __future__ import annotations

import pytest

from blizzard_core.errors import StateError
from blizzard_core.watermark.progress import Progress
from blizzard_py.state.checkpoint_file import check_identity
from blizzard_py.state.source_state import Identity, Position, SourceState


def state_of(uri: str) -> SourceState:
    return SourceState(source=Identity("p", "s", uri), position=Position(Progress(value="d=1/a")))


@pytest.mark.promise("G-111")
@pytest.mark.parametrize(
    ("known", "given"),
    [
        ("s3a://raw/x/", "s3://raw/x"),
        ("s3://raw//x", "s3://raw/x"),
        ("file:///data/raw/", "/data/raw"),
        ("gcs://raw/x", "gs://raw/x"),
        ("abfs://raw/x", "az://raw/x"),
        ("abfss://raw@one.dfs.core.windows.net/x", "az://raw/x"),
        ("shop:orders", "shop:orders"),
    ],
)
def test_a_state_goes_on_under_another_spelling(known: str, given: str) -> None:
    for one, other in ((known, given), (given, known)):
        check_identity(state_of(one), Identity("p", "s", other), None, "x.json")


@pytest.mark.parametrize(
    ("known", "given"),
    [
        ("s3://raw/x", "s3://raw/y"),
        ("s3://raw/x", "gs://raw/x"),
        ("abfss://raw@one.dfs.core.windows.net/x", "abfss://raw@two.dfs.core.windows.net/x"),
        ("shop:orders", "shop:items"),
    ],
)
def test_a_state_of_another_place_is_refused(known: str, given: str) -> None:
    with pytest.raises(StateError, match="is of the files below"):
        check_identity(state_of(known), Identity("p", "s", given), None, "x.json")
