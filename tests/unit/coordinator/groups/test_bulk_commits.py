"""Commits that are loaded in bulk, and the records among them that are left to a replay."""

import gc
import weakref

import pytest

from tailrace.model import LeaderEpoch, ProducerEpoch, ProducerId, TopicPartition
from tailrace.protocol.coordinator_records import encode_key, encode_value
from tailrace.protocol.records import OffsetCommitKey, OffsetCommitValue
from tailrace.records.builder import BatchBuilder
from tailrace.records.control import build_end_marker
from tailrace.runtime import memory
from tests.unit.coordinator.groups.both_ways import check_both_ways, in_a_log, load

KEY = encode_key(OffsetCommitKey(group="g", topic="a", partition=0))
A0 = TopicPartition("a", 0)
NEWER = b"\0\5" + bytes(30)
NOT_TEXT = b"\0\0" + bytes(8) + b"\0\1\xff" + bytes(8)


def value(offset: int, version: int = 4) -> bytes:
    """A commit of an offset."""
    found = OffsetCommitValue(offset=offset, metadata="", commit_timestamp=1)
    return encode_value(found, version)


def batch(*values: bytes | None, key: bytes = KEY) -> bytes:
    """A batch with these values of a key."""
    builder = BatchBuilder()
    for each in values:
        builder.append(key, each, timestamp=1)
    return builder.build()


def in_transaction(committed: bytes) -> bytes:
    """A batch of an open transaction."""
    builder = BatchBuilder(producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True)
    builder.append(KEY, committed, timestamp=1)
    return builder.build()


def marker() -> bytes:
    """The end of the transaction, which commits."""
    return bytes(
        build_end_marker(
            ProducerId(7),
            ProducerEpoch(0),
            is_commit=True,
            coordinator_epoch=LeaderEpoch(0),
            timestamp=1,
        )
    )


def test_commits_are_taken_in_bulk() -> None:
    """All bytes of a log of commits are taken, in every version of their values."""
    content = in_a_log(batch(value(number, number), None, value(9)) for number in range(5))
    loaded = check_both_ways(content)
    assert loaded.taken_bytes == sum(map(len, content))
    assert loaded.state is not None
    assert loaded.state.committed["g"][A0].offset == 9
    assert loaded.state.committed["g"][A0].record_offset == 14


def test_a_deleted_offset_is_gone_and_its_group_is_known() -> None:
    """A tombstone behind a commit deletes the offset; the group has a tombstone of its own."""
    loaded = check_both_ways(in_a_log([batch(value(1)), batch(None)]))
    assert loaded.state is not None
    assert loaded.state.committed == {}
    assert list(loaded.state.groups) == ["g"]


def test_a_tombstone_between_two_commits_drops_the_pending_offset() -> None:
    """An offset of an open transaction goes too, and its marker does not bring it back."""
    content = in_a_log([in_transaction(value(100)), batch(value(1), None, value(2)), marker()])
    loaded = check_both_ways(content)
    assert loaded.state is not None
    assert loaded.state.committed["g"][A0].offset == 2
    loaded = check_both_ways(content[:2])
    assert loaded.state is not None
    assert loaded.state.pending == {}


@pytest.mark.parametrize(
    "bad",
    [NEWER, NOT_TEXT, b"\0\1\0"],
    ids=["newer", "not text", "cut"],
)
def test_an_overwritten_record_that_cannot_be_read_stops_the_load(bad: bytes) -> None:
    """The error is that of a replay, with the offset of the record."""
    loaded = check_both_ways(in_a_log([batch(value(1)), batch(value(2), bad, value(3))]))
    assert loaded.error is not None
    assert loaded.error[1].endswith(" 2")


@pytest.mark.parametrize("is_ours", [True, False], ids=["tailrace serve", "a program of the user"])
def test_only_a_broker_of_its_own_keeps_offsets_out_of_collections(
    *, is_ours: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`tailrace serve` does. A program may have frozen objects itself; no other of its are."""
    monkeypatch.setattr(memory, "_process", memory._Process())
    if is_ours:
        memory.claim_process()
    gc.freeze()
    frozen = gc.get_freeze_count()
    mine = [[number] for number in range(100)]
    loaded = check_both_ways(in_a_log([batch(value(1))]))
    assert (gc.get_freeze_count() > frozen + len(mine) // 2) == is_ours
    assert loaded.taken_bytes


def test_a_batch_with_another_record_is_replayed() -> None:
    """One of a type that nobody knows, among commits, leaves these as they are."""
    content = in_a_log([batch(value(1)), batch(b"\0\0", key=b"\0\x63"), batch(value(2))])
    loaded = check_both_ways(content)
    assert loaded.taken_bytes == len(content[0]) + len(content[2])
    assert loaded.state is not None
    assert loaded.state.committed["g"][A0].offset == 2


def test_the_memory_of_a_load_is_given_back_without_a_collection() -> None:
    """A reader in bulk that has put commits is gone as soon as nobody uses it."""
    readers: list[weakref.ref[object]] = []
    content = in_a_log([batch(value(1), None, value(2))])
    gc.disable()
    try:
        loaded = load(content, is_bulk=True, made=lambda bulk: readers.append(weakref.ref(bulk)))
    finally:
        gc.enable()
    assert loaded.taken_bytes == len(content[0])
    assert [each() for each in readers] == [None]
