"""Checkpoints as they are written."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from blizzard_core.checkpoint.document import encode

# Names of files may have bytes that are no text; Python shows them as lone surrogates.
texts = st.text(st.characters(exclude_categories=()))
scalars = (
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
)
values = st.recursive(
    scalars | texts,
    lambda one: st.lists(one, max_size=3) | st.dictionaries(texts, one, max_size=3),
    max_leaves=10,
)


@settings(max_examples=50)
@given(st.dictionaries(texts, values, max_size=4))
def test_a_line_holds_one_value_and_all_values_return(document: dict[str, object]) -> None:
    written = encode(document)
    expected = json.dumps(document, ensure_ascii=False, indent=1)
    assert written == expected.encode("utf-8", "surrogatepass")


@pytest.mark.parametrize("number", [float("nan"), float("inf")])
def test_a_number_that_json_lacks_is_an_error(number: float) -> None:
    with pytest.raises(ValueError, match="JSON"):
        encode({"a": [number]})
