"""Options of the source, from Spark's strings to one frozen value; names and meanings are Spark's.

Not here: anything that has to look at a topic. That the offsets fit the partitions is found out by
`offsets`, when the partitions are known.

Invariant: all faults of one call are reported together, before Spark starts a job.
"""

import difflib
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, NamedTuple, TypeAlias

from tailrace.client import parse_bootstrap
from tailrace.client.metadata import REQUEST_TIMEOUT_MS
from tailrace.errors import ConfigError
from tailrace.model import SpecialTimestamp, TopicPartition


class PointKind(Enum):
    """How a point in a partition's log is named."""

    EARLIEST = "earliest"
    LATEST = "latest"
    OFFSET = "offset"
    TIMESTAMP = "timestamp"


class Point(NamedTuple):
    """A place in a partition's log where a range begins or ends."""

    kind: PointKind
    value: int = 0
    """The offset, or the timestamp in milliseconds; 0 for the two ends."""


EARLIEST = Point(PointKind.EARLIEST)
LATEST = Point(PointKind.LATEST)


@dataclass(frozen=True, slots=True, kw_only=True)
class Bound:
    """One end of what is read, for every partition."""

    option: str
    """The option that says so, for messages."""
    everywhere: Point | None = None
    """The same for all partitions; None: `of_partition` and `of_topic` name each."""
    of_partition: Mapping[TopicPartition, Point] = field(default_factory=dict)
    of_topic: Mapping[str, Point] = field(default_factory=dict)

    def point_or_none(self, partition: TopicPartition) -> Point | None:
        """The point of a partition, or None if the option forgot it."""
        return (
            self.everywhere
            or self.of_partition.get(partition)
            or self.of_topic.get(partition.topic)
        )


class Topics(NamedTuple):
    """Option `subscribe`: all partitions of these topics."""

    names: tuple[str, ...]


class Pattern(NamedTuple):
    """Option `subscribePattern`: all partitions of the topics whose whole name matches."""

    expression: str


class Partitions(NamedTuple):
    """Option `assign`: these partitions."""

    partitions: tuple[TopicPartition, ...]


Selection: TypeAlias = Topics | Pattern | Partitions


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """What to read, from where."""

    directory: str | None
    """A data directory; None: there is a broker."""
    bootstrap: str | None
    """Addresses of brokers; None: there is a directory."""
    selection: Selection
    starting: Bound
    ending: Bound
    starts_at_latest: bool
    """Whether a starting timestamp newer than all records gives no records instead of an error."""
    has_headers: bool
    fails_on_data_loss: bool
    task_count_min: int
    client_id: str
    request_timeout_ms: int


_NAMES = (
    "path",
    "kafka.bootstrap.servers",
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "startingOffsetsByTimestampStrategy",
    "includeHeaders",
    "failOnDataLoss",
    "minPartitions",
    "kafka.client.id",
    "kafka.isolation.level",
    "kafka.request.timeout.ms",
    "kafka.security.protocol",
)
"""Options that do something."""

_HARMLESS = frozenset(
    """
    groupidprefix kafka.group.id kafka.group.instance.id kafkaconsumer.polltimeoutms
    fetchoffset.numretries fetchoffset.retryintervalms maxoffsetspertrigger minoffsetspertrigger
    maxtriggerdelay kafka.max.poll.records kafka.max.poll.interval.ms kafka.session.timeout.ms
    kafka.heartbeat.interval.ms kafka.fetch.min.bytes kafka.fetch.max.bytes
    kafka.fetch.max.wait.ms kafka.max.partition.fetch.bytes kafka.receive.buffer.bytes
    kafka.send.buffer.bytes kafka.check.crcs kafka.client.dns.lookup kafka.client.rack
    kafka.connections.max.idle.ms kafka.default.api.timeout.ms kafka.metadata.max.age.ms
    kafka.reconnect.backoff.ms kafka.reconnect.backoff.max.ms kafka.retry.backoff.ms
    kafka.retry.backoff.max.ms kafka.socket.connection.setup.timeout.ms
    kafka.socket.connection.setup.timeout.max.ms
    kafka.allow.auto.create.topics kafka.partition.assignment.strategy
    """.split()  # noqa: SIM905 - forty quoted words are harder to read
)
"""Options that Spark's Kafka source has and that cannot change which rows come out here."""

_REFUSED = {
    "paths": "one directory is read at a time; read each and unite the DataFrames",
    "maxrecordsperpartition": "not available yet; minPartitions makes smaller tasks",
    "kafka.auto.offset.reset": "say startingOffsets instead",
    "kafka.key.deserializer": "keys are binary columns; convert them in a select",
    "kafka.value.deserializer": "values are binary columns; convert them in a select",
    "kafka.enable.auto.commit": "the source commits no offsets",
    "kafka.interceptor.classes": "there is no Java consumer that could run them",
}
"""Options that would change something, and what to do instead; all in lower case."""

_TASKS_MAX = 100_000
"""More tasks than this are a slip of the finger; planning them would take longer than reading."""

_SELECTIONS = ("subscribe", "subscribePattern", "assign")


def parse_options(given: Mapping[str, str]) -> SourceOptions:
    """The options of one `load()`; names in any case.

    Raises:
        ConfigError: unknown names, bad values and conflicts, all of them.
    """
    return _Parser(given).parse()


class _Parser:
    """Collects faults while it goes through the options."""

    def __init__(self, given: Mapping[str, str]) -> None:
        self._given = {name.lower(): value for name, value in given.items()}
        self._faults: list[str] = []

    def parse(self) -> SourceOptions:
        self._check_names()
        self._check_place()
        selection = self._selection()
        options = SourceOptions(
            directory=self._text("path"),
            bootstrap=self._text("kafka.bootstrap.servers"),
            selection=selection or Topics(()),
            starting=self._bound("starting", default=EARLIEST),
            ending=self._bound("ending", default=LATEST),
            starts_at_latest=self._choice("startingOffsetsByTimestampStrategy", ("error", "latest"))
            == "latest",
            has_headers=self._choice("includeHeaders", ("false", "true")) == "true",
            fails_on_data_loss=self._choice("failOnDataLoss", ("true", "false")) == "true",
            task_count_min=self._number("minPartitions", default=1, low=1, high=_TASKS_MAX),
            client_id=self._text("kafka.client.id") or "tailrace-spark",
            request_timeout_ms=self._number(
                "kafka.request.timeout.ms", default=REQUEST_TIMEOUT_MS, low=1, high=2**31 - 1
            ),
        )
        if self._faults:
            raise ConfigError(self._faults)
        return options

    def _text(self, name: str) -> str | None:
        return self._given.get(name.lower())

    def _fault(self, name: str, rule: str) -> None:
        self._faults.append(f"{name}: {rule}")

    def _check_names(self) -> None:
        known = {name.lower(): name for name in _NAMES}
        for name in self._given:
            if name in known or name in _HARMLESS:
                continue
            if name in _REFUSED:
                self._fault(name, _REFUSED[name])
            elif name.startswith(("kafka.ssl.", "kafka.sasl.")):
                self._fault(name, "encryption and authentication are not available yet")
            else:
                close = difflib.get_close_matches(name, known, n=1)
                hint = f"; did you mean {known[close[0]]}?" if close else ""
                self._fault(name, f"no such option{hint}")
        if (self._text("kafka.security.protocol") or "PLAINTEXT").upper() != "PLAINTEXT":
            self._fault("kafka.security.protocol", "only PLAINTEXT is available yet")
        if self._choice("kafka.isolation.level", ("read_uncommitted", "read_committed")) == (
            "read_committed"
        ):
            self._fault("kafka.isolation.level", "read_committed is not available yet")

    def _check_place(self) -> None:
        places = [name for name in ("path", "kafka.bootstrap.servers") if self._text(name)]
        if len(places) != 1:
            self._fault(
                "path, kafka.bootstrap.servers",
                f"give exactly one, a data directory or a broker; there {_are(places)}",
            )
        if "kafka.bootstrap.servers" in places:
            try:
                parse_bootstrap(self._text("kafka.bootstrap.servers") or "")
            except ConfigError as error:
                self._faults += error.faults

    def _selection(self) -> Selection | None:
        chosen = [name for name in _SELECTIONS if self._text(name) is not None]
        if len(chosen) != 1:
            self._fault(
                ", ".join(_SELECTIONS),
                f"give exactly one, which topics to read; there {_are(chosen)}",
            )
            return None
        name = chosen[0]
        text = self._text(name) or ""
        match name:
            case "subscribe":
                names = tuple(dict.fromkeys(part.strip() for part in text.split(",")))
                if not all(names):
                    self._fault(name, f"{text!r} is not a list of topics like a,b")
                return Topics(names)
            case "subscribePattern":
                try:
                    re.compile(text)
                except re.error as error:
                    self._fault(name, f"{text!r} is not a regular expression: {error}")
                return Pattern(text)
            case _:
                return Partitions(tuple(self._assigned(name, text)))

    def _assigned(self, name: str, text: str) -> list[TopicPartition]:
        example = '{"topic": [0, 1]}'
        parsed = self._json(name, text, example)
        found = []
        for topic, numbers in parsed.items():
            if isinstance(numbers, list) and all(_is_count(each) for each in numbers):
                found += [TopicPartition(topic, each) for each in sorted(set(numbers))]
            else:
                self._fault(name, f"{topic!r} has no list of partition numbers like {example}")
        if not found and not self._faults:
            self._fault(name, "no partition is named")
        return found

    def _bound(self, side: str, *, default: Point) -> Bound:
        """One end; a timestamp for all goes before one by partition, and that before offsets."""
        names = (f"{side}Timestamp", f"{side}OffsetsByTimestamp", f"{side}Offsets")
        given = [name for name in names if self._text(name) is not None]
        if not given:
            return Bound(option=names[-1], everywhere=default)
        option = given[0]
        text = (self._text(option) or "").strip()
        if option == names[0]:
            return Bound(
                option=option,
                everywhere=Point(
                    PointKind.TIMESTAMP, self._number(option, default=0, low=0, high=2**63 - 1)
                ),
            )
        if option == names[1]:
            return self._json_bound(option, text, self._timestamp_point)
        refused = LATEST if side == "starting" else EARLIEST
        point = _ends_of_log(text)
        if point == refused:
            self._fault(option, f"{text!r} is not possible when reading a batch")
        if point is not None:
            return Bound(option=option, everywhere=point)
        return self._json_bound(option, text, lambda value: self._offset_point(value, refused))

    def _json_bound(
        self, option: str, text: str, point_of: Callable[[object], Point | str]
    ) -> Bound:
        example = '{"topic": {"0": 23, "1": 170}}'
        of_partition: dict[TopicPartition, Point] = {}
        of_topic: dict[str, Point] = {}
        for topic, values in self._json(option, text, example).items():
            if isinstance(values, str):
                values = {"": values}  # noqa: PLW2901 - the short form says the long one
            if not isinstance(values, dict):
                self._fault(option, f"{topic!r} has no offsets by partition like {example}")
                continue
            for number, value in values.items():
                point = point_of(value)
                if isinstance(point, str):
                    self._fault(option, f"{topic}-{number}: {point}" if number else point)
                elif not number:
                    of_topic[topic] = point
                elif number.isascii() and number.isdigit():
                    of_partition[TopicPartition(topic, int(number))] = point
                else:
                    self._fault(option, f"{topic!r} has {number!r} in place of a partition number")
        return Bound(option=option, of_partition=of_partition, of_topic=of_topic)

    @staticmethod
    def _timestamp_point(value: object) -> Point | str:
        if _is_count(value):
            return Point(PointKind.TIMESTAMP, int(str(value)))
        return f"{value!r} is not a time in milliseconds since 1970"

    @staticmethod
    def _offset_point(value: object, refused: Point) -> Point | str:
        point: Point | None
        match value:
            case str():
                point = _ends_of_log(value)
            case SpecialTimestamp.EARLIEST:
                point = EARLIEST
            case SpecialTimestamp.LATEST:
                point = LATEST
            case int() if _is_count(value):
                point = Point(PointKind.OFFSET, value)
            case _:
                point = None
        if point is None:
            return f"{value!r} is not an offset"
        if point == refused:
            return f"{value!r} ({refused.kind.value}) is not possible here when reading a batch"
        return point

    def _json(self, name: str, text: str, example: str) -> dict[str, Any]:
        try:
            parsed = json.loads(text)
        except (ValueError, RecursionError):
            parsed = None
        if isinstance(parsed, dict):
            return parsed
        self._fault(name, f"{text!r} is not JSON like {example}")
        return {}

    def _choice(self, name: str, choices: tuple[str, str]) -> str:
        """The value in lower case; the first choice where there is none."""
        value = (self._text(name) or choices[0]).strip().lower()
        if value not in choices:
            self._fault(name, f"{value!r} is not one of {', '.join(choices)}")
        return value

    def _number(self, name: str, *, default: int, low: int, high: int) -> int:
        text = (self._text(name) or str(default)).strip()
        if not (text.isascii() and text.isdigit() and len(text) < 20 and low <= int(text) <= high):
            self._fault(name, f"{text!r} is not a whole number from {low} to {high}")
            return default
        return int(text)


def _ends_of_log(text: str) -> Point | None:
    return {"earliest": EARLIEST, "latest": LATEST}.get(text.strip().lower())


def _is_count(value: object) -> bool:
    """Whether JSON gave a whole number that an offset, a timestamp or a partition may be."""
    return type(value) is int and 0 <= value < 1 << 63


def _are(names: list[str]) -> str:
    return f"are {', '.join(names)}" if names else "is none"
