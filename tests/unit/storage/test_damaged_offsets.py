"""Offsets that no checksum covers, and indexes that have none: refused, with the place."""

import struct

import pytest

from tailrace.errors import CorruptionError, InvalidRecordError
from tailrace.model import Offset
from tailrace.records.control import ControlType
from tailrace.storage.index.transaction import open_transaction_index
from tailrace.storage.offset_lookup import find_offset
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    NOW,
    append,
    batch,
    filled,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
    values,
)
from tests.unit.storage.cleaner.shelves import Shelf
from tests.unit.storage.transactional import follow, replicated

FAR = 2**31


@pytest.mark.parametrize("offset", [FAR + 1, 2**62, 2**63 - 1])
def test_a_follower_refuses_offsets_that_no_segment_holds(offset: int) -> None:
    """Batches too far apart, or at the very last offset, change neither log nor epochs."""
    log = open_at(MemoryFiles(), config=settings())
    follow(log, replicated(0, b"first"))
    with pytest.raises(InvalidRecordError, match="do not fit into one segment"):
        follow(log, replicated(1, b"near"), replicated(offset, b"far", leader_epoch=3))
    assert log.end_offset == 1
    assert log.epochs.latest == 0


def test_a_follower_takes_offsets_that_a_segment_just_holds() -> None:
    """The distance of 2147483647 is the largest that an index entry has room for."""
    log = open_at(MemoryFiles(), config=settings())
    end = follow(log, replicated(0, b"first"), replicated(FAR - 1, b"last"))
    assert end == FAR


def test_a_search_by_time_says_where_the_damage_is() -> None:
    """The error of a damaged batch names file, position and offset."""
    files = MemoryFiles()
    log = open_at(files)
    append(log, batch(b"first", timestamps=[NOW]))
    append(log, batch(b"second", timestamps=[NOW + 5]))
    position = len(batch(b"first"))
    flip(files, path(0, ".log"), position + 70)
    with pytest.raises(CorruptionError) as caught:
        find_offset(log, NOW + 5)
    assert caught.value.path == path(0, ".log")
    assert (caught.value.position, caught.value.offset) == (position, 1)


@pytest.mark.parametrize(
    ("kind", "first", "last"), [(ControlType.COMMIT, 0, 2), (ControlType.ABORT, 0, 3)]
)
def test_cleaning_refuses_an_index_of_aborts_that_the_markers_contradict(
    kind: ControlType, first: int, last: int
) -> None:
    """A damaged entry must not have committed records dropped; the round ends, nothing changes."""
    shelf = Shelf()
    shelf.append_transaction(7, 1, 2)
    shelf.end_transaction(7, kind)
    shelf.append_keys(1, 2, 3)
    shelf.roll()
    index = path(0, ".txnindex")
    shelf.files.open(index, create=True)
    shelf.files.overwrite(index, struct.pack(">hqqqq", 0, 7, first, last, first))
    segments = [each.log.path for each in shelf.segments]
    before = [shelf.files.content(each) for each in segments]
    shelf.segments[0].transactions = open_transaction_index(
        shelf.files, index, base_offset=Offset(0)
    )
    with pytest.raises(CorruptionError, match="transaction index") as caught:
        shelf.clean()
    assert (caught.value.path, caught.value.offset) == (path(0, ".log"), 2)
    assert [shelf.files.content(each) for each in segments] == before


def test_a_torn_tail_behind_offsets_too_far_apart_is_cut_before_the_split() -> None:
    """The segment is split all the same: a start after a crash never fails for a torn tail."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 3, config=settings(segment_bytes=2000)))
    name = path(0, ".log")
    data = bytearray(files.content(name))
    # The highest byte of the last batch's base offset.
    data[len(data) // 3 * 2] = 0x01
    files.overwrite(name, bytes(data) + bytes(data[:30]))
    cuts: list[tuple[int, int]] = []
    log = open_at(
        files,
        config=settings(cleanup_policy="compact"),
        report=lambda cut: cuts.append((cut.position, cut.bytes_cut)),
    )
    assert values(log) == [b"value 0", b"value 1", b"value 2"]
    assert cuts == [(len(data), 30)]
