"""Compaction by work items: byte for byte the broker's cleaner, and whole after any crash."""

import contextlib
import os
import pickle
import random
import tracemalloc
from collections.abc import Callable, Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import TypeVar

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import assume, given
from hypothesis import settings as example_settings

from tailrace.errors import ConfigError, CorruptionError, DirectoryError, FatalError
from tailrace.model import Codec, TopicPartition
from tailrace.offline.repair_plan import Journal, write_journal
from tailrace.records.builder import BatchBuilder, records_of
from tailrace.records.control import build_end_marker
from tailrace.runtime.files import DiskFiles, Files
from tailrace.spark.jobs.compact import CompactionSummary, choose_configs, compact_with
from tailrace.spark.jobs.compact_tasks import (
    BLOCK_BYTES,
    TAGS,
    find_superseded,
    offsets_between,
    write_entries,
    write_offsets,
)
from tailrace.storage.cleaner.passes import RUN_BYTES
from tailrace.storage.directory_logs import DELETE_DELAY_MS
from tailrace.storage.log import Log
from tailrace.testing import DiskFault, MemoryFiles, ProcessKilledError
from tests.examples import examples
from tests.properties.test_cleaning import OPERATIONS, played
from tests.steps import Steps
from tests.unit.storage.builders import NOW, append, batch, records, settings
from tests.unit.storage.cleaner.houses import ONE, THREE, TWO, House, keyed
from tests.unit.storage.cleaner.shelves import (
    FOLDER,
    LATER,
    MAP_BYTES,
    Pair,
    Shelf,
    clean_by_tasks,
    read_back,
)
from tests.unit.storage.cleaner.test_swap import FAR, overflowed

Item = TypeVar("Item")
Result = TypeVar("Result")

SETTINGS = {
    "cleanup.policy": "compact",
    "internal.segment.bytes": "600",
    "segment.index.bytes": "120",
    "index.interval.bytes": "100",
    "min.cleanable.dirty.ratio": "0",
}
CHECKPOINT = "data/cleaner-offset-checkpoint"
CONFIG = settings(cleanup_policy="compact", min_cleanable_dirty_ratio=0)


def run_here(
    items: Sequence[Item], function: Callable[[Item], Result]
) -> Iterator[tuple[Item, Result]]:
    """Runs each item by itself, as pickled as a task would get it."""
    for item in items:
        yield item, function(pickle.loads(pickle.dumps(item)))


def compact_here(
    files: Files,
    *,
    topics: Sequence[str] | None = None,
    map_bytes: int = 1 << 20,
    now_ms: int = NOW,
    **changed: str,
) -> CompactionSummary:
    """The job on this thread, over the directory of a house that was left."""
    given_settings = SETTINGS | {name.replace("_", "."): value for name, value in changed.items()}
    return compact_with(
        run_here,
        files,
        "data",
        topics=topics,
        settings=given_settings,
        map_bytes=map_bytes,
        now_ms=now_ms,
    )


def content(files: MemoryFiles, path: str = "data") -> dict[str, bytes]:
    """Every file of a directory that would be served after a start."""
    found: dict[str, bytes] = {}
    for name in files.list(path):
        inner = f"{path}/{name}"
        if files.is_directory(inner):
            found |= content(files, inner)
        elif not name.endswith((".deleted", ".lock")):
            found[inner] = files.content(inner)
    return found


def filled() -> House:
    """Three partitions with all that makes a difference to a cleaner, cleaned once in part."""
    house = House()
    one, two = house.open(ONE, CONFIG), house.open(TWO, CONFIG)
    keyed(one, "abcabcabcabcabc" * 2)
    keyed(two, "xyzzy" * 6)
    while house.clean():
        pass
    keyed(one, "defabc" * 4)
    append(one, batch(b"1", b"2", key=b"a", codec=Codec.ZSTD))
    append(two, batch(b"v", key=b"x", producer_id=9, producer_epoch=0, base_sequence=0))
    transact(two, 7, b"xyz", is_commit=True)
    transact(two, 8, b"xy", is_commit=False)
    transact(two, 7, b"q", is_commit=False, sequence=3)
    keyed(two, "xwxw" * 5)
    house.open(THREE, CONFIG)
    return house


def transact(
    log: Log, producer_id: int, keys: bytes, *, is_commit: bool, sequence: int = 0
) -> None:
    """A transaction of a record for each key, with its marker."""
    for number, key in enumerate(keys):
        data = batch(
            b"of a transaction", key=bytes([key]), producer_id=producer_id, producer_epoch=0,
            base_sequence=sequence + number, is_transactional=True,
        )  # fmt: skip
        follow(log, data)
    follow(log, build_end_marker(
        producer_id, 0, is_commit=is_commit, coordinator_epoch=0, timestamp=NOW
    ))  # fmt: skip


def follow(log: Log, data: bytearray) -> None:
    """Append a batch as a follower does."""
    data[:8] = log.end_offset.to_bytes(8, "big")
    log.append_as_follower(memoryview(data), now_ms=NOW)
    log.advance_high_watermark(log.end_offset)


def left(house: House) -> MemoryFiles:
    """The disk after an orderly stop."""
    house.logs.close()
    return house.files.crash(keep_unsynced=True)


def cleaned_by_a_broker(files: MemoryFiles, *, now_ms: int = NOW) -> MemoryFiles:
    """A copy of the disk, after a broker has cleaned all of it and stopped."""
    house = House(files.crash(keep_unsynced=True))
    house.clock.time_ms = now_ms
    for partition in house.found:
        house.open(partition, CONFIG)
    while house.clean():
        pass
    return left(house)


def test_a_directory_comes_out_as_from_a_broker() -> None:
    """Segments, indexes, snapshots and checkpoints, byte for byte; and tombstones in their time."""
    files = left(filled())
    for now_ms in (NOW, LATER):
        expected = cleaned_by_a_broker(files, now_ms=now_ms)
        summary = compact_here(files, now_ms=now_ms)
        assert content(files) == content(expected)
        again = House(files)
        for log in [again.open(partition, CONFIG) for partition in (ONE, TWO, THREE)][:2]:
            append(log, batch(key=b"a"))
            append(log, bytearray(build_tombstone()))
            keyed(log, "klmn" * 4)
        files = left(again)
        assert {each.partition for each in summary.partitions} == {ONE, TWO}


def build_tombstone() -> bytearray:
    """A batch that deletes the key b."""
    builder = BatchBuilder()
    builder.append(b"b", None, timestamp=NOW)
    return bytearray(builder.build())


def test_the_summary_is_that_of_the_files() -> None:
    """Bytes before and after are those of the segments that were cleaned, as are the records."""
    house = House()
    log = house.open(ONE, CONFIG)
    keyed(log, "ab" * 20)
    active = log.segments.active
    before = log.size - active.size
    count = len(records(log)) - len(list(active.log.batches()))
    base = active.base_offset
    files = left(house)
    (found,) = compact_here(files).partitions
    again = House(files).open(ONE, CONFIG)
    assert (found.bytes_before, found.records_before) == (before, count)
    assert found.bytes_after == again.size - again.segments.active.size < before
    assert found.records_after == len([each for each in records(again) if each.offset < base])
    assert found.cleaned_to == base


def test_a_second_job_finds_nothing_to_do() -> None:
    """A clean log stays as it is, byte for byte."""
    files = left(filled())
    compact_here(files)
    before = content(files)
    assert compact_here(files).partitions == ()
    assert content(files) == before


@example_settings(max_examples=examples(150), deadline=None)
@given(OPERATIONS)
def test_any_log_comes_out_as_from_one_map(script: list[tuple[str, list, int]]) -> None:  # type: ignore[type-arg]
    """The second of two rounds meets tombstones and markers whose time has come."""
    shelves = [played(script).shelf for _ in range(2)]
    assume(len(shelves[0].segments) > 1)
    middle = shelves[0].segments[len(shelves[0].segments) // 2].base_offset
    for dirty, now_ms in ((0, NOW), (middle, LATER)):
        by_map, by_tasks = shelves
        ended = by_map.clean(dirty, now_ms=now_ms, map_bytes=MAP_BYTES)
        done = clean_by_tasks(
            by_tasks, dirty, limit=None, now_ms=now_ms, producers=by_tasks.producers
        )
        if by_map.segments[-1].base_offset > dirty:
            assert ended.end == done.end
        assert content(by_map.files, FOLDER) == content(by_tasks.files, FOLDER)


def large(seed: int, *, codec: Codec = Codec.NONE) -> Shelf:
    """Segments of several runs, with more keys than a map of 256 KiB has room for."""
    shelf = Shelf(segment_bytes=10 * RUN_BYTES, index_interval_bytes=4096, segment_index_bytes=8000)
    chance = random.Random(seed)
    for _ in range(4):
        for number in range(500):
            pairs: list[Pair] = [
                (b"%d" % chance.randrange(20_000), chance.choice([None, chance.randbytes(150)]))
                for _ in range(20)
            ]
            if chance.random() < 0.5:
                shelf.append(*pairs, codec=codec)
                continue
            shelf.append(*pairs, codec=codec, producer_id=number % 5, is_transactional=True)
            if number % 3:
                chance.choice([shelf.commit, shelf.abort])(number % 5)
        shelf.roll()
    return shelf


@pytest.mark.parametrize("first_dirty", [0, 17_000])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_keys_that_fit_no_one_map_come_out_as_from_one_that_has_room(
    first_dirty: int, codec: Codec
) -> None:
    """Pieces smaller than segments, cut in the middle of transactions, are compared as well."""
    by_map, by_tasks = large(1, codec=codec), large(1, codec=codec)
    by_map.clean(first_dirty, map_bytes=1 << 22)
    done = clean_by_tasks(
        by_tasks,
        first_dirty,
        limit=None,
        now_ms=NOW,
        producers=by_tasks.producers,
        map_bytes=1 << 18,
    )
    assert done.statistics.records_written < done.statistics.records_read
    assert content(by_map.files, FOLDER) == content(by_tasks.files, FOLDER)


def pieces(seed: int, count: int, *, rows: int, keys: int) -> list[pa.RecordBatch]:
    """Entries of pieces of a log: few tags, so that different keys share them, in their order."""
    random_ = random.Random(seed)
    found = []
    for number in range(count):
        chosen = sorted(random_.sample(range(keys), rows), key=lambda key: key % 40)
        offsets = random_.sample(range(number * rows, (number + 1) * rows), rows)
        found.append(
            pa.RecordBatch.from_pydict(
                {
                    "tag": [key % 40 * (TAGS // 40) for key in chosen],
                    "entry": [b"key %d" % key for key in chosen],
                    "offset": offsets,
                },
                schema=pa.schema(
                    [("tag", pa.int64()), ("entry", pa.binary()), ("offset", pa.int64())]
                ),
            )
        )
    return found


@pytest.mark.parametrize("block_bytes", [1, 50, 400, BLOCK_BYTES])
def test_ranges_of_keys_are_compared_whatever_blocks_they_are_in(block_bytes: int) -> None:
    """A tag may end in a block that began with others, and fill several; a piece may be empty."""
    files = MemoryFiles()
    written = [*pieces(1, 4, rows=60, keys=90), *pieces(1, 1, rows=0, keys=1)]
    paths = [f"{number}.keys" for number in range(len(written))]
    for path, entries in zip(paths, written, strict=True):
        write_entries(files, path, entries, block_bytes=block_bytes)
    newest: dict[bytes, int] = {}
    rows = [row for entries in written for row in entries.to_pylist()]
    for row in rows:
        newest[row["entry"]] = max(newest.get(row["entry"], -1), row["offset"])
    for bounds in ([0, TAGS], [0, TAGS // 40, TAGS // 8, TAGS // 8 + 1, TAGS]):
        found = [
            offset
            for tags in pairwise(bounds)
            for offset in find_superseded(files, paths, tags=tags, first_dirty=0).tolist()
        ]
        assert sorted(found) == sorted(
            row["offset"] for row in rows if row["offset"] < newest[row["entry"]]
        )


def test_a_task_reads_its_range_of_the_keys_alone(tmp_path: Path) -> None:
    """Its memory is that of the range: all keys of a log need not fit an executor."""
    files, paths = DiskFiles(), [f"{tmp_path}/{number}.keys" for number in range(4)]
    for path, entries in zip(paths, pieces(2, 4, rows=40_000, keys=80_000), strict=True):
        write_entries(files, path, entries)
    whole = sum(os.path.getsize(path) for path in paths)
    tracemalloc.start()
    try:
        found = find_superseded(files, paths, tags=(0, TAGS // 40), first_dirty=0)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert len(found) > 1000
    assert peak < whole / 4


def test_a_group_reads_its_superseded_offsets_alone() -> None:
    """Each gets the offsets of all files from one on and below another, in rising order."""
    files = MemoryFiles()
    for number in range(3):
        write_offsets(files, f"{number}.superseded", np.arange(number, 300, 3))
    write_offsets(files, "none.superseded", np.empty(0, np.int64))
    paths = [*(f"{number}.superseded" for number in range(3)), "none.superseded"]
    for start, limit in ((0, 300), (10, 11), (17, 60), (299, 500), (300, 400), (5, 5)):
        found = offsets_between(files, paths, start_offset=start, limit_offset=limit)
        assert found.tolist() == list(range(start, min(limit, 300)))


def test_a_map_that_is_too_small_for_a_run_is_told() -> None:
    """Which size would do is the caller's choice; nothing has changed."""
    shelf = large(2)
    before = content(shelf.files, FOLDER)
    with pytest.raises(FatalError, match="give a larger one"):
        clean_by_tasks(shelf, 0, limit=None, now_ms=NOW, producers={}, map_bytes=1 << 12)
    assert content(shelf.files, FOLDER) == before


def test_a_topic_is_chosen_by_name() -> None:
    """The others are not touched; one that is not compacted is refused, as is one not there."""
    files = left(filled())
    before = {path: data for path, data in content(files).items() if "/flights-0/" in path}
    (found,) = compact_here(files, topics=[TWO.topic]).partitions
    assert found.partition == TWO
    assert before.items() <= content(files).items()
    with pytest.raises(ConfigError, match="'nobody' is not in data"):
        compact_here(files, topics=["nobody"])
    with pytest.raises(ConfigError, match="'flights' is not compacted"):
        compact_here(files, topics=["flights"], cleanup_policy="delete")


def test_the_folder_of_one_partition_is_refused() -> None:
    """Its checkpoint and its lock are beside it."""
    with pytest.raises(DirectoryError, match="give data, and the topic"):
        choose_configs(left(filled()), f"data/{ONE}", topics=None, settings=SETTINGS)


def test_a_directory_in_use_is_refused() -> None:
    """A broker has its lock."""
    house = filled()
    with pytest.raises(DirectoryError, match="in use"):
        compact_here(house.files)


def test_a_directory_whose_repair_was_interrupted_is_refused() -> None:
    """Its logs may be half rewritten; the repair comes first."""
    files = left(filled())
    write_journal(files, "data", Journal(was_clean=True, partitions={ONE: 0}))
    with pytest.raises(DirectoryError, match="tailrace log repair"):
        compact_here(files)


def test_a_damaged_log_stops_the_job_before_anything_has_changed() -> None:
    """The logs that are sound are as they were too, and the directory as after its last stop."""
    files = left(filled())
    logs = {path: data for path, data in content(files).items() if path.endswith(".log")}
    path = next(path for path, data in logs.items() if f"{TWO}/" in path and data)
    data = bytearray(logs[path])
    data[-1] ^= 1
    files.overwrite(path, bytes(data))
    before = content(files)
    with pytest.raises(CorruptionError, match=TWO.topic):
        compact_here(files)
    assert content(files) == before


def test_a_segment_with_offsets_too_far_apart_is_split_on_the_way() -> None:
    """Kafka before 1.0.2 left such segments; the job splits it and then does all that is to do."""
    shelf = overflowed()
    for segment in shelf.segments:
        segment.finish()
    shelf.files.open("data/.kafka_cleanshutdown", create=True)
    (found,) = compact_here(shelf.files, internal_segment_bytes="100000").partitions
    assert found.cleaned_to == shelf.segments[-1].base_offset
    offsets = [record.offset for record in read_back(shelf.files)]
    assert offsets == [1, 2 * FAR + 5]


def test_the_directory_does_not_look_stopped_in_order_while_the_job_is_at_work() -> None:
    """After a kill a start has to look closer; in the end the mark is back as it was."""
    files = left(filled())
    mark = files.content("data/.kafka_cleanshutdown")
    seen = []

    def watched(
        items: Sequence[Item], function: Callable[[Item], Result]
    ) -> Iterator[tuple[Item, Result]]:
        seen.append(files.exists("data/.kafka_cleanshutdown"))
        return run_here(items, function)

    compact_with(
        watched, files, "data", topics=None, settings=SETTINGS, map_bytes=1 << 20, now_ms=NOW
    )
    assert seen == [False, False, False]
    assert files.content("data/.kafka_cleanshutdown") == mark


def test_progress_ends_when_all_bytes_were_read_twice() -> None:
    """It rises group by group, and what there is to read is known from the beginning."""
    files = left(filled())
    told: list[tuple[int, int]] = []
    summary = compact_with(
        run_here, files, "data", topics=None, settings=SETTINGS, map_bytes=1 << 20, now_ms=NOW,
        progress=lambda done, total: told.append((done, total)),
    )  # fmt: skip
    assert told == sorted(told)
    assert {total for _, total in told} == {2 * summary.bytes_before}
    assert told[-1][0] == 2 * summary.bytes_before


def test_an_open_transaction_holds_the_job_back() -> None:
    """No record at or behind its first record is compacted."""
    house = House()
    log = house.open(ONE, CONFIG)
    keyed(log, "ab" * 10)
    undecided = log.end_offset
    data = batch(
        b"t", key=b"a", producer_id=7, producer_epoch=0, base_sequence=0, is_transactional=True
    )
    follow(log, data)
    keyed(log, "ab" * 10)
    (found,) = compact_here(left(house)).partitions
    assert found.cleaned_to <= undecided


def crashes(files: MemoryFiles, seed: int) -> Iterator[MemoryFiles]:
    """The disk after a kill, after a loss of power, and after one that left a part."""
    yield files.crash(keep_unsynced=True)
    yield files.crash()
    yield files.crash(chance=random.Random(seed))


def newest(files: MemoryFiles, partition: TopicPartition) -> dict[bytes | None, bytes | None]:
    """Return the last record of each key for a consumer, once a broker has tidied up."""
    house = House(files)
    log = house.open(partition, CONFIG)
    house.home.removals.remove_due(house.clock.now_ms() + DELETE_DELAY_MS)
    open_names = [name for each in ("", f"/{partition}") for name in files.list(f"data{each}")]
    assert not [name for name in open_names if name.endswith((".swap", ".cleaned", "-delete"))]
    aborted = [entry for each in log.segments for entry in each.transactions.entries()]
    return {
        record.key: record.value
        for each in log.batches(0)
        for record in records_of(each)
        if not each.is_control
        and not any(
            each.is_transactional
            and each.producer_id == entry.producer_id
            and entry.first_offset <= record.offset < entry.last_offset
            for entry in aborted
        )
    }


def two_groups() -> MemoryFiles:
    """A partition whose small segments become several larger ones, all of it on the device."""
    house = House()
    log = house.open(ONE, settings(cleanup_policy="compact", segment_bytes=250))
    keyed(log, "abcdabcd")
    transact(log, 7, b"ab", is_commit=False)
    keyed(log, "aefghiefgja")
    return left(house)


def test_a_crash_at_any_operation_leaves_what_consumers_need(steps: Steps) -> None:
    """A broker that starts then has the old answers, and another job ends as the first would."""
    before = two_groups()
    expected = newest(before.crash(), ONE)
    files = before.crash()
    compact_here(files)
    assert len(files.list(f"data/{ONE}")) < len(before.list(f"data/{ONE}"))
    checkpoint = files.content(CHECKPOINT)
    operations = list(files.operations)
    exchange = next(n for n, (name, path) in enumerate(operations) if ".cleaned" in path)
    stops = [*range(0, exchange, 9), *range(exchange, len(operations) + 1)]
    for stop in steps(stops):
        files = before.crash()
        files.stop_at = stop
        with contextlib.suppress(ProcessKilledError):
            compact_here(files)
        for disk in crashes(files, stop):
            assert newest(disk.crash(keep_unsynced=True), ONE) == expected, f"stopped at {stop}"
            compact_here(disk)
            assert disk.content(CHECKPOINT) == checkpoint, f"stopped at {stop}"
            assert newest(disk, ONE) == expected, f"stopped at {stop}"


@pytest.mark.parametrize("operation", ["rename", "write", "sync"])
def test_a_device_that_refuses_leaves_the_job_to_be_run_again(operation: str) -> None:
    """Whichever call it is; the scratch directory goes, and a later job does the rest."""
    before = two_groups()
    finished = cleaned_by_a_broker(before).content(CHECKPOINT)
    expected = newest(before.crash(), ONE)
    for after in range(40):
        files = before.crash()
        files.faults.append(DiskFault(operation=operation, after=after, error=28))
        with contextlib.suppress(DirectoryError):
            compact_here(files)
        files.faults.clear()
        assert not [name for name in files.list("data") if name.endswith("-delete")]
        compact_here(files)
        assert files.content(CHECKPOINT) == finished
        assert newest(files, ONE) == expected
