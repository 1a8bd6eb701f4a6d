"""Fuzz targets of the offline tools: the journal of a repair, records of groups, a damaged log.

The walkers get a folder in which one log file is the input. They may find damage, and may refuse;
the records that they show are those of the log.
"""

import json
from collections.abc import Callable

from tailrace.errors import CorruptionError, DirectoryError, FatalError, UnsupportedCodecError
from tailrace.kernels.showing import Form
from tailrace.model import OFFSETS_TOPIC, IsolationLevel, TopicPartition
from tailrace.offline import cat
from tailrace.offline.commits import decode_group_record
from tailrace.offline.explain import explain_partition
from tailrace.offline.findings import Severity
from tailrace.offline.repair_plan import JOURNAL_FILE, read_journal, write_journal
from tailrace.offline.salvage import salvage_records
from tailrace.offline.scan import scan_partition
from tailrace.offline.show import ShownRecord, to_hex, to_json, to_text
from tailrace.offline.verify import verify
from tailrace.reading.directory import find_partitions, list_segments
from tailrace.reading.located import OnSkip, Skipped
from tailrace.storage.walk import walk_batches, walk_headers
from tailrace.testing import MemoryFiles
from tests.fuzz.engine import FuzzTarget
from tests.fuzz.mending import is_mended, with_crcs
from tests.fuzz.records_targets import seed_batch, seed_legacy
from tests.unit.records.batches import record_at
from tests.unit.storage.builders import (
    FOLDER,
    NOW,
    PARTITION,
    append,
    batch,
    open_at,
    path,
    settings,
    stop_cleanly,
)
from tests.unit.storage.transactional import TransactionalProducer

_OFFSETS = TopicPartition(OFFSETS_TOPIC, 0)


def read_note(data: bytes) -> object:
    """Read the journal of a repair; what is taken can be written and read back."""
    files = MemoryFiles()
    files.make_directory("data")
    files.open(f"data/{JOURNAL_FILE}", create=True)
    files.overwrite(f"data/{JOURNAL_FILE}", data)
    found = read_journal(files, "data")
    assert found is not None
    write_journal(files, "data", found)
    assert read_journal(files, "data") == found
    return found


def decode_group(data: bytes) -> object:
    """Decode a record of `__consumer_offsets`, and show it in all three ways."""
    size = data[0] if data else 0
    key, value = data[1 : 1 + size], data[1 + size :]
    record = record_at(offset=3, timestamp=NOW, key=key, value=value or None)
    for is_control in (False, True):
        found = ShownRecord(_OFFSETS, record, is_control)
        assert json.loads(to_json(found))["offset"] == 3
        assert to_text(found).isprintable()
        assert to_hex(found).isprintable()
    return decode_group_record(key, value or None)


def _made() -> MemoryFiles:
    """Two segments, with a transaction that is aborted and one that is open."""
    files = MemoryFiles()
    log = open_at(files, config=settings(segment_bytes=700))
    producer = TransactionalProducer(log, 9)
    producer.append(2)
    append(log, batch(b"plain", b"more"))
    producer.abort()
    append(log, batch(b"x" * 200))
    log.roll()
    append(log, batch(b"y", timestamps=[NOW + 5]))
    producer.append(1)
    append(log, batch(b"z" * 50))
    stop_cleanly(log)
    return files


_FILES = _made()
_FIRST, _LAST = (each.path for each in list_segments(_FILES, FOLDER)[0])


def _damaged(data: bytes, name: str) -> MemoryFiles:
    files = _FILES.crash(keep_unsynced=True)
    files.overwrite(name, bytes(with_crcs(data)) if is_mended(data, of=2) else data)
    return files


def walk(data: bytes) -> int:
    """Walk batches and headers, whatever the window; both see the same places."""
    files = MemoryFiles()
    files.make_directory(FOLDER)
    files.open(path(0, ".log"), create=True)
    files.overwrite(path(0, ".log"), data)
    seen = []
    for walker, window in ((walk_batches, 64), (walk_batches, 1 << 20), (walk_headers, 80)):
        file = files.open(path(0, ".log"), read_only=True)
        places: list[tuple[int, int, int]] = []
        error: CorruptionError | None = None
        try:
            for at, each in walker(
                file, path(0, ".log"), start=0, limit=len(data), window_bytes=window
            ):
                places.append((at, each.size, each.base_offset))
        except CorruptionError as refused:
            error = refused
        assert error is None or (error.path == path(0, ".log") and error.position is not None)
        seen.append((places, error))
    small, large, headers = seen
    # A small window finds a wrong checksum of what is larger than itself, and ends there.
    assert small[0] == large[0][: len(small[0])]
    assert small[1] is not None or small == large
    assert headers[0] == large[0]
    if large[1] is not None:
        raise large[1]
    return len(large[0])


def check(name: str) -> Callable[[bytes], object]:
    """A target that verifies, scans and explains the folder, and says all that was found."""

    def run(data: bytes) -> int:
        files = _damaged(data, name)
        findings = list(verify(files, find_partitions(files, FOLDER)))
        for each in findings:
            assert each.path.startswith("data")
            assert each.sentence
            if each.severity is Severity.ERROR and each.path == name:
                assert each.position is not None or each.offset is not None
        is_changed = files.content(name) != _FILES.content(name)
        scan_partition(files, "data", PARTITION, folder=FOLDER)
        explain_partition(
            files,
            "data",
            PARTITION,
            folder=FOLDER,
            config=settings(cleanup_policy="compact"),
            now_ms=NOW,
        )
        return len(findings) * is_changed

    return run


def show(name: str) -> Callable[[bytes], object]:
    """A target that shows the records of the folder, by offset, by time and committed ones only."""

    def run(data: bytes) -> int:
        files = _damaged(data, name)
        total = 0
        for choice in (
            cat.Choice(),
            cat.Choice(from_offset=4, isolation=IsolationLevel.READ_COMMITTED),
            cat.Choice(from_time_ms=NOW + 1, limit=3),
        ):
            pages = cat.show_records(files, {PARTITION: FOLDER}, choice, form=Form.JSON)
            offsets = [json.loads(line)["offset"] for line in b"".join(pages).splitlines()]
            text = b"".join(cat.show_records(files, {PARTITION: FOLDER}, choice, form=Form.TEXT))
            assert all(line.isprintable() for line in text.decode().split("\n"))
            # Inside of a batch whose checksum holds, they are as its writer has counted them.
            assert offsets == sorted(offsets) or is_mended(data, of=2)
            total += len(offsets)
        return total

    return run


def skip(name: str) -> Callable[[bytes], object]:
    """A target that shows the folder and steps over damage: whatever it shows was written.

    Salvage takes any damage too, and leaves the folder as it is.
    """
    written = {content for _, content in _shown(_FILES)}

    def run(data: bytes) -> int:
        files = _FILES.crash(keep_unsynced=True)
        files.overwrite(name, data)
        told: list[Skipped] = []
        found = _shown(files, told.append)
        offsets = [offset for offset, _ in found]
        assert offsets == sorted(set(offsets))
        assert written.issuperset(content for _, content in found)
        salvage_records(files, {PARTITION: FOLDER}, to="data/salvaged.jsonl")
        assert files.content(name) == data
        return len(found)

    return run


def _shown(files: MemoryFiles, on_skip: OnSkip | None = None) -> list[tuple[int, str]]:
    """Offsets, which no checksum covers, and all else of the records, which one does."""
    wanted = {PARTITION: FOLDER}
    pages = cat.show_records(files, wanted, cat.Choice(), form=Form.JSON, on_skip=on_skip)
    lines = [json.loads(line) for line in b"".join(pages).splitlines()]
    return [(line.pop("offset"), json.dumps(line)) for line in lines]


_REFUSALS = (CorruptionError, DirectoryError, UnsupportedCodecError)
_COMMIT = b"\x00\x01\x00\x05group\x00\x06planes\x00\x00\x00\x01"
_GROUP = b"\x00\x02\x00\x05group"
_VALUES = (
    b"\x00\x01" + bytes(8) + b"\x00\x04meta" + bytes(16),
    b"\x00\x03" + bytes(12) + b"\x00\x00" + bytes(8),
    b"\x00\x04" + bytes(12) + b"\x05meta" + bytes(9),
    b"",
)

TARGETS: tuple[FuzzTarget, ...] = (
    FuzzTarget(
        name="journal of a repair",
        seeds=(b'{"version": 1, "was_clean": true, "partitions": {"flights-0": 170}}\n',),
        run=read_note,
        refusals=(FatalError,),
    ),
    FuzzTarget(
        name="records of groups",
        seeds=(
            *(bytes([len(_COMMIT)]) + _COMMIT + value for value in _VALUES),
            bytes([len(_GROUP)]) + _GROUP + b"\x00\x03\x00\x08consumer" + bytes(24),
            bytes([len(_GROUP)]) + _GROUP + b"\x00\x04\x09consumer" + bytes(16),
        ),
        run=decode_group,
        refusals=(),
    ),
    FuzzTarget(
        name="walk a log",
        seeds=(
            _FILES.content(_FIRST),
            seed_legacy(1, 1) + seed_batch(3) + seed_legacy(0, 0),  # type: ignore[arg-type]
        ),
        run=walk,
        refusals=(CorruptionError,),
    ),
    *(
        FuzzTarget(
            name=f"{kind} {name.rpartition('/')[2].lstrip('0')}",
            seeds=(_FILES.content(name),),
            run=make(name),
            refusals=_REFUSALS,
            share=0.25,
        )
        for kind, make in (("verify", check), ("cat", show), ("skip damage of", skip))
        for name in (_FIRST, _LAST)
    ),
)
