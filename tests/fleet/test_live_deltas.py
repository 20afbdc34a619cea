"""Patches lead from any document to any other."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from fleet.live.deltas import apply, diff

leaves = st.one_of(
    st.integers(),
    st.text(max_size=4),
    st.booleans(),
    st.lists(st.integers() | st.none(), max_size=3),
)
documents = st.dictionaries(
    st.text("abcd", min_size=1, max_size=2),
    st.recursive(
        leaves,
        lambda inner: st.dictionaries(st.text("abcd", min_size=1, max_size=2), inner, max_size=4),
        max_leaves=12,
    ),
    max_size=5,
)


@given(documents, documents)
def test_applying_the_difference_gives_the_new_document(
    old: dict[str, Any], new: dict[str, Any]
) -> None:
    assert apply(old, diff(old, new)) == new


@given(documents)
def test_between_equal_documents_there_is_nothing_to_send(document: dict[str, Any]) -> None:
    assert diff(document, dict(document)) == {}


def test_only_the_changed_cell_of_a_table_travels() -> None:
    old = {"rows": {"r1": {"p95": "12", "rate": "3.0"}, "r2": {"p95": "14", "rate": "1.0"}}}
    new = {"rows": {"r1": {"p95": "13", "rate": "3.0"}, "r2": {"p95": "14", "rate": "1.0"}}}
    assert diff(old, new) == {"rows": {"r1": {"p95": "13"}}}


def test_a_row_that_left_is_removed_by_null() -> None:
    assert diff({"rows": {"r1": {}}}, {"rows": {}}) == {"rows": {"r1": None}}


def test_arrays_are_replaced_whole() -> None:
    assert diff({"order": ["a", "b"]}, {"order": ["b", "a"]}) == {"order": ["b", "a"]}


def test_a_number_that_becomes_an_object_is_replaced_by_it() -> None:
    assert apply({"a": 1}, diff({"a": 1}, {"a": {"b": 2}})) == {"a": {"b": 2}}
