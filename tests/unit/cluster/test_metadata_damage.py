"""Bytes of a metadata log and of a snapshot flipped, and lengths cut: what a start finds.

Every fourth, and each with `--every`.

The state is one that was: that of the end, or an earlier one with a sentence that says so. Or the
start is refused, and has changed nothing.
"""

from collections.abc import Iterator
from typing import NamedTuple

import pytest

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import MetadataImage
from tailrace.errors import CorruptionError, DirectoryError
from tailrace.protocol.metadata_records import BeginTransactionRecord
from tailrace.records import layout
from tailrace.records.batch import read_batches
from tailrace.testing import MemoryFiles
from tests.unit.cluster.metadata_logs import FOLDER, LEVEL, Node, setting, value_in


class Written(NamedTuple):
    """A disk, and the states that its cluster had, oldest first."""

    files: MemoryFiles
    history: tuple[MetadataImage, ...]


def written(snapshot_at: int | None) -> Written:
    """A log of some values, with a snapshot behind one of them."""
    node = Node()
    log = node.open()
    history = [log.image, log.append([LEVEL])]
    for value in range(4):
        history.append(log.append([setting(value, f"t{value % 2}"), setting(value)]))
        if value == snapshot_at:
            log.write_snapshot()
    log.close()
    return Written(node.files, tuple(history))


def damaged(data: bytes, step: int = 1) -> Iterator[tuple[str, bytes]]:
    """Contents with one bit flipped in a byte, and cut at its position."""
    for position in range(0, len(data), step):
        flipped = bytearray(data)
        flipped[position] ^= 1 << position % 8
        yield f"byte {position} flipped", bytes(flipped)
        yield f"cut at {position}", data[:position]


def is_whole(data: bytes) -> bool:
    """Whether a log ends between two batches: nothing tells that there were more."""
    reader = read_batches(memoryview(data))
    try:
        for _, batch in reader:
            batch.check()
    except CorruptionError:
        return False
    return reader.position == len(data)


def check(found: Written, path: str, data: bytes, earliest: int) -> str:
    """Start with other content of a file; returns what became of it.

    The state is one of the history from number `earliest` on, the next start agrees, and an older
    one is told, unless the file ends between two batches. A refused start has changed nothing.
    """
    files = found.files.crash(keep_unsynced=True)
    files.overwrite(path, data)
    before = files.state()
    node = Node(files)
    try:
        log = node.open()
    except DirectoryError:
        assert files.state() == before
        return "refused"
    image = log.image
    assert image in found.history[earliest:]
    assert image == found.history[-1] or node.told or is_whole(data)
    after = log.append([setting(77, "later")])
    log.close()
    assert Node(files.crash(keep_unsynced=True)).open().image == after
    return "as it was" if image == found.history[-1] else "earlier"


@pytest.mark.parametrize(
    ("snapshot_at", "part", "outcomes"),
    [
        (None, ".log", {"as it was", "earlier", "refused"}),
        (1, ".log", {"as it was", "earlier"}),
        (3, ".log", {"as it was"}),
        (1, ".checkpoint", {"as it was"}),
        (3, ".checkpoint", {"as it was"}),
    ],
)
def test_a_damaged_byte_leads_to_a_state_that_was(
    snapshot_at: int | None, part: str, outcomes: set[str], request: pytest.FixtureRequest
) -> None:
    """The snapshot's at least; what the log has is not lost to a damaged snapshot.

    Without a snapshot a log whose beginning is damaged, with sound batches behind it, is refused.
    """
    found = written(snapshot_at)
    [name] = [each for each in found.files.list(FOLDER) if each.endswith(part)]
    path = f"{FOLDER}/{name}"
    known = 0 if snapshot_at is None else snapshot_at + 2
    earliest = known if part == ".log" else len(found.history) - 1
    seen = set()
    step = 1 if request.config.getoption("--every") else 4
    for what, data in damaged(found.files.content(path), step):
        outcome = check(found, path, data, earliest)
        assert outcome in outcomes, what
        seen.add(outcome)
    assert seen == outcomes


def test_a_damaged_byte_of_the_only_snapshot_is_refused_or_costs_nothing() -> None:
    """A log that begins behind it proves no state without it."""
    found = written(1)
    files = found.files
    for each in files.list(FOLDER):
        if each.startswith(f"{0:020}."):
            files.remove(f"{FOLDER}/{each}")
    [name] = [each for each in files.list(FOLDER) if each.endswith(".checkpoint")]
    path = f"{FOLDER}/{name}"
    only = Written(files, found.history[:4])
    outcomes = {check(only, path, data, 3) for _, data in damaged(files.content(path))}
    assert outcomes <= {"as it was", "refused"}
    assert "refused" in outcomes


def test_a_transaction_that_is_open_behind_damage_is_gone() -> None:
    """A snapshot takes the place of the log, so that no later start waits for its end."""
    node = Node()
    log = node.open()
    log.append([LEVEL])
    log.append([setting(1)])
    log.write_snapshot()
    log.append([RecordToWrite(BeginTransactionRecord(), 0), setting(2)])
    log.close()
    node.damage(f"{0:020}.log", position=150)
    for value in (3, 4):
        log = node.open()
        assert value_in(log.image) == (1 if value == 3 else 3)
        log.append([setting(value)])
        log.close()
    node.damage(node.names(".checkpoint")[-1])
    with pytest.raises(DirectoryError):
        node.open()


def test_an_epoch_that_damage_made_negative_does_not_count() -> None:
    """No checksum covers it: the batch counts, and the snapshot has the epoch of those before."""
    node = Node()
    log = node.open()
    log.append([LEVEL])
    image, end_offset, epoch = log.append([setting(1)]), log.end_offset, log.epoch
    log.append([setting(2)])
    log.close()
    path = f"{FOLDER}/{0:020}.log"
    data = bytearray(node.files.content(path))
    *_, (position, _), _ = list(read_batches(memoryview(bytes(data))))
    data[position + layout.LEADER_EPOCH_POSITION] ^= 0x80
    node.files.overwrite(path, bytes(data[:-1]))
    log = node.open()
    assert log.image == image
    assert node.names(".checkpoint") == [f"{end_offset:020}-{epoch:010}.checkpoint"]
    assert log.epoch == epoch + 1
