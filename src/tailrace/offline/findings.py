"""What a verification can find: how bad, where, and which rule does not hold.

The names of severities and rules are part of the JSON report (docs/formats/verify-report.md):
they may be added to and are never changed.
"""

from dataclasses import dataclass
from enum import Enum


class Severity(Enum):
    """What a finding means for whoever reads the log."""

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
    """What does not hold, with its values."""

    def __str__(self) -> str:
        places = [
            self.path,
            "" if self.position is None else f"position {self.position}",
            "" if self.offset is None else f"offset {self.offset}",
        ]
        place = ", ".join(part for part in places if part)
        return f"{self.severity.value}: {place}: {self.sentence} [{self.rule.value}]"
