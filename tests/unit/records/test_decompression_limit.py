"""A batch that decompresses to more than is allowed is refused for that, never as damage."""

from collections.abc import Iterator

import pytest

import tailrace
from tailrace.errors import CorruptionError, RecordTooLargeError
from tailrace.model import Codec
from tailrace.offline.findings import Finding, Rule, Severity
from tailrace.offline.repair_plan import plan_repair
from tailrace.offline.verify import verify
from tailrace.protocol.errors import ErrorCode, code_for
from tailrace.reading.damage import OnDamage
from tailrace.reading.directory import find_partitions
from tailrace.records.builder import BatchBuilder
from tailrace.records.codecs import (
    ENVIRONMENT,
    OUTPUT_SIZE_MAX,
    SETTING,
    DecompressedTooLargeError,
    compress,
    decompress,
    limit_decompression,
)
from tailrace.storage.log import Log
from tailrace.testing import MemoryFiles, Outside, virtual_runtime
from tests.unit.broker.brokers import connect, create_topic, produce, running
from tests.unit.storage.builders import NOW, append, open_at, records, stop_cleanly
from tests.unit.storage.cleaner.shelves import Shelf

LIMIT = 1024 * 1024
LARGE = bytes(2 * LIMIT)
CODECS = pytest.mark.parametrize("codec", [Codec.GZIP, Codec.SNAPPY, Codec.LZ4, Codec.ZSTD])


@pytest.fixture
def limited() -> Iterator[None]:
    """A process that decompresses a mebibyte at most."""
    limit_decompression(LIMIT)
    yield
    limit_decompression(OUTPUT_SIZE_MAX)


def large() -> bytearray:
    """A sound batch of few bytes whose records are more than the limit."""
    builder = BatchBuilder(codec=Codec.ZSTD)
    builder.append(b"k", LARGE, timestamp=NOW)
    return bytearray(builder.build())


def log_with_large() -> tuple[MemoryFiles, Log]:
    """A log of two batches, the first of which is larger than the limit."""
    files = MemoryFiles()
    log = open_at(files)
    limit_decompression(OUTPUT_SIZE_MAX)
    append(log, large())
    limit_decompression(LIMIT)
    return files, log


@CODECS
def test_more_than_the_limit_is_no_corruption(codec: Codec) -> None:
    """The error names the setting, its value, and how much there is at least."""
    payload = memoryview(compress(codec, LARGE))
    with pytest.raises(DecompressedTooLargeError) as caught:
        decompress(codec, payload, LIMIT)
    assert not isinstance(caught.value, CorruptionError)
    assert caught.value.size > LIMIT
    for part in (SETTING, ENVIRONMENT, str(LIMIT), str(caught.value.size)):
        assert part in str(caught.value)


def test_a_program_may_read_more_than_the_default() -> None:
    """A batch of 130 MiB is read after `tailrace.limit_decompression`, and not before."""
    size = OUTPUT_SIZE_MAX + 2 * LIMIT
    payload = memoryview(compress(Codec.ZSTD, bytes(size)))
    with pytest.raises(DecompressedTooLargeError, match=r"tailrace\.limit_decompression\(\)"):
        decompress(Codec.ZSTD, payload)
    tailrace.limit_decompression(2 * OUTPUT_SIZE_MAX)
    try:
        assert len(decompress(Codec.ZSTD, payload)) == size
    finally:
        tailrace.limit_decompression()
    for bad in (0, 1 << 31):
        with pytest.raises(ValueError, match="it has to be from 1 to 2147483647"):
            tailrace.limit_decompression(bad)


def test_a_producer_is_told_that_the_batch_is_too_large() -> None:
    """MESSAGE_TOO_LARGE: none sends it again as it is, and clients that can split it do."""
    error: RecordTooLargeError = DecompressedTooLargeError(Codec.ZSTD, claimed=None, limit=1)
    assert code_for(error) is ErrorCode.MESSAGE_TOO_LARGE


def test_the_brokers_setting_counts() -> None:
    """A larger batch is refused and not appended; a smaller one is accepted."""

    async def scenario(outside: Outside) -> None:
        async with running(outside, {SETTING: str(LIMIT)}) as broker:
            peer = connect(outside, broker)
            await create_topic(peer, "t")
            refused = await produce(peer, "t", bytes(large()))
            assert refused.error_code == ErrorCode.MESSAGE_TOO_LARGE
            assert SETTING in (refused.error_message or "")
            builder = BatchBuilder(codec=Codec.ZSTD)
            builder.append(b"k", bytes(LIMIT // 2), timestamp=NOW)
            assert (await produce(peer, "t", bytes(builder.build()))).base_offset == 0

    with virtual_runtime() as outside:
        outside.run(scenario(outside))
    limit_decompression(OUTPUT_SIZE_MAX)


def findings(files: MemoryFiles) -> list[Finding]:
    """Return all findings of a verification."""
    return list(verify(files, find_partitions(files, "data")))


@pytest.mark.usefixtures("limited")
def test_verify_says_that_it_has_not_checked() -> None:
    """A warning with the way to have it checked, and no error."""
    files, log = log_with_large()
    stop_cleanly(log)
    (found,) = findings(files)
    assert (found.severity, found.rule) == (Severity.WARNING, Rule.LIMIT)
    assert "not checked" in found.sentence
    assert ENVIRONMENT in found.sentence
    limit_decompression(OUTPUT_SIZE_MAX)
    assert not findings(files)


@pytest.mark.usefixtures("limited")
def test_repair_drops_nothing() -> None:
    """A batch that was not checked stays, also where something else is repaired."""
    files, log = log_with_large()
    stop_cleanly(log)
    assert plan_repair(files, find_partitions(files, "data"), OnDamage.CUT).is_empty


@pytest.mark.usefixtures("limited")
def test_a_reader_says_the_same_sentence() -> None:
    """It ends with the limit, not with damage."""
    _, log = log_with_large()
    with pytest.raises(DecompressedTooLargeError, match=ENVIRONMENT):
        records(log)


@pytest.mark.usefixtures("limited")
def test_a_start_after_a_kill_keeps_the_batch() -> None:
    """Recovery looks at checksums; what cannot be decompressed here is no torn tail."""
    files, log = log_with_large()
    end = log.end_offset
    after = open_at(files.crash(keep_unsynced=True), is_clean=False)
    assert after.end_offset == end


@pytest.mark.usefixtures("limited")
def test_the_cleaner_copies_it_as_it_is() -> None:
    """Later tombstones stay too, since the batch may have a value that they delete."""
    limit_decompression(OUTPUT_SIZE_MAX)
    shelf = Shelf()
    shelf.append((b"1", LARGE), codec=Codec.ZSTD)
    shelf.append_keys(2, 2)
    shelf.append_keys(2)
    shelf.roll()
    before = bytes(shelf.batches()[0].view)
    limit_decompression(LIMIT)
    shelf.clean()
    assert bytes(shelf.batches()[0].view) == before
    assert [batch.base_offset for batch in shelf.batches()][:2] == [0, 3]
