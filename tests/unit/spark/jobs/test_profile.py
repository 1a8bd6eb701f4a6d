"""A profile against exact answers, however the log was cut into ranges; and what its page says."""

import time
from itertools import pairwise
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.errors import CorruptionError
from tailrace.model import Codec, Offset, TopicPartition
from tailrace.records.builder import Record
from tailrace.spark.jobs.pages import profile_page
from tailrace.spark.jobs.profile import LogProfile, Profile, profile_item
from tailrace.spark.options import parse_options
from tailrace.spark.planning import OffsetRange
from tests.spark.directories import batch_of, write_segment
from tests.unit.records.batches import record_at
from tests.unit.spark.jobs.pages import Page

PARTITION = TopicPartition("t", 0)
DAY_MS = 86_400_000
NOW_MS = 1_700_000_000_000
HOSTILE = b"</text><script>alert('x')</script>"


def records() -> list[Record]:
    """A hundred records of a day, with ten keys; some without key, value, time or sense."""
    made = [
        record_at(
            offset,
            NOW_MS - DAY_MS + offset * 600_000,
            None if offset % 20 == 7 else b"key-%d" % (offset % 10),
            None if offset % 25 == 3 else b"v" * offset,
        )
        for offset in range(100)
    ]
    made[10] = made[10]._replace(timestamp=-1)
    made[50] = made[50]._replace(timestamp=NOW_MS - 2 * DAY_MS)
    made[60] = made[60]._replace(timestamp=NOW_MS + 5 * DAY_MS)
    return made


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A partition with `records` in batches of ten, by turns plain and compressed."""
    directory = tmp_path_factory.mktemp("data")
    made = records()
    content = b"".join(
        batch_of(made[first : first + 10], codec=(Codec.NONE, Codec.ZSTD)[first // 10 % 2])
        for first in range(0, 100, 10)
    )
    write_segment(directory, PARTITION, 0, content)
    return directory


def profiled(data: Path, *borders: int, **options: str) -> LogProfile:
    """The partition, cut at these offsets."""
    parsed = parse_options({"path": str(data), "subscribe": "t", **options})
    edges = [0, *sorted(borders), 100]
    ranges = [
        OffsetRange(partition=PARTITION, start=Offset(start), limit=Offset(limit), size=0)
        for start, limit in pairwise(edges)
        if start < limit
    ]
    whole = LogProfile()
    for each in profile_item(parsed, NOW_MS, ranges):
        whole.append(each)
    return whole


def told(found: LogProfile) -> dict[str, object]:
    """Everything that a profile says."""
    return {
        "counters": found.counters,
        "codecs": found.codecs,
        "keys": found.keys.count(),
        "hitters": found.hitters.top(100),
        "buckets": (found.times.width_ms, found.times.buckets()),
        "sizes": found.size_classes.tolist(),
        "times": (found.oldest, found.newest, found.first_timestamp, found.last_timestamp),
        "superseded": found.superseded,
    }


def test_counters_are_those_of_the_records(data: Path) -> None:
    """The counters equal a second count, record by record."""
    found, made = profiled(data), records()
    counters = found.counters
    sizes = [len(each.key or b"") + len(each.value or b"") for each in made]
    assert counters.records == 100
    assert counters.batches == 10
    assert counters.stored_bytes == (data / "t-0" / f"{0:020d}.log").stat().st_size
    assert counters.content_bytes == sum(sizes)
    assert counters.null_keys == sum(each.key is None for each in made) == 5
    assert counters.tombstones == sum(each.value is None and each.key is not None for each in made)
    assert counters.without_time == 1
    assert counters.in_future == 1
    # Number 50 is too old, and the one behind number 60 is older than that one.
    assert counters.out_of_order == 2
    assert found.superseded == 95 - 10
    assert [sum(sizes[n].bit_length() == c for n in range(100)) for c in range(33)] == (
        found.size_classes.tolist()
    )


def test_times_keys_and_codecs_are_those_of_the_records(data: Path) -> None:
    """A record without a time, or in the future, is in no bucket."""
    found, made = profiled(data), records()
    times = [each.timestamp for each in made if 0 <= each.timestamp <= NOW_MS + DAY_MS]
    assert sum(each.records for each in found.times.buckets()) == len(times) == 98
    assert (found.oldest, found.newest) == (NOW_MS - 2 * DAY_MS, NOW_MS + 5 * DAY_MS)
    assert {each.value: each.count_min for each in found.hitters.top(10)} == {
        b"key-%d" % number: 5 if number == 7 else 10 for number in range(10)
    }
    assert {name: (use.batches, use.records) for name, use in found.codecs.items()} == {
        "none": (5, 50), "zstd": (5, 50),
    }  # fmt: skip
    zstd = found.codecs["zstd"]
    assert zstd.stored_bytes < zstd.content_bytes


@given(borders=st.lists(st.integers(1, 99), max_size=6))
def test_a_profile_does_not_depend_on_the_cuts(data: Path, borders: list[int]) -> None:
    """Any division of the log into ranges gives the same profile, even inside a batch."""
    assert told(profiled(data, *borders)) == told(profiled(data))


def test_damage_is_an_error_with_its_place_or_is_counted(data: Path, tmp_path: Path) -> None:
    """The options choose between an error with the position and a count."""
    content = bytearray((data / "t-0" / f"{0:020d}.log").read_bytes())
    content[100] ^= 1
    path = write_segment(tmp_path, PARTITION, 0, bytes(content))
    with pytest.raises(CorruptionError, match="CRC-32C") as caught:
        profiled(tmp_path)
    assert str(path) in str(caught.value)
    report = {"onCorruption": "skip", "corruptionReport": str(tmp_path / "report")}
    found = profiled(tmp_path, **report)
    assert (found.counters.damaged, found.counters.records) == (1, 90)


def test_topics_are_their_partitions_together(data: Path) -> None:
    """Order between partitions means nothing, so it is not counted."""
    parts = {TopicPartition("t", number): profiled(data) for number in range(3)}
    profile = Profile(source="data", partitions=parts, seconds=1.0)
    topic = profile.topics()["t"]
    assert topic.counters.records == 300
    assert topic.counters.out_of_order == 6
    assert topic.keys.count() == 10


def test_the_page_has_the_facts_and_no_markup_of_keys(data: Path) -> None:
    """The page has the facts of the topic and of each partition, and escapes keys."""
    found = profiled(data)
    write = batch_of([record_at(0, int(time.time() * 1000), HOSTILE, b"v")])
    write_segment(data, TopicPartition("u", 0), 0, write)
    options = parse_options({"path": str(data), "subscribe": "u"})
    one = OffsetRange(partition=TopicPartition("u", 0), start=Offset(0), limit=Offset(1), size=0)
    [named] = profile_item(options, NOW_MS, [one])
    profile = Profile(
        source="data",
        partitions={PARTITION: found, TopicPartition("u", 0): named},
        seconds=1.0,
    )
    page = Page(profile_page(profile))
    assert "script" not in page.tags
    assert HOSTILE.decode()[:44] in page.text
    assert "85.0 %" in page.text
    assert "\\u" not in page.text
    assert "key-3" in page.text
    assert "zstd" in page.text
    assert "2023-11-12 22:13:20" in page.text


def test_the_page_of_nothing_is_a_page() -> None:
    """A topic without records has no charts over time, and no division by nothing."""
    profile = Profile(source="data", partitions={PARTITION: LogProfile()}, seconds=0.0)
    assert "t-0" in Page(profile_page(profile)).text
