"""Which segments go by themselves, and what an operator is told about the others."""

from collections.abc import Sequence

import pytest

from tailrace.storage.config import DAY_MS, LogConfig, log_config
from tailrace.storage.retention import (
    DeletionReason,
    RetentionFacts,
    RetentionPlan,
    explain_retention,
    plan_retention,
)

NOW = 1_700_000_000_000
HOUR_MS = 60 * 60 * 1000


def config(
    *, retention_ms: int = -1, retention_bytes: int = -1, policy: str = "delete"
) -> LogConfig:
    """Settings without a limit, except for those given."""
    return log_config(
        {
            "retention.ms": str(retention_ms),
            "retention.bytes": str(retention_bytes),
            "cleanup.policy": policy,
        }
    )


def log(*sizes: int, ages_ms: Sequence[int] = ()) -> list[RetentionFacts]:
    """Segments of ten offsets each with these sizes; an empty one has no offset."""
    facts: list[RetentionFacts] = []
    for number, size in enumerate(sizes):
        base = facts[-1].next_base_offset if facts else 0
        facts.append(
            RetentionFacts(
                base_offset=base,
                next_base_offset=base + (10 if size else 0),
                size_bytes=size,
                timestamp_ms=NOW - (ages_ms[number] if ages_ms else 0),
            )
        )
    return facts


def plan(
    facts: list[RetentionFacts],
    settings: LogConfig,
    *,
    log_start: int = 0,
    high_watermark: int | None = None,
) -> RetentionPlan:
    """The plan when everything is replicated, except for what is given."""
    end = facts[-1].next_base_offset if facts else 0
    return plan_retention(
        facts,
        config=settings,
        log_start=log_start,
        high_watermark=end if high_watermark is None else high_watermark,
        now_ms=NOW,
    )


def gone(planned: RetentionPlan) -> list[tuple[int, DeletionReason]]:
    """Base offset and rule of what goes."""
    return [(each.base_offset, each.reason) for each in planned.deletions]


def sentences(
    facts: list[RetentionFacts],
    settings: LogConfig,
    *,
    log_start: int = 0,
    high_watermark: int | None = None,
) -> list[str]:
    """Return the sentences for the operator, segment by segment."""
    end = facts[-1].next_base_offset
    explained = explain_retention(
        facts,
        config=settings,
        log_start=log_start,
        high_watermark=end if high_watermark is None else high_watermark,
        now_ms=NOW,
    )
    return [each.sentence for each in explained]


def test_without_limits_nothing_goes() -> None:
    """-1 is no limit, for bytes and for age."""
    assert gone(plan(log(100, 100, ages_ms=[10**12, 10**12]), config())) == []


def test_segments_below_the_log_start_go() -> None:
    """A segment whose last record was deleted goes, one that the start lies in stays."""
    assert gone(plan(log(100, 100, 100), config(), log_start=19)) == [(0, DeletionReason.LOG_START)]
    assert gone(plan(log(100, 100, 100), config(), log_start=20)) == [
        (0, DeletionReason.LOG_START),
        (10, DeletionReason.LOG_START),
    ]


def test_the_active_segment_does_not_go_by_the_log_start() -> None:
    """Even if every record was deleted: it has no successor that would hold the start."""
    assert gone(plan(log(100, 100), config(), log_start=20)) == [(0, DeletionReason.LOG_START)]


@pytest.mark.parametrize(
    ("limit", "expected"), [(301, []), (300, []), (201, []), (200, [0]), (150, [0]), (100, [0, 10])]
)
def test_what_goes_by_size_leaves_at_least_the_limit(limit: int, expected: list[int]) -> None:
    """A segment goes only if the log without it still has retention.bytes."""
    planned = plan(log(100, 100, 100), config(retention_bytes=limit))
    assert gone(planned) == [(base, DeletionReason.SIZE) for base in expected]


def test_size_counts_what_the_log_start_has_left() -> None:
    """Bytes that go by the first rule are not counted a second time."""
    planned = plan(log(100, 100, 100), config(retention_bytes=150), log_start=10)
    assert gone(planned) == [(0, DeletionReason.LOG_START)]


@pytest.mark.parametrize(("age_ms", "expected"), [(1000, []), (1001, [(0, DeletionReason.TIME)])])
def test_a_segment_goes_when_it_is_older_than_the_limit(
    age_ms: int, expected: list[tuple[int, DeletionReason]]
) -> None:
    """Exactly as old as retention.ms is not older."""
    planned = plan(log(100, 100, ages_ms=[age_ms, 0]), config(retention_ms=1000))
    assert gone(planned) == expected


def test_a_young_segment_keeps_the_old_ones_behind_it() -> None:
    """Segments go from the start on, without a gap."""
    facts = log(100, 100, 100, 100, ages_ms=[2000, 0, 2000, 0])
    assert gone(plan(facts, config(retention_ms=1000))) == [(0, DeletionReason.TIME)]


def test_the_rules_follow_each_other() -> None:
    """Each rule goes on where the one before it has stopped."""
    facts = log(100, 100, 100, 100, ages_ms=[2000, 0, 2000, 0])
    planned = plan(facts, config(retention_ms=1000, retention_bytes=200), log_start=10)
    assert gone(planned) == [
        (0, DeletionReason.LOG_START),
        (10, DeletionReason.SIZE),
        (20, DeletionReason.TIME),
    ]


@pytest.mark.parametrize(("high_watermark", "expected"), [(19, [0]), (20, [0, 10])])
@pytest.mark.parametrize("settings", [config(retention_ms=0), config(retention_bytes=0)])
def test_what_is_not_replicated_stays(
    settings: LogConfig, high_watermark: int, expected: list[int]
) -> None:
    """The log start offset never passes the high watermark."""
    facts = log(100, 100, 100, ages_ms=[9, 9, 9])
    planned = plan(facts, settings, high_watermark=high_watermark)
    assert [each.base_offset for each in planned.deletions] == expected


@pytest.mark.parametrize("settings", [config(retention_ms=0), config(retention_bytes=0)])
def test_if_everything_goes_a_new_segment_comes_first(settings: LogConfig) -> None:
    """A log is never without a segment."""
    planned = plan(log(100, 100, ages_ms=[9, 9]), settings)
    assert [each.base_offset for each in planned.deletions] == [0, 10]
    assert planned.must_roll


@pytest.mark.parametrize("settings", [config(retention_ms=0), config(retention_bytes=0)])
def test_an_empty_active_segment_stays(settings: LogConfig) -> None:
    """It is what the log goes on with, so no other has to be made."""
    planned = plan(log(100, 0, ages_ms=[9, 9]), settings)
    assert [each.base_offset for each in planned.deletions] == [0]
    assert not planned.must_roll


def test_a_log_that_is_only_compacted_keeps_what_is_old_and_large() -> None:
    """Its records go one by one; only the log start removes whole segments."""
    settings = config(policy="compact", retention_ms=0, retention_bytes=0)
    planned = plan(log(100, 100, 100, ages_ms=[9, 9, 9]), settings, log_start=10)
    assert gone(planned) == [(0, DeletionReason.LOG_START)]


def test_a_log_of_both_policies_knows_all_rules() -> None:
    """compact,delete limits size and age as delete does."""
    settings = config(policy="compact,delete", retention_ms=0)
    assert gone(plan(log(100, 0, ages_ms=[9, 9]), settings)) == [(0, DeletionReason.TIME)]


def test_no_segments_no_plan() -> None:
    """A log without segments gives an empty plan and no roll."""
    assert plan([], config(retention_ms=0, retention_bytes=0)) == RetentionPlan(
        deletions=(), must_roll=False
    )


def test_explanations_and_plan_agree() -> None:
    """The plan removes exactly the segments called deletable, for every limit of a small log."""
    facts = log(100, 50, 200, 0, ages_ms=[50, 90, 10, 0])
    for limit in range(0, 400, 25):
        for age in range(0, 100, 7):
            for high_watermark in (5, 20, 30):
                settings = config(retention_ms=age, retention_bytes=limit)
                planned = plan(facts, settings, high_watermark=high_watermark)
                explained = explain_retention(
                    facts, config=settings, log_start=0, high_watermark=high_watermark, now_ms=NOW
                )
                assert [each.base_offset for each in explained if each.is_deletable] == [
                    each.base_offset for each in planned.deletions
                ]


def test_the_sentences_of_what_goes_name_the_rule() -> None:
    """Setting, limit and the value that breaks it, in units one can read."""
    mib = 1024 * 1024
    facts = log(mib, mib, mib, mib, ages_ms=[0, 0, 8 * DAY_MS + 2 * HOUR_MS, 0])
    settings = config(retention_ms=7 * DAY_MS, retention_bytes=2 * mib)
    assert sentences(facts, settings, log_start=10)[:3] == [
        "goes at the next check: its last offset, 9, is below the log start offset, 10",
        "goes at the next check: the log has 2 MiB without it, retention.bytes is 2 MiB",
        "goes at the next check: its newest record is 8 d 2 h old, retention.ms is 7 d",
    ]


def test_a_new_active_segment_is_announced() -> None:
    """The operator is told that the log goes on."""
    assert sentences(log(100, ages_ms=[1500]), config(retention_ms=1000)) == [
        (
            "goes at the next check: its newest record is 1 s 500 ms old, retention.ms is 1 s; "
            "a new active segment is begun first"
        )
    ]


def test_the_sentences_of_what_stays_say_what_is_missing() -> None:
    """They say how much time and how many bytes are left until a rule removes the segment."""
    facts = log(600, 2048, ages_ms=[2 * DAY_MS, HOUR_MS])
    settings = config(retention_ms=7 * DAY_MS - 1, retention_bytes=3000)
    first, second = sentences(facts, settings)
    assert first == (
        "stays: its newest record is 2 d old, retention.ms is 6 d 23 h, so it goes in 5 d; "
        "the log has 2.586 KiB, retention.bytes is 2.93 KiB, so it goes when 952 bytes more are "
        "written"
    )
    assert second == (
        "stays: its newest record is 1 h old, retention.ms is 6 d 23 h, so it goes in 6 d 23 h; "
        "the log has 2.586 KiB, retention.bytes is 2.93 KiB, so it goes when 2.93 KiB more are "
        "written"
    )


def test_limits_that_are_off_are_named() -> None:
    """-1 is said to be the reason that a segment stays for ever."""
    assert sentences(log(100), config()) == [
        "stays: never too old, retention.ms is -1; never too much, retention.bytes is -1"
    ]


def test_a_younger_segment_in_front_is_named() -> None:
    """An old segment learns which one it waits for, and how long."""
    facts = log(100, 100, 0, ages_ms=[-3 * HOUR_MS, 2 * HOUR_MS, 0])
    first, second, _ = sentences(facts, config(retention_ms=HOUR_MS))
    assert first.startswith(
        "stays: its newest record is 3 h in the future, retention.ms is 1 h, so it goes in 4 h; "
    )
    assert second.startswith(
        "stays: its newest record is 2 h old, retention.ms is 1 h, so it goes in 4 h, with segment "
        "0 before it, which is younger; "
    )


def test_the_high_watermark_is_named() -> None:
    """A segment that would go is kept by records that are not replicated."""
    facts = log(100, 0, ages_ms=[9, 9])
    assert sentences(facts, config(retention_ms=0), high_watermark=7) == [
        "stays: its last offset, 9, is not below the high watermark, 7",
        "stays: it is the active segment and still empty",
    ]


def test_the_compact_policy_is_named() -> None:
    """Age and size limits are not spoken of where they do not count."""
    assert sentences(log(100), config(policy="compact", retention_ms=0), log_start=4) == [
        "stays: cleanup.policy is compact, so whole segments go only below the log start offset, 4"
    ]
