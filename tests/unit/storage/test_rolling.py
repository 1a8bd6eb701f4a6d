"""When the active segment is closed."""

import random

import pytest

from tailrace.storage.config import LogConfig, log_config
from tailrace.storage.rolling import (
    RollFacts,
    RollReason,
    pick_jitter_ms,
    roll_reason,
    room_or_none,
)

NOW = 1_700_000_000_000
CONFIG = log_config({"internal.segment.bytes": "1000", "segment.ms": "5000"})


def reason(
    config: LogConfig = CONFIG,
    *,
    size_bytes: int = 500,
    first_timestamp: int | None = NOW,
    created_ms: int = NOW,
    has_index_room: bool = True,
    jitter_ms: int = 0,
    **incoming: int,
) -> RollReason | None:
    """The answer for a half full segment from offset 100 on, except for what is given."""
    facts = RollFacts(
        size_bytes=size_bytes,
        base_offset=100,
        first_timestamp=first_timestamp,
        created_ms=created_ms,
        has_index_room=has_index_room,
        jitter_ms=jitter_ms,
    )
    return roll_reason(
        facts,
        incoming_bytes=incoming.get("size_bytes_more", 100),
        incoming_last_offset=incoming.get("last_offset", 120),
        incoming_max_timestamp=incoming.get("timestamp", NOW),
        config=config,
        now_ms=incoming.get("now_ms", NOW),
    )


@pytest.mark.parametrize("seed", range(5))
def test_an_append_that_fits_into_the_room_of_a_segment_needs_no_roll(seed: int) -> None:
    """An append is within the room exactly when the rules find no reason."""
    chance = random.Random(seed)
    fits = []
    for _ in range(500):
        facts = RollFacts(
            size_bytes=chance.randrange(990),
            base_offset=100,
            first_timestamp=chance.choice([None, -1, *[NOW + chance.randrange(9000)] * 8]),
            created_ms=NOW,
            has_index_room=chance.random() < 0.9,
            jitter_ms=chance.randrange(1000),
        )
        room = room_or_none(facts, config=CONFIG)
        if room is None:
            continue
        size, offset = chance.choice([10, 20, 990]), chance.choice([100, 2**31 + 99, 2**31 + 100])
        timestamp = NOW + chance.randrange(-9000, 15_000)
        found = roll_reason(
            facts,
            incoming_bytes=size,
            incoming_last_offset=offset,
            incoming_max_timestamp=timestamp,
            config=CONFIG,
            now_ms=NOW + chance.randrange(10**6),
        )
        fits.append(
            facts.size_bytes + size <= room.size_bytes
            and timestamp <= room.timestamp
            and offset <= room.offset
        )
        assert fits[-1] == (found is None)
    assert {True, False} <= set(fits)


@pytest.mark.parametrize(("size_bytes_more", "expected"), [(500, None), (501, "size")])
def test_a_segment_is_filled_to_the_byte(size_bytes_more: int, expected: RollReason | None) -> None:
    """Records that fit exactly still go in."""
    assert reason(size_bytes_more=size_bytes_more) == expected


@pytest.mark.parametrize(("waited_ms", "expected"), [(5000, None), (5001, "time")])
def test_records_of_a_segment_span_segment_ms_at_most(
    waited_ms: int, expected: RollReason | None
) -> None:
    """The incoming timestamp is compared with that of the first append."""
    assert reason(timestamp=NOW + waited_ms) == expected


def test_the_clock_does_not_roll_a_segment_whose_records_have_timestamps() -> None:
    """A late record goes into the old segment, however much later it comes."""
    assert reason(now_ms=NOW + 1_000_000) is None


@pytest.mark.parametrize("first_timestamp", [None, -1])
@pytest.mark.parametrize(("waited_ms", "expected"), [(5000, None), (5001, "time")])
def test_without_timestamps_the_clock_since_creation_counts(
    first_timestamp: int | None, waited_ms: int, expected: RollReason | None
) -> None:
    """Records of format v0 age by the broker's clock, whatever timestamp comes in."""
    now_ms = NOW + waited_ms
    found = reason(first_timestamp=first_timestamp, timestamp=NOW + 10**9, now_ms=now_ms)
    assert found == expected


def test_an_older_record_does_not_roll() -> None:
    """Time that runs backwards is a negative wait."""
    assert reason(timestamp=NOW - 10**9) is None


@pytest.mark.parametrize(("waited_ms", "expected"), [(4000, None), (4001, "time")])
def test_jitter_shortens_the_time(waited_ms: int, expected: RollReason | None) -> None:
    """A segment with a jitter of one second rolls one second sooner."""
    assert reason(jitter_ms=1000, timestamp=NOW + waited_ms) == expected


def test_a_compacted_log_rolls_after_its_compaction_lag() -> None:
    """Only closed segments are compacted, so none may stay open longer than the lag allows."""
    compacted = log_config(
        {"segment.ms": "5000", "cleanup.policy": "compact", "max.compaction.lag.ms": "300"}
    )
    assert reason(compacted, timestamp=NOW + 301) == "time"
    assert reason(compacted, timestamp=NOW + 300) is None


def test_an_empty_segment_is_never_too_old_or_too_full() -> None:
    """Its successor would be the same."""
    assert (
        reason(size_bytes=0, first_timestamp=None, size_bytes_more=2000, now_ms=NOW + 10**9) is None
    )


def test_a_full_index_rolls() -> None:
    """No batch is appended that an index could not point at."""
    assert reason(has_index_room=False) == "index"


@pytest.mark.parametrize("size_bytes", [0, 500])
@pytest.mark.parametrize(
    ("last_offset", "expected"),
    [(100, None), (100 + 2**31 - 1, None), (100 + 2**31, "offsets"), (99, "offsets")],
)
def test_the_last_offset_must_be_31_bits_from_the_base(
    size_bytes: int, last_offset: int, expected: RollReason | None
) -> None:
    """Indexes hold offsets relative to the base; an empty segment has one too."""
    assert reason(size_bytes=size_bytes, last_offset=last_offset) == expected


def test_no_jitter_without_the_setting() -> None:
    """The default is none, and chance is not asked."""
    assert pick_jitter_ms(CONFIG, random.Random(1)) == 0


@pytest.mark.parametrize(("jitter_ms", "segment_ms", "limit_ms"), [(4, 5000, 4), (10**12, 3, 3)])
def test_jitter_is_below_the_setting_and_segment_ms(
    jitter_ms: int, segment_ms: int, limit_ms: int
) -> None:
    """Every value from zero to the smaller of the two comes up, and none else."""
    config = log_config({"segment.jitter.ms": str(jitter_ms), "segment.ms": str(segment_ms)})
    chance = random.Random(1)
    assert {pick_jitter_ms(config, chance) for _ in range(200)} == set(range(limit_ms))
