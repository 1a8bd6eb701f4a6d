"""The map of keys: exact, bounded, and honest about being full."""

import struct

import pytest

from tailrace.model import Offset
from tailrace.records.batch import Batch
from tailrace.records.checks import CorruptRecordError
from tailrace.storage.cleaner.key_map import SIZE_BYTES_MIN, KeyMap
from tailrace.storage.cleaner.passes import Run
from tests.naive import NaiveRecord, write_record
from tests.unit.records.batches import batch_with
from tests.unit.storage.cleaner.shelves import Shelf


def batch_of(*keys: bytes | None) -> Batch:
    """A batch at offset 500 with these keys."""
    rows = [NaiveRecord(0, place, key, b"v") for place, key in enumerate(keys)]
    return batch_with(b"".join(map(write_record, rows)), len(rows))


def run_of(*batches: Batch, latest_offset: int = 0) -> Run:
    """A run of these batches, of which what lies behind an offset stays."""
    run = Run()
    for batch in batches:
        run.add(batch, latest_offset=latest_offset)
        run.next_offset = batch.next_offset
    return run


def put(keys: KeyMap, *batches: Batch, start_offset: int = 0) -> bool:
    """Whether a map has room for all keys of some batches."""
    return keys.put(run_of(*batches), start_offset=start_offset)


def kept(keys: KeyMap, *wanted: bytes | None) -> list[int]:
    """Offsets of a batch's records that stay."""
    run = run_of(batch_of(*wanted), latest_offset=keys.latest_offset)
    keys.choose(run)
    return [500 + place for place, stays in enumerate(run.keeps) if stays]


def test_the_map_has_the_last_offset_of_every_key_in_the_range() -> None:
    """Keys in the range have their last offset, and keys outside of it are not found."""
    shelf = Shelf()
    for start in (0, 100, 200, 300):
        for key in range(start, start + 100):
            shelf.append_keys(key)
        shelf.roll()
    for first, limit in ((0, 100), (100, 300), (300, 400)):
        cleaning = shelf.round(first, limit=limit)
        assert cleaning.map_keys() == limit
        assert cleaning.statistics().map_records_read == limit - first
        assert cleaning._map.key_count == limit - first
        cleaning._map.skip_to(10**6)
        # The older record of a mapped key goes, that of any other key stays.
        inside, outside = b"%d" % first, b"%d" % (limit + 1)
        batch = batch_of(inside, outside)
        batch.base_offset = Offset(-5)
        run = run_of(batch, latest_offset=10**6)
        cleaning._map.choose(run)
        assert list(run.keeps) == [0, 1]


def test_offsets_far_apart_are_mapped() -> None:
    """A hole of millions of offsets, over a segment's end, costs nothing."""
    shelf = Shelf()
    shelf.append_keys(0)
    shelf.roll(7206178)
    shelf.append_keys(1)
    shelf.roll()
    cleaning = shelf.round()
    assert cleaning.map_keys() == 7206179
    assert cleaning._map.key_count == 2
    assert cleaning._map.latest_offset == 7206178


def test_a_full_map_stops_within_a_segment() -> None:
    """Records before the first key without room are mapped, and none after it."""
    shelf = Shelf()
    for key in range(5):
        shelf.append_keys(key)
    shelf.roll()
    cleaning = shelf.round(2, map_bytes=96)
    assert cleaning.map_keys() == 4
    assert cleaning._map.key_count == 2
    assert cleaning._map.latest_offset == 3
    assert cleaning.statistics().map_load == 1


def test_a_map_of_the_smallest_size_has_room_for_one_key() -> None:
    """The smallest map takes one key and refuses the second."""
    keys = KeyMap(SIZE_BYTES_MIN)
    assert put(keys, batch_of(b"a", b"a"))
    assert not put(keys, batch_of(b"a", b"b"))
    assert keys.latest_offset == 501
    assert keys.key_count == 1


def tags(keys: KeyMap) -> list[int]:
    """The part of each key's hash that is in its slot."""
    return [word >> 32 for word in keys.slots[::2] if word]


COLLIDING = [struct.pack("<II", number << 16, 1800 - number << 16) for number in range(1800)]
"""Keys that have one hash where the first number of the secret is 1."""


def test_keys_with_one_hash_are_two_keys() -> None:
    """In a crowded map where all keys have the same hash, none is confused with another."""
    keys = KeyMap(1 << 16, hash_secret=(1, 1))
    assert put(keys, batch_of(*COLLIDING))
    assert len(set(tags(keys))) == 1
    assert keys.key_count == 1800
    assert keys.load > 0.8
    others = [key + b"x" for key in COLLIDING]
    assert kept(keys, *others) == list(range(500, 2300))
    assert kept(keys, *reversed(COLLIDING)) == list(range(500 + 900, 2300))


def test_keys_that_collide_in_one_map_do_not_in_the_next() -> None:
    """Nobody can choose keys that have one hash, because each map has a secret of its own."""
    found = []
    for _ in range(2):
        keys = KeyMap(1 << 16)
        assert put(keys, batch_of(*COLLIDING))
        found.append(tags(keys))
        # 1,800 of 2^31: two that are equal come once in a thousand maps.
        assert len(set(found[-1])) > 1790
    assert set(found[0]) != set(found[1])


def test_an_empty_map_has_the_secret_that_it_had() -> None:
    """Keys are found in a map that was emptied as in a new one with its secret."""
    keys = KeyMap(1 << 16, hash_secret=(5, 7))
    assert put(keys, batch_of(b"a", b"b"))
    before = tags(keys)
    keys.clear()
    assert put(keys, batch_of(b"a", b"b"))
    assert tags(keys) == before


@pytest.mark.parametrize("size", [0, 1, 3, 4, 5, 254, 255, 256, 300, 70_000])
def test_keys_of_every_size_are_compared_whole(size: int) -> None:
    """A key is the same only with every byte; the empty one is a key too."""
    keys = KeyMap(1 << 20)
    assert put(keys, batch_of(b"k" * size, b"other", b"k" * size))
    assert kept(keys, b"k" * size, b"k" * (size + 1)) == [501]
    if size:
        assert kept(keys, b"k" * (size - 1) + b"x") == [500]


def test_the_larger_offset_of_a_key_counts() -> None:
    """The largest offset of a key is kept, in whatever order the records come."""
    keys = KeyMap(1 << 12)
    late = batch_of(b"a")
    late.base_offset = Offset(900)
    assert put(keys, late)
    assert put(keys, batch_of(b"a"))
    assert kept(keys, b"a") == []


def test_records_before_the_range_are_not_mapped() -> None:
    """A round that begins inside of a batch leaves out what was cleaned before."""
    keys = KeyMap(1 << 12)
    assert put(keys, batch_of(b"a", b"b"), start_offset=501)
    assert keys.key_count == 1


def test_a_cleared_map_knows_nothing() -> None:
    """Its memory serves the next round."""
    keys = KeyMap(3 << 20)
    assert put(keys, batch_of(b"a", b"a"))
    keys.clear()
    assert (keys.key_count, keys.latest_offset, keys.load, keys.unmapped) == (0, -1, 0, 0)
    keys.skip_to(1000)
    assert kept(keys, b"a", b"a") == [500, 501]


def test_damaged_records_are_refused_by_both_passes() -> None:
    """The error names the batch, and nothing is decided."""
    good = write_record(NaiveRecord(0, 0, b"a", b"v"))
    broken = batch_with(good + b"\x10" + b"\xff" * 8, 2)
    keys = KeyMap(1 << 12)
    with pytest.raises(CorruptRecordError, match="record 1 of 2"):
        put(keys, broken)
    with pytest.raises(CorruptRecordError, match="record 1 of 2"):
        keys.choose(run_of(broken))
