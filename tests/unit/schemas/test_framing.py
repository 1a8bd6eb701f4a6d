"""Confluent's wire format: what is written is read back, and anything else is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.schemas.errors import UndecodableError
from tailrace.schemas.framing import (
    HEADER_SIZE,
    read_header,
    read_indexes,
    write_header,
    write_indexes,
)

INDEXES = st.lists(st.integers(0, (1 << 31) - 1), min_size=1, max_size=8).map(tuple)


@given(st.integers(0, (1 << 32) - 1), st.binary(max_size=8))
def test_an_id_comes_back(schema_id: int, rest: bytes) -> None:
    """The header is magic 0 and four bytes, whatever follows."""
    header = write_header(schema_id)
    assert len(header) == HEADER_SIZE
    assert read_header(header + rest) == schema_id


@given(INDEXES, st.binary(max_size=8))
def test_message_indexes_come_back(indexes: tuple[int, ...], rest: bytes) -> None:
    """They end where the message begins."""
    data = write_indexes(indexes)
    assert read_indexes(b"12345" + data + rest, 5) == (indexes, 5 + len(data))


def test_the_first_message_has_the_short_form() -> None:
    """One 0 stands for [0]; the long form is read too."""
    assert write_indexes((0,)) == b"\0"
    assert read_indexes(b"\0", 0) == ((0,), 1)
    assert read_indexes(b"\x02\0", 0) == ((0,), 2)
    assert write_indexes((1, 0)) == b"\x04\x02\0"


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "0 bytes have no room"),
        (b"\0\0\0\1", "4 bytes have no room"),
        (b"\1\0\0\0\1x", "the first byte is 1"),
        (b'{"a": 1}', "the first byte is 123"),
    ],
)
def test_another_beginning_is_refused(data: bytes, reason: str) -> None:
    """The sentence says which bytes were expected."""
    with pytest.raises(UndecodableError, match=reason):
        read_header(data)


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"", "end in the middle"),
        (b"\x04\x02", "end in the middle"),
        (b"\x80\x80\x80\x80\x80\x01", "end in the middle"),
        (b"\x01", "there are -1 message indexes"),
        (b"\xfe\xff\xff\xff\x0f", "message indexes"),
        (b"\x02\x01", "a message index is -1"),
    ],
)
def test_indexes_that_cannot_be_are_refused(data: bytes, reason: str) -> None:
    """Counts and indexes are held against their limits before anything is made of them."""
    with pytest.raises(UndecodableError, match=reason):
        read_indexes(data, 0)
