"""`RangeChecksums`: the checksum of any range is that of its bytes."""

import random
import zlib

import crc32c
import pytest

from tailrace.records.range_checksums import BLOCK_BYTES, Checksum, RangeChecksums

DATA = random.Random(7).randbytes(9 * BLOCK_BYTES + 333)


@pytest.mark.parametrize("checksum", [zlib.crc32, crc32c.crc32c])
def test_the_checksum_of_any_range_is_that_of_its_bytes(checksum: Checksum) -> None:
    """Ranges within a block, over a border, of whole blocks, and empty ones."""
    chance = random.Random(8)
    ranges = RangeChecksums(lambda at, size: DATA[at : at + size], checksum, start=100)
    places = [100, 101, 100 + BLOCK_BYTES, 100 + 3 * BLOCK_BYTES, len(DATA) - 1, len(DATA)]
    places += [chance.randrange(100, len(DATA)) for _ in range(30)]
    for first in places:
        for limit in places:
            if first <= limit:
                expected = checksum(memoryview(DATA)[first:limit], 0)
                assert ranges.checksum(first, limit) == expected
