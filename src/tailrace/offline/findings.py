"""Findings of a verification: how bad, where, and which rule does not hold.

The names of severities and rules are part of the JSON report (docs/formats/verify-report.md):
they may be added to and are never changed.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from enum import Enum
from typing import NamedTuple

from tailrace.errors import CorruptionError
from tailrace.records.batch import Batch
from tailrace.values import dataclass

FINDINGS_MAX = 20
"""Most findings of one rule in one file: damage rarely comes alone, and a thousand say no more."""


class Severity(Enum):
    """Severity of a finding for readers of the log."""

    ERROR = "error"
    """Bytes are not what a broker wrote."""
    WARNING = "warning"
    """Something is left unfinished or does not agree; a broker deals with it when it starts."""
    UNVERIFIED = "unverified"
    """Could not be looked at, so it may be good or bad."""
    INFO = "info"
    """In order, and worth knowing."""


class Rule(Enum):
    """The rule that a finding is about."""

    FRAME = "frame"
    CHECKSUM = "checksum"
    RECORDS = "records"
    LIMIT = "limit"
    FRAMING = "framing"
    OFFSET_ORDER = "offset-order"
    GAP = "gap"
    LEADER_EPOCH = "leader-epoch"
    TAIL = "tail"
    READABLE = "readable"
    OFFSET_INDEX = "offset-index"
    TIME_INDEX = "time-index"
    ORPHAN = "orphan"
    CHECKPOINT = "checkpoint"
    METADATA = "metadata"
    IDENTITY = "identity"
    SNAPSHOT = "snapshot"
    TRANSACTION_INDEX = "transaction-index"
    TRANSACTION = "transaction"
    SEQUENCE = "sequence"
    LEFTOVER = "leftover"
    SET_ASIDE = "set-aside"
    MORE = "more"


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """One thing that a verification has to say."""

    severity: Severity
    rule: Rule
    path: str
    """The file."""
    position: int | None = None
    """Bytes from the start of the file to the batch or entry; None for the file as a whole."""
    offset: int | None = None
    """Offset of the batch or entry, where it has one."""
    sentence: str
    """The finding as a sentence, with its values."""

    def __str__(self) -> str:
        places = [
            self.path,
            "" if self.position is None else f"position {self.position}",
            "" if self.offset is None else f"offset {self.offset}",
        ]
        place = ", ".join(part for part in places if part)
        return f"{self.severity.value}: {place}: {self.sentence} [{self.rule.value}]"


class FindingLimit:
    """Lets `FINDINGS_MAX` findings of one rule in one file pass, and counts the others."""

    def __init__(self) -> None:
        self._seen: Counter[tuple[str, Rule]] = Counter()

    def take(self, findings: Iterable[Finding]) -> Iterator[Finding]:
        for finding in findings:
            # By file and rule, so that one fault that repeats a million times does not hide
            # another.
            place = finding.path, finding.rule
            self._seen[place] += 1
            if self._seen[place] <= FINDINGS_MAX:
                yield finding

    def excess(self) -> dict[tuple[str, Rule], int]:
        """Return the number of findings that were held back, by file and rule."""
        return {
            place: count - FINDINGS_MAX
            for place, count in self._seen.items()
            if count > FINDINGS_MAX
        }

    def add(self, excess: Mapping[tuple[str, Rule], int]) -> None:
        """Count what another limit has kept back."""
        self._seen.update(excess)

    def rest(self) -> Iterator[Finding]:
        """A line for each rule in each file of which some findings were held back."""
        for (path, rule), count in self.excess().items():
            yield Finding(
                severity=Severity.INFO,
                rule=Rule.MORE,
                path=path,
                sentence=f"{count} more findings of the rule {rule.value}",
            )


_OF_LOGS = frozenset(
    {
        Rule.READABLE, Rule.FRAME, Rule.CHECKSUM, Rule.RECORDS, Rule.OFFSET_ORDER, Rule.TAIL,
        Rule.TRANSACTION,
    }
)  # fmt: skip
"""Rules of the batches of a log, with which everything else in its folder has to agree."""
_OF_AGREEMENT = frozenset(
    {
        Rule.OFFSET_INDEX, Rule.TIME_INDEX, Rule.TRANSACTION_INDEX, Rule.SNAPSHOT, Rule.CHECKPOINT,
        Rule.LEADER_EPOCH, Rule.SEQUENCE, Rule.GAP, Rule.TRANSACTION, Rule.ORPHAN,
    }
)  # fmt: skip
"""Rules that one fault of a log can break many times."""


class Cause(NamedTuple):
    """A finding to begin with, and those that it may have brought about."""

    finding: Finding
    others: Counter[Rule]
    """Numbers of findings, by their rules."""


def causes_first(
    findings: Sequence[Finding], excess: Mapping[tuple[str, Rule], int]
) -> Iterator[Cause]:
    """The findings of one partition in few lines: causes, with their consequences counted.

    `excess` has the numbers of those that are not listed, by file and rule. Where batches are
    damaged, what no longer agrees with them may follow from that; where none is, but a checkpoint
    knows of offsets that the log does not have, from the loss of these. All else that repeats in a
    file is one finding, and a number.
    """
    repeated: list[Finding] = []
    causes: list[Finding] = []
    for each in findings:
        (repeated if _is_repeated(each) else causes).append(each)
    if not any(each.rule in _OF_LOGS and each.severity is not Severity.INFO for each in causes):
        lost = [each for each in repeated if each.rule is Rule.CHECKPOINT]
        if not lost:
            yield from (Cause(each, Counter()) for each in causes)
            yield from _first_in_files(repeated, excess)
            return
        causes.append(lost[0])
        repeated.remove(lost[0])
    others = Counter(each.rule for each in repeated)
    for (_, rule), count in excess.items():
        others[rule] += count
    for each in causes[:-1]:
        yield Cause(each, Counter())
    yield Cause(causes[-1], others)


def _first_in_files(
    findings: Sequence[Finding], excess: Mapping[tuple[str, Rule], int]
) -> Iterator[Cause]:
    """The first finding of each rule in each file, with the number of the others of the rule."""
    first: dict[tuple[str, Rule], Finding] = {}
    counts = Counter(excess)
    for each in findings:
        place = each.path, each.rule
        if place in first:
            counts[place] += 1
        first.setdefault(place, each)
    for place, each in first.items():
        yield Cause(each, +Counter({each.rule: counts[place]}))


def _is_repeated(finding: Finding) -> bool:
    # A file that cannot be understood at all is a fault of its own.
    is_of_entry = finding.position is not None or finding.offset is not None
    if finding.rule is Rule.TRANSACTION:
        return finding.severity is Severity.INFO
    return finding.rule in _OF_AGREEMENT and (is_of_entry or finding.rule is Rule.ORPHAN)


def batch_finding(path: str, position: int, batch: Batch, *, rule: Rule, sentence: str) -> Finding:
    """An error in the batch at a position of the file at `path`."""
    return Finding(
        severity=Severity.ERROR,
        rule=rule,
        path=path,
        position=position,
        offset=batch.base_offset,
        sentence=sentence,
    )


def file_finding(path: str, rule: Rule, error: CorruptionError | OSError) -> Finding:
    """A file that is malformed, or that cannot be read, whatever the rule."""
    if isinstance(error, CorruptionError):
        return Finding(severity=Severity.ERROR, rule=rule, path=path, sentence=error.rule)
    # The file may be good, so no rule of its content is named.
    reason = error.strerror.lower() if error.strerror else str(error)
    return Finding(
        severity=Severity.UNVERIFIED,
        rule=Rule.READABLE,
        path=str(error.filename or path),
        sentence=f"cannot be read: {reason}",
    )
