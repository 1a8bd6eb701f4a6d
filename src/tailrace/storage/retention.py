"""Which segments go, and why the others are still there: decisions about facts, without I/O.

    oldest                                               active
    [ 0 .. 99 ][ 100 .. 199 ][ 200 .. 299 ][ 300 .. 399 ][ 400 .. ]
     log start  size          time          stays: too young
     is 100     over limit    too old

Three rules are asked one after the other, each of the segments that the ones before have left, from
the oldest on until it says no: what lies below the log start offset goes; then what the log can
lose and still have `retention.bytes`; then what is older than `retention.ms`. Topics that are only
compacted know the first rule alone. So a log never gets a hole: one that stays keeps all behind it.

No rule removes an offset at or above the high watermark. An empty active segment stays; if all
others go and the active one with them, a new one is rolled first.

A segment is as old as its largest timestamp, which is the producer's. One record from the future
therefore keeps its segment, and all behind, until that time; `explain_retention` tells so.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from enum import Enum
from itertools import accumulate
from typing import assert_never

from tailrace.storage.config import DAY_MS, LogConfig


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentFacts:
    """What the rules know of one segment; those of a log come in order, the active one last."""

    base_offset: int
    next_base_offset: int
    """Base offset of the next segment; for the active one the end of the log."""
    size_bytes: int
    timestamp_ms: int
    """Largest timestamp, or when the file was last changed if no record has one."""


class Reason(Enum):
    """The rule that removes a segment."""

    LOG_START = "log start"
    SIZE = "size"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class Deletion:
    """A segment that goes."""

    base_offset: int
    reason: Reason


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """What goes now."""

    deletions: tuple[Deletion, ...]
    """Oldest first, without a gap from the first segment on."""
    must_roll: bool
    """Every segment goes, so a new active one has to come first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Explanation:
    """Why a segment goes or stays."""

    base_offset: int
    is_deletable: bool
    sentence: str
    """For an operator: which rule, the setting and its value, and what is missing to it."""


def plan_retention(
    facts: Sequence[SegmentFacts],
    *,
    config: LogConfig,
    log_start: int,
    high_watermark: int,
    now_ms: int,
) -> RetentionPlan:
    """The segments that go now, each with the rule that removes it."""
    deletions: list[Deletion] = []
    for reason in _rules(config):
        left = facts[len(deletions) :]
        breaches = _breaches(reason, left, config=config, log_start=log_start, now_ms=now_ms)
        for segment, is_breached in zip(left, breaches, strict=True):
            is_active = segment is facts[-1]
            if (
                not is_breached
                or segment.next_base_offset > high_watermark
                or (is_active and (reason is Reason.LOG_START or not segment.size_bytes))
            ):
                break
            deletions.append(Deletion(base_offset=segment.base_offset, reason=reason))
    return RetentionPlan(
        deletions=tuple(deletions), must_roll=bool(facts) and len(deletions) == len(facts)
    )


def explain_retention(
    facts: Sequence[SegmentFacts],
    *,
    config: LogConfig,
    log_start: int,
    high_watermark: int,
    now_ms: int,
) -> list[Explanation]:
    """For each segment the rule that removes it now, or what keeps it and for how long."""
    plan = plan_retention(
        facts, config=config, log_start=log_start, high_watermark=high_watermark, now_ms=now_ms
    )
    count = len(plan.deletions)
    left_bytes = sum(segment.size_bytes for segment in facts)
    sentences = []
    for deletion, segment in zip(plan.deletions, facts, strict=False):
        left_bytes -= segment.size_bytes
        why = _why_it_goes(
            segment,
            deletion.reason,
            config,
            log_start=log_start,
            left_bytes=left_bytes,
            now_ms=now_ms,
        )
        begun = "; a new active segment is begun first" if segment is facts[-1] else ""
        sentences.append(f"goes at the next check: {why}{begun}")
    for number, segment in enumerate(facts[count:], start=count):
        if segment is facts[-1] and not segment.size_bytes:
            why = "it is the active segment and still empty"
        elif segment.next_base_offset > high_watermark:
            why = f"{_last_offset(segment)} is not below the high watermark, {high_watermark}"
        elif not config.is_deleted_from:
            why = (
                "cleanup.policy is compact, so whole segments go only below the log start offset, "
                f"{log_start}"
            )
        else:
            older = facts[count : number + 1]
            by_time = _wait_for_time(older, config, now_ms)
            why = f"{by_time}; {_wait_for_size(older, config, left_bytes)}"
        sentences.append(f"stays: {why}")
    return [
        Explanation(base_offset=segment.base_offset, is_deletable=number < count, sentence=sentence)
        for number, (segment, sentence) in enumerate(zip(facts, sentences, strict=True))
    ]


def _rules(config: LogConfig) -> list[Reason]:
    rules = [Reason.LOG_START]
    if config.is_deleted_from and config.retention_bytes >= 0:
        rules.append(Reason.SIZE)
    if config.is_deleted_from and config.retention_ms >= 0:
        rules.append(Reason.TIME)
    return rules


def _breaches(
    reason: Reason,
    segments: Sequence[SegmentFacts],
    *,
    config: LogConfig,
    log_start: int,
    now_ms: int,
) -> list[bool]:
    match reason:
        case Reason.LOG_START:
            return [segment.next_base_offset <= log_start for segment in segments]
        case Reason.SIZE:
            lost = list(accumulate(segment.size_bytes for segment in segments))
            surplus = lost[-1] - config.retention_bytes if lost else 0
            return [size <= surplus for size in lost]
        case Reason.TIME:
            return [now_ms - segment.timestamp_ms > config.retention_ms for segment in segments]
    assert_never(reason)


def _why_it_goes(
    segment: SegmentFacts,
    reason: Reason,
    config: LogConfig,
    *,
    log_start: int,
    left_bytes: int,
    now_ms: int,
) -> str:
    match reason:
        case Reason.LOG_START:
            return f"{_last_offset(segment)} is below the log start offset, {log_start}"
        case Reason.SIZE:
            limit = _size(config.retention_bytes)
            return f"the log has {_size(left_bytes)} without it, retention.bytes is {limit}"
        case Reason.TIME:
            limit = _duration(config.retention_ms)
            return f"{_age(segment, now_ms)}, retention.ms is {limit}"
    assert_never(reason)


def _wait_for_time(older: Sequence[SegmentFacts], config: LogConfig, now_ms: int) -> str:
    """When the last of these goes by age: not before the youngest of them."""
    if config.retention_ms < 0:
        return "never too old, retention.ms is -1"
    segment, youngest = older[-1], max(older, key=lambda each: each.timestamp_ms)
    wait = _duration(youngest.timestamp_ms + config.retention_ms + 1 - now_ms)
    limit = _duration(config.retention_ms)
    text = f"{_age(segment, now_ms)}, retention.ms is {limit}, so it goes in {wait}"
    if youngest.timestamp_ms > segment.timestamp_ms:
        return f"{text}, with segment {youngest.base_offset} before it, which is younger"
    return text


def _wait_for_size(older: Sequence[SegmentFacts], config: LogConfig, log_bytes: int) -> str:
    """How much must be written before the last of these goes by size."""
    if config.retention_bytes < 0:
        return "never too much, retention.bytes is -1"
    missing = sum(segment.size_bytes for segment in older) + config.retention_bytes - log_bytes
    has = f"the log has {_size(log_bytes)}, retention.bytes is {_size(config.retention_bytes)}"
    return f"{has}, so it goes when {_size(missing)} more are written"


def _last_offset(segment: SegmentFacts) -> str:
    return f"its last offset, {segment.next_base_offset - 1},"


def _age(segment: SegmentFacts, now_ms: int) -> str:
    age_ms = now_ms - segment.timestamp_ms
    if age_ms < 0:
        return f"its newest record is {_duration(-age_ms)} in the future"
    return f"its newest record is {_duration(age_ms)} old"


_UNITS_MS = {"d": DAY_MS, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}


def _duration(duration_ms: int) -> str:
    """In the largest unit that it fills and the next smaller one: `3 d 4 h`, `250 ms`."""
    words = []
    for name, unit_ms in _UNITS_MS.items():
        count, duration_ms = divmod(duration_ms, unit_ms)
        if count:
            words.append(f"{count} {name}")
        if words and not (count and len(words) == 1):
            break
    return " ".join(words) or "0 ms"


def _size(size_bytes: int) -> str:
    """In the largest unit that it fills: `1.5 GiB`, `600 bytes`."""
    for exponent, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size_bytes >= 1024**exponent:
            return f"{size_bytes / 1024**exponent:.4g} {name}"
    return f"{size_bytes} bytes"
