"""Tests of reading the commits of groups from bytes made by hand."""

import struct

import pytest

from tailrace.offline.commits import decode_group_record


def string(text: str) -> bytes:
    """An int16 size and UTF-8."""
    return struct.pack(">h", len(text)) + text.encode()


COMMIT_KEY = struct.pack(">h", 1) + string("readers") + string("flights") + struct.pack(">i", 3)
GROUP_KEY = struct.pack(">h", 2) + string("readers")
NAMED = {"type": "offset-commit", "group": "readers", "topic": "flights", "partition": 3}
TIME = 1_700_000_000_000
OFFSET = struct.pack(">q", 170)
TIMES = struct.pack(">q", TIME)


@pytest.mark.parametrize(
    ("value", "extra"),
    [
        (b"\0\0" + OFFSET + string("m") + TIMES, {}),
        (b"\0\1" + OFFSET + string("m") + TIMES + TIMES, {"expire_timestamp": TIME}),
        (b"\0\2" + OFFSET + string("m") + TIMES, {}),
        (b"\0\3" + OFFSET + b"\0\0\0\7" + string("m") + TIMES, {"leader_epoch": 7}),
        (b"\0\4" + OFFSET + b"\0\0\0\7\2m" + TIMES + b"\0", {"leader_epoch": 7}),
    ],
)
def test_each_version_of_a_commit_is_decoded(value: bytes, extra: dict[str, int]) -> None:
    """Group, topic, partition, offset, metadata and times."""
    expected = {**NAMED, "offset": 170, "metadata": "m", "commit_timestamp": TIME, **extra}
    assert decode_group_record(COMMIT_KEY, value) == expected


def test_a_group_and_tombstones_are_decoded() -> None:
    """A group has an id, a kind and a generation; a null value says that a key is gone."""
    value = b"\0\0" + string("consumer") + b"\0\0\0\2" + string("range") + string("m") + bytes(4)
    group = {"type": "group", "group": "readers"}
    described = {**group, "protocol_type": "consumer", "generation": 2}
    assert decode_group_record(GROUP_KEY, value) == described
    assert decode_group_record(GROUP_KEY, None) == {**group, "tombstone": True}
    assert decode_group_record(COMMIT_KEY, None) == {**NAMED, "tombstone": True}


@pytest.mark.parametrize(
    ("key", "value"),
    [
        (None, None),
        (b"", b""),
        (b"\0\3" + string("readers"), None),
        (COMMIT_KEY, b"\0\7"),
        (COMMIT_KEY, b"\0\4" + OFFSET + b"\0\0\0\7" + b"\xff" * 9),
        (struct.pack(">hh", 1, 300) + b"short", None),
        (b"\0\2\0\2\xff\xfe", None),
    ],
)
def test_what_is_not_known_is_left_to_the_caller(key: bytes | None, value: bytes | None) -> None:
    """Unknown versions, and bytes that end too early."""
    assert decode_group_record(key, value) is None


def test_no_prefix_of_a_record_is_trouble() -> None:
    """Any part may be missing at the end."""
    value = b"\0\3" + OFFSET + b"\0\0\0\7" + string("m") + TIMES
    for size in range(len(value)):
        assert decode_group_record(COMMIT_KEY, value[:size]) is None
    for size in range(len(COMMIT_KEY)):
        assert decode_group_record(COMMIT_KEY[:size], value) is None
