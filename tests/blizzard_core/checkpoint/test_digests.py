"""Digests: looked up in what was sorted as bytes, by any release."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from blizzard_core.checkpoint.digests import WIDTH, among, digested, from_bytes

DIGEST = st.binary(min_size=WIDTH, max_size=WIDTH) | st.sampled_from(
    [bytes(WIDTH), b"\xff" * WIDTH, bytes(WIDTH - 1) + b"\1", b"\x80" + bytes(WIDTH - 1)]
)


@given(st.sets(DIGEST, max_size=20), st.lists(DIGEST, max_size=20))
def test_lookup_finds_exactly_the_digests_in_a_sorted_set(
    held: set[bytes], asked: list[bytes]
) -> None:
    ordered = from_bytes(b"".join(sorted(held)))
    found = among(from_bytes(b"".join(asked)), ordered)
    assert found.tolist() == [one in held for one in asked]


def test_names_keep_their_order_and_their_digests() -> None:
    assert (
        digested([b"b", b"a"]).tobytes() == digested([b"b"]).tobytes() + digested([b"a"]).tobytes()
    )
    assert digested([b"a"]).tobytes().hex() == "27c35e6e9373877f29e562464e46497e"
    assert len(digested(())) == 0
