"""Record batch of format v2 (magic 2), drawn byte by byte.

All integers are big endian.

    position  size  field
     0        8     base offset             offset of record 0; set by the leader
     8        4     batch length            bytes after this field: size of the batch - 12
    12        4     partition leader epoch  -1 unknown; set by the leader
    16        1     magic                   2
    17        4     crc                     CRC-32C of the bytes from position 21 to the end
    21        2     attributes              see below
    23        4     last offset delta       offset of the last record - base offset
    27        8     base timestamp          ms; that of the first record, or the delete horizon
    35        8     max timestamp           ms; largest of the records, or the append time
    43        8     producer id             -1 none
    51        2     producer epoch          -1 none
    53        4     base sequence           -1 none
    57        4     record count
    61        ..    records                 concatenated; compressed as one stream if a codec is set

    attributes   bit 15 .. 7   6        5        4              3               2 1 0
                 unused        horizon  control  transactional  timestamp type  codec

A record, before compression. Numbers are zigzag varints, except for the attributes:

    length | attributes (1 byte, 0) | timestamp delta | offset delta
           | key size, key | value size, value | header count, headers
    header:  key size, key (UTF-8) | value size, value         size -1 is null, but not for this key

Older formats share the first 17 bytes as a frame: offset (8), size (4), and a magic of 0 or 1 at
position 16. That is why a reader needs 17 bytes before it can tell what it looks at.

Invariant: the base offset and the leader epoch precede the CRC's range, so that a leader
stamps them in place; every other byte is covered by the CRC, except the frame's length, which
decides what the CRC covers, and the magic, which decides the format. KIP-98 has the reasons.
"""

from struct import Struct
from typing import Final

HEADER: Final = Struct(">qiiBIhiqqqhii")
"""The 61 bytes in front of the records, in the order of the drawing."""

FRAME: Final = Struct(">qiiB")
"""The fields that all formats share: offset, length, (in v2) leader epoch, magic."""

BASE_OFFSET: Final = Struct(">q")
LEADER_EPOCH: Final = Struct(">i")
CRC: Final = Struct(">I")
LENGTH: Final = Struct(">i")

BASE_OFFSET_POSITION: Final = 0
LENGTH_POSITION: Final = 8
LEADER_EPOCH_POSITION: Final = 12
MAGIC_POSITION: Final = 16
CRC_POSITION: Final = 17
ATTRIBUTES_POSITION: Final = 21
LAST_OFFSET_DELTA_POSITION: Final = 23
BASE_TIMESTAMP_POSITION: Final = 27
MAX_TIMESTAMP_POSITION: Final = 35
PRODUCER_ID_POSITION: Final = 43
PRODUCER_EPOCH_POSITION: Final = 51
BASE_SEQUENCE_POSITION: Final = 53
RECORD_COUNT_POSITION: Final = 57
RECORDS_POSITION: Final = 61

LOG_OVERHEAD: Final = 12
"""Offset and length: what a batch's length does not count."""

FRAME_SIZE: Final = 17
"""Bytes that a reader needs before it knows the format."""

HEADER_SIZE: Final = 61

LENGTH_MIN: Final = 14
"""Smallest length in any format: a v0 message without key and value."""

MAGIC: Final = 2

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

SEQUENCE_MAX: Final = 2**31 - 1
"""After this sequence number comes 0 again."""

# Positions are written out because kernels and readers use them one by one; these hold them against
# the formats of `Struct`, at no cost but once at import.
assert HEADER.size == HEADER_SIZE == RECORDS_POSITION
assert FRAME.size == FRAME_SIZE == CRC_POSITION == MAGIC_POSITION + 1
assert LENGTH_POSITION + LENGTH.size == LOG_OVERHEAD == LEADER_EPOCH_POSITION
assert CRC_POSITION + CRC.size == ATTRIBUTES_POSITION
assert RECORD_COUNT_POSITION + 4 == HEADER_SIZE
