"""Decide when the active segment is closed and a new one is rolled. No I/O.

    word       the segment is closed before an append because
    "size"     it would grow past segment.bytes
    "time"     its records would span more than segment.ms, less the segment's jitter
    "index"    one of its indexes has no room for another entry
    "offsets"  the new last offset is 2^31 or more above its base offset

The rule "time" compares record timestamps: the incoming one with that of the first append. The
broker's clock counts only if the first records have no timestamp. So a topic without appends keeps
its active segment, however old, as in Kafka.

The rules "size" and "time" never close an empty segment.
"""

import random
from typing import Literal, NamedTuple

from tailrace.storage.config import LogConfig

RollReason = Literal["size", "time", "index", "offsets"]

RELATIVE_OFFSET_MAX = 2**31 - 1
"""Indexes hold offsets as distances from the base offset, in 32 bits with a sign."""


class RollFacts(NamedTuple):
    """The active segment's facts for the rules that decide about a roll."""

    size_bytes: int
    base_offset: int
    first_timestamp: int | None
    """Largest timestamp of the first append; None or negative when its records have none."""
    created_ms: int
    has_index_room: bool
    """Whether both indexes have room for another entry."""
    jitter_ms: int
    """By how much `segment.ms` is shortened for this segment; see `pick_jitter_ms`."""


def roll_reason(
    facts: RollFacts,
    *,
    incoming_bytes: int,
    incoming_last_offset: int,
    incoming_max_timestamp: int,
    config: LogConfig,
    now_ms: int,
) -> RollReason | None:
    """Return the reason to roll a new segment before the append, or None if there is none."""
    size_bytes, base_offset, first_timestamp, created_ms, has_index_room, jitter_ms = facts
    if size_bytes:
        if size_bytes > config.segment_bytes - incoming_bytes:
            return "size"
        if first_timestamp is not None and first_timestamp >= 0:
            waited_ms = incoming_max_timestamp - first_timestamp
        else:
            waited_ms = now_ms - created_ms
        if waited_ms > config.roll_ms - jitter_ms:
            return "time"
    if not has_index_room:
        return "index"
    if not 0 <= incoming_last_offset - base_offset <= RELATIVE_OFFSET_MAX:
        return "offsets"
    return None


class SegmentRoom(NamedTuple):
    """The largest append for which `roll_reason` finds no reason, until an index is full.

    It answers for most appends, in a third of the time.
    """

    config: LogConfig
    """The settings that it follows from."""
    size_bytes: int
    """Bytes of the segment, with the append."""
    timestamp: int
    offset: int


def room_or_none(facts: RollFacts, *, config: LogConfig) -> SegmentRoom | None:
    """The room of a segment; None if the rules need the broker's clock, or it has no room."""
    if not facts.size_bytes or not facts.has_index_room:
        return None
    if facts.first_timestamp is None or facts.first_timestamp < 0:
        return None
    return SegmentRoom(
        config,
        config.segment_bytes,
        facts.first_timestamp + config.roll_ms - facts.jitter_ms,
        facts.base_offset + RELATIVE_OFFSET_MAX,
    )


def pick_jitter_ms(config: LogConfig, chance: random.Random) -> int:
    """Return the milliseconds by which to shorten `segment.ms` for a new segment.

    It is random, below `segment.ms` and `segment.jitter.ms`, so that segments that began together
    do not roll and flush together.
    """
    if not config.segment_jitter_ms:
        return 0
    return chance.randrange(min(config.segment_jitter_ms, config.segment_ms))
