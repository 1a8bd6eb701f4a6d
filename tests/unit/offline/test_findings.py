"""`causes_first`: many findings of one fault in few lines."""

from collections.abc import Mapping

import pytest

from tailrace.offline.findings import Finding, Rule, Severity, causes_first

LOG, INDEX, TIMES = "t-0/0.log", "t-0/0.index", "t-0/0.timeindex"
POINTS = "recovery-point-offset-checkpoint"


def finding(
    rule: Rule, path: str, offset: int | None = 7, severity: Severity = Severity.ERROR
) -> Finding:
    """A finding about an entry of a file, or without an offset about the file."""
    return Finding(severity=severity, rule=rule, path=path, offset=offset, sentence="it is wrong")


def lines(*findings: Finding, excess: Mapping[tuple[str, Rule], int] | None = None) -> list[str]:
    """The causes in order: rule, file, and numbers of others by rule."""
    return [
        " ".join(
            [each.finding.rule.value, each.finding.path]
            + [f"+{count} {rule.value}" for rule, count in each.others.items()]
        )
        for each in causes_first(findings, excess or {})
    ]


def test_damage_of_a_log_comes_before_what_does_not_agree_with_it() -> None:
    """Findings that are held back count as well; each damaged batch has a line."""
    assert lines(
        finding(Rule.OFFSET_INDEX, INDEX), finding(Rule.OFFSET_INDEX, INDEX),
        finding(Rule.CHECKSUM, LOG), finding(Rule.CHECKSUM, LOG), finding(Rule.TIME_INDEX, TIMES),
        finding(Rule.CHECKPOINT, POINTS),
        excess={(INDEX, Rule.OFFSET_INDEX): 48},
    ) == [
        "checksum t-0/0.log",
        "checksum t-0/0.log +50 offset-index +1 time-index +1 checkpoint",
    ]  # fmt: skip


def test_a_log_that_lost_its_end_is_the_cause_of_wrong_entries() -> None:
    """No batch is damaged then, and a checkpoint says how far the log went."""
    assert lines(
        finding(Rule.OFFSET_INDEX, INDEX), finding(Rule.CHECKPOINT, POINTS),
        finding(Rule.CHECKPOINT, "t-0/leader-epoch-checkpoint"),
    ) == ["checkpoint recovery-point-offset-checkpoint +1 offset-index +1 checkpoint"]  # fmt: skip


def test_what_repeats_in_a_file_is_one_line() -> None:
    """Without damage of a log nothing is the cause of anything else."""
    assert lines(
        *[finding(Rule.SEQUENCE, LOG)] * 3, finding(Rule.OFFSET_INDEX, INDEX),
        finding(Rule.OFFSET_INDEX, "t-0/5.index"),
        excess={(LOG, Rule.SEQUENCE): 5},
    ) == [
        "sequence t-0/0.log +7 sequence", "offset-index t-0/0.index", "offset-index t-0/5.index",
    ]  # fmt: skip


@pytest.mark.parametrize(
    "other",
    [
        finding(Rule.LEADER_EPOCH, "t-0/leader-epoch-checkpoint", offset=None),
        finding(Rule.SNAPSHOT, "t-0/7.snapshot", offset=None),
        finding(Rule.METADATA, "t-0/partition.metadata", offset=None),
        finding(Rule.LEFTOVER, "t-0/x.cleaned", severity=Severity.WARNING),
    ],
)
def test_a_file_with_a_fault_of_its_own_has_a_line(other: Finding) -> None:
    """Damage of the log does not explain a file that cannot be understood."""
    assert lines(finding(Rule.CHECKSUM, LOG), other) == [
        "checksum t-0/0.log", f"{other.rule.value} {other.path}",
    ]  # fmt: skip


def test_information_is_no_cause() -> None:
    """Zeros that are left of preallocation do not make an index wrong."""
    assert lines(
        finding(Rule.TAIL, LOG, severity=Severity.INFO), finding(Rule.OFFSET_INDEX, INDEX)
    ) == ["tail t-0/0.log", "offset-index t-0/0.index"]
