"""Retention: decide which segments are deleted, and explain why the others stay. No I/O.

    oldest                                               active
    [ 0 .. 99 ][ 100 .. 199 ][ 200 .. 299 ][ 300 .. 399 ][ 400 .. ]
     log start  size          time          stays: too young
     is 100     over limit    too old

Three rules apply one after the other. Each goes over the remaining segments from the oldest on, and
stops at the first one that it keeps, so a log never gets a hole:

1. A segment below the log start offset is deleted.
2. A segment is deleted if the log still has `retention.bytes` without it.
3. A segment older than `retention.ms` is deleted.

For topics with only `cleanup.policy=compact` just the first rule applies.

No rule removes an offset at or above the high watermark. An empty active segment stays; if every
segment is deleted, a new active one is rolled first.

The age of a segment is that of its largest timestamp, which producers set. A record with a future
timestamp therefore keeps its segment, and all after it, until that time; `explain_retention` says
so.
"""

from collections.abc import Sequence
from enum import Enum
from itertools import accumulate
from typing import assert_never

from tailrace.storage.config import DAY_MS, LogConfig
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionFacts:
    """A segment's facts for the retention rules; segments are in order, the active one last."""

    base_offset: int
    next_base_offset: int
    """Base offset of the next segment; for the active one the end of the log."""
    size_bytes: int
    timestamp_ms: int
    """Largest timestamp, or the modification time of the file if no record has one."""


class DeletionReason(Enum):
    """The rule that removes a segment."""

    LOG_START = "log start"
    SIZE = "size"
    TIME = "time"


@dataclass(frozen=True, slots=True, kw_only=True)
class SegmentDeletion:
    """A segment to delete, and the rule."""

    base_offset: int
    reason: DeletionReason


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionPlan:
    """The segments to delete now."""

    deletions: tuple[SegmentDeletion, ...]
    """Oldest first, without a gap from the first segment on."""
    must_roll: bool
    """Whether all segments are deleted, so that a new active one has to be rolled first."""


@dataclass(frozen=True, slots=True, kw_only=True)
class RetentionExplanation:
    """Reason why a segment is deleted or stays."""

    base_offset: int
    is_deletable: bool
    sentence: str
    """For an operator: the rule, the setting with its value, and what is missing until deletion."""


def plan_retention(
    facts: Sequence[RetentionFacts],
    *,
    config: LogConfig,
    log_start: int,
    high_watermark: int,
    now_ms: int,
) -> RetentionPlan:
    """The segments to delete now, each with its rule."""
    deletions: list[SegmentDeletion] = []
    for reason in _rules(config):
        # What a rule before has taken is gone for the next one: only a prefix of the log may go.
        left = facts[len(deletions) :]
        breaches = _breaches(reason, left, config=config, log_start=log_start, now_ms=now_ms)
        for segment, is_breached in zip(left, breaches, strict=True):
            is_active = segment is facts[-1]
            if (
                not is_breached
                # A follower may still need it; as in Kafka, nothing above the high watermark is
                # deleted.
                or segment.next_base_offset > high_watermark
                or (is_active and (reason is DeletionReason.LOG_START or not segment.size_bytes))
            ):
                break
            deletions.append(SegmentDeletion(base_offset=segment.base_offset, reason=reason))
    return RetentionPlan(
        deletions=tuple(deletions), must_roll=bool(facts) and len(deletions) == len(facts)
    )


def explain_retention(
    facts: Sequence[RetentionFacts],
    *,
    config: LogConfig,
    log_start: int,
    high_watermark: int,
    now_ms: int,
) -> list[RetentionExplanation]:
    """Tell for each segment the rule that deletes it now, or why and how long it stays."""
    plan = plan_retention(
        facts, config=config, log_start=log_start, high_watermark=high_watermark, now_ms=now_ms
    )
    count = len(plan.deletions)
    left_bytes = sum(segment.size_bytes for segment in facts[count:])
    reasons = deletion_sentences(plan, facts, config=config, log_start=log_start, now_ms=now_ms)
    sentences = []
    for why, segment in zip(reasons, facts, strict=False):
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
        RetentionExplanation(
            base_offset=segment.base_offset, is_deletable=number < count, sentence=sentence
        )
        for number, (segment, sentence) in enumerate(zip(facts, sentences, strict=True))
    ]


def deletion_sentences(
    plan: RetentionPlan,
    facts: Sequence[RetentionFacts],
    *,
    config: LogConfig,
    log_start: int,
    now_ms: int,
) -> list[str]:
    """Tell for each segment that `plan_retention` deletes the rule, with the setting's value."""
    left_bytes = sum(segment.size_bytes for segment in facts)
    sentences = []
    for deletion, segment in zip(plan.deletions, facts, strict=False):
        left_bytes -= segment.size_bytes
        sentences.append(
            _why_it_goes(
                segment,
                deletion.reason,
                config,
                log_start=log_start,
                left_bytes=left_bytes,
                now_ms=now_ms,
            )
        )
    return sentences


def _rules(config: LogConfig) -> list[DeletionReason]:
    rules = [DeletionReason.LOG_START]
    if config.is_deleted_from and config.retention_bytes >= 0:
        rules.append(DeletionReason.SIZE)
    if config.is_deleted_from and config.retention_ms >= 0:
        rules.append(DeletionReason.TIME)
    return rules


def _breaches(
    reason: DeletionReason,
    segments: Sequence[RetentionFacts],
    *,
    config: LogConfig,
    log_start: int,
    now_ms: int,
) -> list[bool]:
    match reason:
        case DeletionReason.LOG_START:
            return [segment.next_base_offset <= log_start for segment in segments]
        case DeletionReason.SIZE:
            lost = list(accumulate(segment.size_bytes for segment in segments))
            # A segment goes only if the log without it is still at least that large, as in Kafka.
            surplus = lost[-1] - config.retention_bytes if lost else 0
            return [size <= surplus for size in lost]
        case DeletionReason.TIME:
            # By the largest timestamp in it: one record of the future keeps a segment, and those
            # after it.
            return [now_ms - segment.timestamp_ms > config.retention_ms for segment in segments]
    assert_never(reason)


def _why_it_goes(
    segment: RetentionFacts,
    reason: DeletionReason,
    config: LogConfig,
    *,
    log_start: int,
    left_bytes: int,
    now_ms: int,
) -> str:
    match reason:
        case DeletionReason.LOG_START:
            return f"{_last_offset(segment)} is below the log start offset, {log_start}"
        case DeletionReason.SIZE:
            limit = _size(config.retention_bytes)
            return f"the log has {_size(left_bytes)} without it, retention.bytes is {limit}"
        case DeletionReason.TIME:
            limit = _duration(config.retention_ms)
            return f"{_age(segment, now_ms)}, retention.ms is {limit}"
    assert_never(reason)


def _wait_for_time(older: Sequence[RetentionFacts], config: LogConfig, now_ms: int) -> str:
    """Tell when the last of these segments is deleted by age: not before the youngest of them."""
    if config.retention_ms < 0:
        return "never too old, retention.ms is -1"
    segment, youngest = older[-1], max(older, key=lambda each: each.timestamp_ms)
    wait = _duration(youngest.timestamp_ms + config.retention_ms + 1 - now_ms)
    limit = _duration(config.retention_ms)
    text = f"{_age(segment, now_ms)}, retention.ms is {limit}, so it goes in {wait}"
    if youngest.timestamp_ms > segment.timestamp_ms:
        return f"{text}, with segment {youngest.base_offset} before it, which is younger"
    return text


def _wait_for_size(older: Sequence[RetentionFacts], config: LogConfig, log_bytes: int) -> str:
    """Tell how many bytes must be written until the last of these segments is deleted by size."""
    if config.retention_bytes < 0:
        return "never too much, retention.bytes is -1"
    missing = sum(segment.size_bytes for segment in older) + config.retention_bytes - log_bytes
    has = f"the log has {_size(log_bytes)}, retention.bytes is {_size(config.retention_bytes)}"
    return f"{has}, so it goes when {_size(missing)} more are written"


def _last_offset(segment: RetentionFacts) -> str:
    return f"its last offset, {segment.next_base_offset - 1},"


def _age(segment: RetentionFacts, now_ms: int) -> str:
    age_ms = now_ms - segment.timestamp_ms
    if age_ms < 0:
        return f"its newest record is {_duration(-age_ms)} in the future"
    return f"its newest record is {_duration(age_ms)} old"


_UNITS_MS = {"d": DAY_MS, "h": 3_600_000, "min": 60_000, "s": 1000, "ms": 1}


def _duration(duration_ms: int) -> str:
    """A duration in its largest unit and the next smaller one: `3 d 4 h`, `250 ms`."""
    words = []
    for name, unit_ms in _UNITS_MS.items():
        count, duration_ms = divmod(duration_ms, unit_ms)
        if count:
            words.append(f"{count} {name}")
        if words and not (count and len(words) == 1):
            break
    return " ".join(words) or "0 ms"


def _size(size_bytes: int) -> str:
    """A size in its largest unit: `1.5 GiB`, `600 bytes`."""
    for exponent, name in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if size_bytes >= 1024**exponent:
            return f"{size_bytes / 1024**exponent:.4g} {name}"
    return f"{size_bytes} bytes"
