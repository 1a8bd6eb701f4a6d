"""Histories: what client processes did to topics and groups, and when, as files of JSON lines.

A process writes a line when it begins an operation and one when it knows the outcome, so that a
process which is killed leaves what it was about to do:

    {"number": 7, "at_s": 12.5, "do": "Send", "partition": "events-0", "value": "p1:3", …}
    {"number": 7, "at_s": 12.6, "outcome": "ok", "offset": 41}

The outcomes are Jepsen's: `ok` it happened, `fail` it did not, `info` nobody knows. An operation
without a second line is `info`. All processes read one monotonic clock, so that times of different
processes can be compared.

Values are unique: no two sends of a history have the same one.

Not here: what a history must not contain (`anomalies`).
"""

import itertools
import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field
from enum import Enum
from pathlib import Path
from typing import Any, NamedTuple


class Outcome(Enum):
    """Result of an operation, as its process knows it."""

    OK = "ok"
    FAIL = "fail"
    """It did not happen, and never will."""
    INFO = "info"
    """It may have happened, and may happen yet."""


class Record(NamedTuple):
    """A record that a poll returned."""

    partition: str
    offset: int
    value: str


class Source(NamedTuple):
    """The record from which a transforming process of a group made another one."""

    group: str
    partition: str
    offset: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Send:
    """A record given to a producer, which is idempotent."""

    partition: str
    value: str
    offset: int | None = None
    """Offset by the acknowledgement."""
    transaction: str | None = None
    """Name of the transaction, which no other has; None: sent without one."""
    source: Source | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Poll:
    """Records that a consumer returned at once, in their order."""

    records: tuple[Record, ...]
    is_committed: bool
    """Whether the consumer reads with `read_committed`."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Assign:
    """Partitions that were added to those of a consumer, and those that were taken from it."""

    added: tuple[str, ...] = ()
    removed: tuple[str, ...] = ()
    group: str | None = None
    """The group whose committed offsets tell where to begin; None: it begins at offset 0."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Commit:
    """Offsets of partitions, committed for a group."""

    group: str
    offsets: Mapping[str, int]
    transaction: str | None = None
    """The transaction that they are part of."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransaction:
    """The end of a transaction as its producer asked for it."""

    transaction: str
    is_commit: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class ReadToEnd:
    """A process has read these partitions from their first record to the last one."""

    partitions: tuple[str, ...]
    is_committed: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class See:
    """A high watermark that a process was told."""

    partition: str
    watermark: int = -1
    """-1 until the answer is there."""


Action = Send | Poll | Assign | Commit | EndTransaction | ReadToEnd | See

_ACTIONS: dict[str, type[Action]] = {
    each.__name__: each for each in (Send, Poll, Assign, Commit, EndTransaction, ReadToEnd, See)
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Operation:
    """An action of a process, with its outcome and times."""

    process: str
    number: int
    """Place among the operations of its process, by their beginnings."""
    action: Action
    outcome: Outcome = Outcome.OK
    start_s: float
    end_s: float = math.inf
    """When the process knew the outcome; infinite if it never did."""

    def __str__(self) -> str:
        end = f"{self.end_s:.3f}" if self.end_s < math.inf else "?"
        told = repr(self.action)
        shown = told if len(told) <= 300 else f"{told[:200]} … {told[-90:]}"
        return (
            f"{self.process}/{self.number} {self.start_s:.3f}-{end} {self.outcome.value}: {shown}"
        )


@dataclass(slots=True)
class Recorder:
    """Writes the operations of one process; all of its threads may call."""

    path: Path
    _file: int = field(init=False)
    _numbers: Iterator[int] = field(init=False, default_factory=lambda: itertools.count(1))

    def __post_init__(self) -> None:
        self._file = os.open(self.path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)

    def begin(self, action: Action) -> int:
        """Write that an operation begins; returns its number for `end`."""
        number = next(self._numbers)
        self._write(number, {"do": type(action).__name__, **_plain(action)})
        return number

    def end(self, number: int, outcome: Outcome, **known: Any) -> None:
        """Write the outcome of an operation, and fields of its action that are known only now."""
        self._write(number, {"outcome": outcome.value, **known})

    def note(self, action: Action) -> None:
        """Write an operation that is over already."""
        self.end(self.begin(action), Outcome.OK)

    def _write(self, number: int, line: Mapping[str, Any]) -> None:
        text = json.dumps({"number": number, "at_s": time.monotonic(), **line})
        # One call: what a killed process has written is whole.
        os.write(self._file, text.encode() + b"\n")


def read_histories(folder: Path) -> list[Operation]:
    """The operations in all files `PROCESS.history` of a folder, by their beginnings."""
    operations: list[Operation] = []
    for path in sorted(folder.glob("*.history")):
        operations += read_history(path.stem, path.read_text().splitlines())
    return sorted(operations, key=lambda each: each.start_s)


def read_history(process: str, lines: Iterable[str]) -> list[Operation]:
    """The operations of one process."""
    begun: dict[int, tuple[float, dict[str, Any]]] = {}
    ended: dict[int, tuple[float, Outcome]] = {}
    for line in lines:
        fields = json.loads(line)
        number, at_s = fields.pop("number"), fields.pop("at_s")
        if "do" in fields:
            begun[number] = at_s, fields
        else:
            ended[number] = at_s, Outcome(fields.pop("outcome"))
            begun[number][1].update(fields)
    operations = []
    for number, (start_s, fields) in begun.items():
        end_s, outcome = ended.get(number, (math.inf, Outcome.INFO))
        operations.append(
            Operation(
                process=process,
                number=number,
                action=_action(fields),
                outcome=outcome,
                start_s=start_s,
                end_s=end_s,
            )
        )
    return operations


def _plain(action: Action) -> dict[str, Any]:
    """The fields that are not the defaults, which keeps lines short."""
    return {name: value for name, value in asdict(action).items() if value not in (None, ())}


def _action(fields: dict[str, Any]) -> Action:
    kind = _ACTIONS[fields.pop("do")]
    if kind is Poll:
        fields["records"] = tuple(Record(*each) for each in fields.get("records", ()))
    if fields.get("source") is not None:
        fields["source"] = Source(*fields["source"])
    for name in ("added", "removed", "partitions"):
        if name in fields:
            fields[name] = tuple(fields[name])
    return kind(**fields)
