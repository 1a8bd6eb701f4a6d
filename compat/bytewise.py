"""Partition folders held against each other, file by file and entry by entry.

Invariant: nothing is left out silently; a file that only one side has is a difference.
"""

import shutil
from collections.abc import Collection, Iterator, Mapping
from pathlib import Path
from struct import Struct

from compat.clients import ReadBack
from tailrace.model import ProducerId
from tailrace.records.batch import read_batches
from tailrace.runtime.files import DiskFiles
from tailrace.storage import names
from tailrace.storage.checkpoints import read_epoch_checkpoint
from tailrace.storage.snapshots import (
    KnownProducer,
    list_snapshots,
    read_snapshot,
    snapshot_path,
)

SKIPPED_SUFFIXES = (names.DELETED_SUFFIX, ".tmp")

FILE_KINDS: Mapping[str, tuple[str, ...]] = {
    "logs": (names.LOG_SUFFIX,),
    "offset indexes": (names.OFFSET_INDEX_SUFFIX,),
    "time indexes": (names.TIME_INDEX_SUFFIX,),
    "transaction indexes": (names.TRANSACTION_INDEX_SUFFIX,),
    "epoch checkpoints": (names.LEADER_EPOCHS,),
}
"""Endings of the files of a partition's folder, by the names that a report gives them."""

_ENTRIES = {
    names.OFFSET_INDEX_SUFFIX: Struct(">ii"),
    names.TIME_INDEX_SUFFIX: Struct(">qi"),
    names.TRANSACTION_INDEX_SUFFIX: Struct(">hqqqq"),
}


def copy_directory(source: Path, target: Path) -> Path:
    """A copy of a directory that no process has open; returns `target`."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target, ignore=shutil.ignore_patterns(".lock"))
    return target


def partition_folders(logs: Path, topics: Collection[str]) -> list[str]:
    """Names of the partition folders of these topics in a log directory."""
    found = (names.parse_partition_directory_name(each.name) for each in logs.iterdir())
    return sorted(str(each) for each in found if each is not None and each.topic in topics)


def flip_byte(path: Path) -> None:
    """Change the byte in the middle of a file."""
    data = bytearray(path.read_bytes())
    data[len(data) // 2] ^= 0x55
    path.write_bytes(data)


def flip_batch(path: Path) -> None:
    """Change the last byte of the batch in the middle of a segment.

    Its CRC covers that byte. It does not cover the base offset before it, and Kafka does not start
    if a changed one is too far from that of the segment ("Split operation is only permitted for
    segments with overflow").
    """
    data = bytearray(path.read_bytes())
    end = 0
    for _, batch in read_batches(memoryview(bytes(data))):
        end += batch.size
        if end > len(data) // 2:
            break
    data[end - 1] ^= 0x55
    path.write_bytes(data)


def differences(
    before: Path, after: Path, *, topics: Collection[str], suffixes: tuple[str, ...] = ("",)
) -> list[str]:
    """Tell the differences between the folders of these topics in two log directories.

    Only files whose names end in one of `suffixes` are compared.
    """
    found: list[str] = []
    for folder in partition_folders(before, topics):
        found += folder_differences(before / folder, after / folder, suffixes=suffixes)
    return found


def snapshot_differences(before: Path, after: Path, *, topics: Collection[str]) -> list[str]:
    """Tell the differences between the producer snapshots of two log directories.

    The contents are compared, because Kafka writes its producers in the order of a hash map. A
    snapshot at or below the first segment may be missing from the second directory, since each side
    drops it when it opens the log.
    """
    found: list[str] = []
    for folder in partition_folders(before, topics):
        first, second = (_snapshots(each / folder) for each in (before, after))
        log_start = min(int(each.stem) for each in (before / folder).glob("*.log"))
        for offset in sorted(first.keys() | second.keys()):
            if first.get(offset) == second.get(offset) or (
                offset <= log_start and offset not in second
            ):
                continue
            found.append(
                f"{folder}/{offset}.snapshot: {first.get(offset)} and {second.get(offset)}"
            )
    return found


def epoch_differences(before: Path, after: Path, *, topics: Collection[str]) -> Iterator[str]:
    """The leader epochs of `before` that `after` does not have, or not as its first ones."""
    for folder in partition_folders(before, topics):
        first, second = (
            read_epoch_checkpoint(DiskFiles(), str(logs / folder / names.LEADER_EPOCHS))
            for logs in (before, after)
        )
        if second[: len(first)] != first:
            yield f"{folder}: {first} and then {second}"


def folder_differences(
    before: Path, after: Path, *, suffixes: tuple[str, ...] = ("",)
) -> Iterator[str]:
    """Tell the differences between two folders of one partition."""
    first, second = (_contents(each, suffixes) for each in (before, after))
    for name in sorted(first.keys() | second.keys()):
        place = f"{before.name}/{name}"
        if name not in second:
            yield f"{place} is only in the first ({len(first[name])} bytes)"
        elif name not in first:
            yield f"{place} is only in the second ({len(second[name])} bytes)"
        elif first[name] != second[name]:
            yield f"{place}: {_first_difference(name, first[name], second[name])}"


def read_differences(first: ReadBack, second: ReadBack) -> list[str]:
    """Tell the differences between the records that two readers got."""
    found = []
    if first.end != second.end:
        found.append(f"it ends at {first.end} for one and at {second.end} for the other")
    if len(first.records) != len(second.records):
        counts = f"{len(first.records)} records and {len(second.records)}"
        found.append(counts)
    for mine, theirs in zip(first.records, second.records, strict=False):
        if mine != theirs:
            found.append(f"{mine} where the other has {theirs}")
            break
    return found


def _snapshots(folder: Path) -> dict[int, dict[ProducerId, KnownProducer]]:
    files = DiskFiles()
    return {
        offset: read_snapshot(files, snapshot_path(str(folder), offset))
        for offset in list_snapshots(files, str(folder))
    }


def _contents(folder: Path, suffixes: tuple[str, ...]) -> dict[str, bytes]:
    return {
        each.name: each.read_bytes()
        for each in folder.iterdir()
        if each.name.endswith(suffixes) and not each.name.endswith(SKIPPED_SUFFIXES)
    }


def _first_difference(name: str, first: bytes, second: bytes) -> str:
    layout = _ENTRIES.get(Path(name).suffix)
    sizes = f"{len(first)} and {len(second)} bytes"
    if layout is None:
        if Path(name).suffix not in {names.LOG_SUFFIX, names.SNAPSHOT_SUFFIX}:
            return f"{first!r} and {second!r}"
        pairs = enumerate(zip(first, second, strict=False))
        at = next((number for number, (a, b) in pairs if a != b), min(len(first), len(second)))
        return f"{sizes}, the first difference at byte {at}"
    entries = [
        list(layout.iter_unpack(data[: len(data) // layout.size * layout.size]))
        for data in (first, second)
    ]
    missing = [entry for entry in entries[0] if entry not in entries[1]]
    added = [entry for entry in entries[1] if entry not in entries[0]]
    return f"{sizes}; only in the first {missing[:3]}, only in the second {added[:3]}"
