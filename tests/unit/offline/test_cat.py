"""Which records `cat` finds, and how much of the log it reads for it."""

import json

import pytest

from tailrace.errors import CorruptionError
from tailrace.kernels.showing import Form
from tailrace.model import AppendOrigin, IsolationLevel, LeaderEpoch
from tailrace.offline.cat import Choice, show_records
from tailrace.offline.explain import explain_partition
from tailrace.testing import MemoryFiles
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    filled,
    flip,
    open_at,
    path,
    settings,
    stop_cleanly,
)
from tests.unit.storage.producer_builders import ABORT, COMMIT, marker
from tests.unit.storage.transactional import TransactionalProducer

COMMITTED = IsolationLevel.READ_COMMITTED


def offsets(files: MemoryFiles, **choice: object) -> list[int]:
    """Offsets of the records chosen."""
    wanted = Choice(**choice)  # type: ignore[arg-type]
    shown = b"".join(show_records(files, {PARTITION: FOLDER}, wanted, form=Form.JSON))
    return [json.loads(line)["offset"] for line in shown.splitlines()]


def a_log() -> MemoryFiles:
    """20 batches of one record in segments of five; offset n has timestamp NOW + n."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 20, config=settings(segment_bytes=400)))
    return files


def test_what_lies_before_a_time_is_not_read() -> None:
    """Damage in segments that the time index passes over is not met, nor damage behind the end."""
    files = a_log()
    for base in (0, 5, 15):
        flip(files, path(base, ".log"), 70)
    assert offsets(files, from_time_ms=NOW + 10, to_time_ms=NOW + 14) == [10, 11, 12, 13]
    with pytest.raises(CorruptionError):
        offsets(files, from_time_ms=NOW + 5, to_time_ms=NOW + 14)


@pytest.mark.parametrize("suffix", [".timeindex", ".index"])
def test_missing_indexes_cost_time_and_no_record(suffix: str) -> None:
    """Everything is looked through then."""
    files = a_log()
    for base in (0, 5, 10, 15):
        files.remove(path(base, suffix))
    assert offsets(files, from_time_ms=NOW + 7, to_time_ms=NOW + 9) == [7, 8]


def test_a_time_index_that_is_short_hides_no_record() -> None:
    """Records after its last entry are read, in closed segments too."""
    files = a_log()
    for base in (0, 5, 10, 15):
        files.overwrite(path(base, ".timeindex"), files.content(path(base, ".timeindex"))[:12])
    assert offsets(files, from_time_ms=NOW + 3) == list(range(3, 20))


def test_younger_records_before_older_ones_are_found() -> None:
    """Timestamps are the producer's and may fall; the first as young as the end ends it."""
    files = MemoryFiles()
    log = open_at(files)
    for timestamp in (5, 3, 9, 4, 8, 2):
        append(log, batch(b"v", timestamps=[NOW + timestamp]))
    stop_cleanly(log)
    assert offsets(files, from_time_ms=NOW + 4) == [0, 2, 3, 4]
    assert offsets(files, to_time_ms=NOW + 9) == [0, 1]


def test_only_committed_records_are_shown_on_request() -> None:
    """No aborted ones, no markers, and nothing from the first open transaction on."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=250))

    def send(producer_id: int, sequence: int) -> None:
        append(log, batch(b"v", producer_id=producer_id, producer_epoch=0,
                          base_sequence=sequence, is_transactional=True))  # fmt: skip

    def end(producer_id: int, kind: object) -> None:
        data = bytearray(marker(kind, producer_id=producer_id).view)  # type: ignore[arg-type]
        log.append(
            memoryview(data),
            leader_epoch=LeaderEpoch(0),
            now_ms=NOW,
            origin=AppendOrigin.COORDINATOR,
        )

    send(1, 0)
    send(2, 0)
    append(log, batch(b"plain"))
    end(1, ABORT)
    send(1, 1)
    end(2, COMMIT)
    end(1, COMMIT)
    send(2, 1)
    append(log, batch(b"plain"))
    stop_cleanly(log)
    assert offsets(files) == list(range(9))
    assert offsets(files, isolation=COMMITTED) == [1, 2, 4]
    assert offsets(files, isolation=COMMITTED, from_offset=2, limit=1) == [2]


def test_a_snapshot_beyond_the_end_of_the_log_decides_no_transaction() -> None:
    """The marker was lost with the tail, so the transaction is open, as it is for a broker."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=100_000))
    producer = TransactionalProducer(log, 7)
    append(log, batch(b"plain"))
    producer.append(2)
    size = log.segments.active.size
    producer.abort()
    stop_cleanly(log)
    files.overwrite(path(0, ".log"), files.content(path(0, ".log"))[:size])
    files.remove(path(0, ".txnindex"))
    assert offsets(files, isolation=COMMITTED) == [0]
    told = explain_partition(files, "data", PARTITION, folder=FOLDER, config=settings(), now_ms=NOW)
    assert told.last_stable_offset == 1


def test_a_key_is_matched_byte_by_byte() -> None:
    """A key matches by its bytes, also if it is no valid text."""
    files = MemoryFiles()
    log = open_at(files)
    for key in (b"\xff\0", b"k", None):
        append(log, batch(b"v", key=key))
    assert offsets(files, key=b"\xff\0") == [0]
    assert offsets(files, key=b"k") == [1]


def test_a_damaged_length_in_the_last_segment_is_told_with_what_is_before_it() -> None:
    """It reaches beyond the file, as an append in progress does; sound batches behind it tell."""
    files = MemoryFiles()
    stop_cleanly(filled(files, 4, config=settings(index_interval_bytes=4096)))
    flip(files, path(0, ".log"), len(files.content(path(0, ".log"))) // 4 * 2 + 8)
    pages: list[bytes] = []
    with pytest.raises(CorruptionError) as caught:
        pages.extend(show_records(files, {PARTITION: FOLDER}, Choice(), form=Form.JSON))
    assert [json.loads(line)["offset"] for line in b"".join(pages).splitlines()] == [0, 1]
    assert (caught.value.path, caught.value.offset) == (path(0, ".log"), 2)
