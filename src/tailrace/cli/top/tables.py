"""Tables of what two snapshots of a cluster say: values, and rates between them. Pure.

    topics, groups, brokers, requests     of the whole cluster
    partitions of a topic, offsets of a group, facts of a broker

A value that is not known is None, and is never a zero that means so.
"""

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from enum import Enum
from math import inf
from typing import Final, NamedTuple

from tailrace.cli.top.metrics import Scrape, quantile_ms, request_rate, requests_in
from tailrace.cli.top.snapshot import GroupState, Snapshot
from tailrace.client.reader import PartitionDescription
from tailrace.errors import counted
from tailrace.model import TopicPartition
from tailrace.offline.show import printable

Value = str | int | float | None

GROUP_WINDOW_S: Final = 10.0
"""Least time between the snapshots of a group's rates: consumers commit every 5 s by default."""


class Kind(Enum):
    """Kinds of values, which decide how they are written."""

    TEXT = "text"
    COUNT = "count"
    """A number that may be rounded: 12.3k."""
    EXACT = "exact"
    """An offset or id, with all digits."""
    RATE = "rate"
    """A count in a second, with its sign if it may fall."""
    BYTES = "bytes"
    PART = "part"
    """From 0 to 1, as a percentage."""
    MILLISECONDS = "milliseconds"
    SECONDS = "seconds"
    """A duration; infinite: never."""


class Column(NamedTuple):
    """A column of a table."""

    key: str
    """Its name in JSON."""
    title: str
    kind: Kind = Kind.TEXT

    @property
    def is_right(self) -> bool:
        """Whether its cells end in one line, as numbers do."""
        return self.kind is not Kind.TEXT

    @property
    def rises(self) -> bool:
        """Whether it is sorted from the smallest on: of numbers the largest are looked for."""
        return self.kind in (Kind.TEXT, Kind.EXACT)


class Mood(Enum):
    """The urgency of a row."""

    FINE = "fine"
    WARN = "warn"
    BAD = "bad"


class Row(NamedTuple):
    """A row of a table."""

    key: str
    """By which it is found again in the next snapshot."""
    values: tuple[Value, ...]
    mood: Mood = Mood.FINE


class Table(NamedTuple):
    """Rows with the same columns."""

    name: str
    columns: tuple[Column, ...]
    rows: tuple[Row, ...]
    empty: str = ""
    """Why there are no rows, for the screen."""

    def texts(self, rows: Iterable[Row]) -> list[list[str]]:
        """The cells of some of its rows."""
        kinds = [each.kind for each in self.columns]
        return [list(map(shown, kinds, row.values)) for row in rows]


class History:
    """The snapshots that rates are made of: the newest, the one before, and an older one.

    The older one is `GROUP_WINDOW_S` to twice that old, or as old as possible before that.
    """

    def __init__(self, first: Snapshot) -> None:
        self.now = self.before = self.base = first
        self._next_base = first

    def add(self, snapshot: Snapshot) -> None:
        """Take a newer snapshot; those that are not needed any more are forgotten."""
        self.before, self.now = self.now, snapshot
        if snapshot.at - self._next_base.at >= GROUP_WINDOW_S:
            self.base, self._next_base = self._next_base, snapshot


def _rate(
    now: float | None, then: float | None, *, seconds: float | None, can_fall: bool = False
) -> float | None:
    if now is None or then is None or not seconds or seconds < 0:
        return None
    # A topic that was deleted and made again, or a broker that has cut its log.
    return None if now < then and not can_fall else (now - then) / seconds


def end_rate(
    partition: TopicPartition, leader: int, *, now: Snapshot, then: Snapshot
) -> float | None:
    """Records in a second that the log of a partition has got, on the clock of its leaders."""
    previous = _partition(then, partition)
    if previous is None or leader not in now.ends_at or previous.leader not in then.ends_at:
        return None
    seconds = now.ends_at[leader] - then.ends_at[previous.leader]
    return _rate(now.ends.get(partition), then.ends.get(partition), seconds=seconds)


def _partition(snapshot: Snapshot, partition: TopicPartition) -> PartitionDescription | None:
    topic = snapshot.topics.get(partition.topic)
    if topic is None:
        return None
    # Numbers have no gaps, except with a broker that leaves partitions out.
    if (
        partition.partition < len(topic.partitions)
        and topic.partitions[partition.partition].partition == partition.partition
    ):
        return topic.partitions[partition.partition]
    return next((p for p in topic.partitions if p.partition == partition.partition), None)


Sizes = Mapping[tuple[int, TopicPartition], int]
"""Bytes of logs by broker and partition."""


def sizes_of(snapshot: Snapshot) -> Sizes:
    """Bytes of each replica; of one that is moved to another directory, of both its logs."""
    found: Counter[tuple[int, TopicPartition]] = Counter()
    for broker, directories in snapshot.directories.items():
        for directory in directories.values():
            for partition, each in directory.replicas.items():
                found[broker, partition] += each.size
    return found


class _Partition(NamedTuple):
    """A partition with its values."""

    name: TopicPartition
    at: PartitionDescription
    end: int | None
    rate: float | None
    byte_rate: float | None
    size: int | None
    """Bytes on disk, of all replicas that are known."""

    @property
    def is_short(self) -> bool:
        return len(self.at.isr) < len(self.at.replicas)


def _partitions(
    names: Iterable[str], now: Snapshot, then: Snapshot, *, sizes: Sizes, old_sizes: Sizes
) -> Iterator[_Partition]:
    seconds = now.at - then.at
    for topic in names:
        for each in now.topics[topic].partitions:
            name = TopicPartition(topic, each.partition)
            key = (each.leader, name)
            # The log of the leader alone: those of followers follow.
            byte_rate = _rate(sizes.get(key), old_sizes.get(key), seconds=seconds, can_fall=True)
            known = [size for r in each.replicas if (size := sizes.get((r, name))) is not None]
            yield _Partition(
                name,
                each,
                now.ends.get(name),
                end_rate(name, each.leader, now=now, then=then),
                byte_rate,
                sum(known) if known else None,
            )


def _total(values: Iterable[float | None]) -> float | None:
    known = [each for each in values if each is not None]
    return sum(known) if known else None


def _mood(*, is_bad: bool, is_warning: bool = False) -> Mood:
    return Mood.BAD if is_bad else Mood.WARN if is_warning else Mood.FINE


_TOPICS: Final = (
    Column("topic", "topic"),
    Column("records_per_s", "records/s", Kind.RATE),
    Column("bytes_per_s", "bytes/s", Kind.BYTES),
    Column("partitions", "partitions", Kind.COUNT),
    Column("under_replicated", "under-repl", Kind.COUNT),
    Column("leaderless", "no leader", Kind.COUNT),
    Column("moving", "moving", Kind.COUNT),
    Column("bytes", "size", Kind.BYTES),
)
_PARTITIONS: Final = (
    Column("partition", "partition", Kind.EXACT),
    Column("leader", "leader", Kind.EXACT),
    Column("end_offset", "end offset", Kind.EXACT),
    Column("records_per_s", "records/s", Kind.RATE),
    Column("bytes_per_s", "bytes/s", Kind.BYTES),
    Column("bytes", "size", Kind.BYTES),
    Column("isr", "in sync"),
    Column("replicas", "replicas"),
    Column("state", "state"),
)
_LAG: Final = (
    Column("lag", "lag", Kind.COUNT),
    Column("lag_per_s", "lag/s", Kind.RATE),
    Column("records_per_s", "records/s", Kind.RATE),
    Column("catch_up_s", "caught up in", Kind.SECONDS),
)
_GROUPS: Final = (
    Column("group", "group"),
    Column("state", "state"),
    Column("group_type", "type"),
    Column("members", "members", Kind.COUNT),
    *_LAG,
    Column("coordinator", "broker", Kind.EXACT),
)
_OFFSETS: Final = (
    Column("partition", "partition"),
    Column("committed_offset", "committed", Kind.EXACT),
    Column("log_end_offset", "end offset", Kind.EXACT),
    *_LAG,
    Column("member", "member"),
)
_BROKERS: Final = (
    Column("broker", "broker", Kind.EXACT),
    Column("state", "state"),
    Column("leaders", "leaders", Kind.COUNT),
    Column("replicas", "replicas", Kind.COUNT),
    Column("records_per_s", "records/s", Kind.RATE),
    Column("bytes", "size", Kind.BYTES),
    Column("usable_bytes", "free", Kind.BYTES),
    Column("connections", "conns", Kind.COUNT),
    Column("requests_per_s", "requests/s", Kind.RATE),
    Column("bytes_in_per_s", "in/s", Kind.BYTES),
    Column("bytes_out_per_s", "out/s", Kind.BYTES),
    Column("idle", "idle", Kind.PART),
    Column("replica_lag", "repl lag", Kind.COUNT),
    Column("compacting", "compacting", Kind.COUNT),
    Column("memory_bytes", "memory", Kind.BYTES),
    Column("rack", "rack"),
    Column("address", "address"),
)
_REQUESTS: Final = (
    Column("request", "request"),
    Column("requests_per_s", "requests/s", Kind.RATE),
    Column("errors_per_s", "errors/s", Kind.RATE),
    Column("p50_ms", "50 %", Kind.MILLISECONDS),
    Column("p99_ms", "99 %", Kind.MILLISECONDS),
)
_FACTS: Final = (Column("fact", "fact"), Column("value", "value"), Column("per_s", "per second"))


class Overview:
    """The tables of a history, each made when it is asked for, and kept."""

    def __init__(self, history: History) -> None:
        self.now, self.before, self.base = history.now, history.before, history.base
        self._sizes, self._old_sizes = sizes_of(self.now), sizes_of(self.before)
        self._made: dict[tuple[str, str], Table] = {}
        self.partitions = tuple(
            _partitions(
                self.now.topics, self.now, self.before,
                sizes=self._sizes, old_sizes=self._old_sizes,
            )
        )  # fmt: skip

    def table(self, name: str, about: str = "") -> Table:
        """The table with this name, about one topic, group or broker where it is of one."""
        found = self._made.get((name, about))
        if found is None:
            make: Callable[[str], Table] = {
                "topics": self._topics,
                "groups": self._groups,
                "brokers": self._brokers,
                "requests": self._requests,
                "partitions": self._partitions_of,
                "offsets": self._offsets_of,
                "facts": self._facts_of,
            }[name]
            found = self._made[name, about] = make(about)
        return found

    def lags(self) -> float | None:
        """The lag of all groups together."""
        return _total(_lag(each, self.now)[0] for each in self.now.groups.values())

    def _topics(self, _: str) -> Table:
        parts: dict[str, list[_Partition]] = {name: [] for name in self.now.topics}
        for each in self.partitions:
            parts[each.name.topic].append(each)
        rows = []
        for name, own in parts.items():
            short = sum(each.is_short for each in own)
            leaderless = sum(each.at.leader < 0 for each in own)
            is_partial = any(each.at.leader in self.now.silent for each in own)
            values: tuple[Value, ...] = (
                name,
                _total(each.rate for each in own),
                _total(each.byte_rate for each in own),
                len(own),
                short,
                leaderless,
                sum(each.name in self.now.moving for each in own),
                _total(each.size for each in own),
            )
            rows.append(
                Row(name, values, _mood(is_bad=leaderless > 0 or is_partial, is_warning=short > 0))
            )
        return Table("topics", _TOPICS, tuple(rows), "there are no topics")

    def _partitions_of(self, topic: str) -> Table:
        rows = []
        for each in self.partitions:
            if each.name.topic != topic:
                continue
            states = [
                word
                for word, is_so in (
                    ("no leader", each.at.leader < 0),
                    ("leader is silent", each.at.leader in self.now.silent),
                    ("under-replicated", each.is_short),
                    ("not preferred", each.at.leader not in (-1, *each.at.replicas[:1])),
                    ("moving", each.name in self.now.moving),
                )
                if is_so
            ]
            values: tuple[Value, ...] = (
                each.name.partition,
                each.at.leader if each.at.leader >= 0 else None,
                each.end,
                each.rate,
                each.byte_rate,
                each.size,
                " ".join(map(str, each.at.isr)),
                " ".join(map(str, each.at.replicas)),
                ", ".join(states),
            )
            mood = _mood(
                is_bad=each.at.leader < 0 or each.at.leader in self.now.silent,
                is_warning=each.is_short,
            )
            rows.append(Row(str(each.name.partition), values, mood))
        return Table("partitions", _PARTITIONS, tuple(rows), f"topic {topic} is gone")

    def _groups(self, _: str) -> Table:
        rows = []
        for name, each in self.now.groups.items():
            lag, known_count = _lag(each, self.now)
            old = self.base.groups.get(name)
            lag_rate, read_rate = self._group_rates(each, old, each.committed or ())
            values: tuple[Value, ...] = (
                name,
                each.listing.state or None,
                each.listing.type or None,
                each.members,
                lag,
                lag_rate,
                read_rate,
                catch_up_s(lag, lag_rate),
                each.coordinator,
            )
            # The lag is of the other partitions alone: somebody has to look.
            is_partial = each.committed is None or known_count < len(each.committed)
            rows.append(Row(name, values, _lag_mood(lag, lag_rate, is_partial=is_partial)))
        return Table("groups", _GROUPS, tuple(rows), "there are no groups")

    def _group_rates(
        self, group: GroupState, old: GroupState | None, partitions: Iterable[TopicPartition]
    ) -> tuple[float | None, float | None]:
        """The change of the lag in these partitions, and of the committed offsets, in a second."""
        if old is None or old.committed is None or group.committed is None:
            return None, None
        read: list[float | None] = []
        lags: list[float | None] = []
        for each in partitions:
            leader = _partition(self.now, each)
            committed = _rate(
                group.committed.get(each), old.committed.get(each),
                seconds=group.at - old.at, can_fall=True,
            )  # fmt: skip
            written = (
                None
                if leader is None
                else end_rate(each, leader.leader, now=self.now, then=self.base)
            )
            read.append(committed)
            lags.append(None if committed is None or written is None else written - committed)
        return _total(lags), _total(read)

    def _offsets_of(self, group: str) -> Table:
        own, old = self.now.groups.get(group), self.base.groups.get(group)
        if own is None:
            return Table("offsets", _OFFSETS, (), f"group {group} is gone, or its broker is silent")
        committed = own.committed or {}
        rows = []
        for each in sorted(committed.keys() | own.owners.keys()):
            end, offset = self.now.ends.get(each), committed.get(each)
            lag = None if end is None or offset is None else max(end - offset, 0)
            lag_rate, read_rate = self._group_rates(own, old, [each])
            values: tuple[Value, ...] = (
                str(each),
                offset,
                end,
                lag,
                lag_rate,
                read_rate,
                catch_up_s(lag, lag_rate),
                own.owners.get(each),
            )
            rows.append(Row(str(each), values, _lag_mood(lag, lag_rate, is_partial=end is None)))
        return Table(
            "offsets",
            _OFFSETS,
            tuple(rows),
            f"group {group} has no offsets and no members",
        )

    def _brokers(self, _: str) -> Table:
        leaders: Counter[int] = Counter()
        replicas: Counter[int] = Counter()
        rates: dict[int, list[float | None]] = {}
        for each in self.partitions:
            leaders[each.at.leader] += 1
            replicas.update(each.at.replicas)
            rates.setdefault(each.at.leader, []).append(each.rate)
        rows = []
        for number, broker in self.now.brokers.items():
            directories = self.now.directories.get(number, {}).values()
            free = [each.usable_bytes for each in directories if each.usable_bytes >= 0]
            is_silent = number in self.now.silent
            state = "fenced" if broker.is_fenced else "silent" if is_silent else "answers"
            offline = any(each.error is not None for each in directories)
            values: tuple[Value, ...] = (
                number,
                state if not offline else "disk lost",
                leaders[number],
                replicas[number],
                _total(rates.get(number, [0.0])),
                sum(log.size for each in directories for log in each.replicas.values())
                if number in self.now.directories
                else None,
                # Directories may be on one volume, whose room is not theirs together.
                min(free, default=None),
                *_measured(self.now.scrapes.get(number)),
                broker.rack,
                f"{broker.host}:{broker.port}",
            )
            rows.append(Row(str(number), values, _mood(is_bad=is_silent or offline)))
        return Table("brokers", _BROKERS, tuple(rows))

    def _requests(self, _: str) -> Table:
        scrapes = self.now.scrapes.values()
        names = sorted(set[str]().union(*(requests_in(each.page) for each in scrapes)))
        rows = []
        for name in names:
            errors = [
                rate
                for each in scrapes
                for code in _error_codes(each, name)
                if (
                    rate := each.per_s(
                        "kafka_network_requestmetrics_errors_total", request=name, error=code
                    )
                )
                is not None
            ]
            rate = _total(
                each.per_s("kafka_network_requestmetrics_requests_total", request=name)
                for each in scrapes
            )
            # Quantiles cannot be added: shown is the slowest broker.
            slowest = [
                max((t for each in scrapes if (t := quantile_ms(each.page, name, q)) is not None),
                    default=None)
                for q in ("0.5", "0.99")
            ]  # fmt: skip
            values = (name, rate, sum(errors) if rate is not None else None, *slowest)
            rows.append(Row(name, values, _mood(is_bad=False, is_warning=sum(errors) > 0)))
        return Table(
            "requests", _REQUESTS, tuple(rows),
            "no broker shows metrics: set tailrace.http.listener, or give --metrics",
        )  # fmt: skip

    def _facts_of(self, broker: str) -> Table:
        number = int(broker)
        node, scrape = self.now.brokers.get(number), self.now.scrapes.get(number)
        if node is None:
            return Table("facts", _FACTS, (), f"broker {broker} is gone")
        facts: list[tuple[str, Value, Value, Mood]] = [
            ("address", f"{node.host}:{node.port}", None, Mood.FINE),
            ("rack", node.rack, None, Mood.FINE),
            ("answers", self.now.silent.get(number, "yes"), None,
             _mood(is_bad=number in self.now.silent)),
        ]  # fmt: skip
        for path, each in self.now.directories.get(number, {}).items():
            error = None if each.error is None else str(each.error)
            size = shown(Kind.BYTES, sum(log.size for log in each.replicas.values()))
            free = "-" if each.usable_bytes < 0 else shown(Kind.BYTES, each.usable_bytes)
            said = error or f"{counted(len(each.replicas), 'log')}, {size}, free {free}"
            facts.append((f"directory {printable(path)}", said, None, _mood(is_bad=bool(error))))
        for name, kind, metrics, limit in _METRIC_FACTS if scrape is not None else ():
            value = None if scrape is None else scrape.page.total(*metrics)
            if value is None or scrape is None:
                continue
            is_counter = metrics[0].endswith("_total")
            rate = scrape.per_s(*metrics) if is_counter else None
            written = None if rate is None else shown(_PER_S.get(kind, Kind.RATE), rate)
            warns = limit is not None and value > limit
            facts.append((name, shown(kind, value), written, _mood(is_bad=False, is_warning=warns)))
        return Table(
            "facts", _FACTS,
            tuple(Row(name, (name, value, rate), mood) for name, value, rate, mood in facts),
        )  # fmt: skip


_METRIC_FACTS: Final[Sequence[tuple[str, Kind, tuple[str, ...], float | None]]] = (
    ("records in", Kind.COUNT, ("kafka_server_brokertopicmetrics_messagesin_total",), None),
    ("bytes in", Kind.BYTES, ("kafka_server_brokertopicmetrics_bytesin_total",), None),
    ("bytes out", Kind.BYTES, ("kafka_server_brokertopicmetrics_bytesout_total",), None),
    ("connections", Kind.COUNT, ("kafka_server_socket_server_metrics_connection_count",
        "kafka_server_socketservermetrics_connection_count"), None),
    ("connections accepted", Kind.COUNT,
        ("kafka_server_socket_server_metrics_connection_creation_total",), None),
    ("event loop idle", Kind.PART, ("kafka_network_socketserver_networkprocessoravgidle_percent",),
        None),
    ("event loop late", Kind.SECONDS, ("tailrace_loop_delay_seconds",), 1.0),
    ("memory of the process", Kind.BYTES, ("process_resident_memory_bytes",), None),
    ("memory of large requests", Kind.BYTES, ("tailrace_request_memory_bytes",), None),
    ("memory of incomplete requests", Kind.BYTES, ("tailrace_request_buffer_bytes",), None),
    ("open files", Kind.COUNT, ("process_open_fds",), None),
    ("CPU seconds", Kind.COUNT, ("process_cpu_seconds_total",), None),
    ("compaction: running", Kind.COUNT, ("tailrace_compaction_running",), None),
    ("compaction: failed", Kind.COUNT, ("tailrace_compaction_failed",), 0),
    ("compaction: longest round", Kind.SECONDS, ("kafka_log_logcleaner_max_clean_time_secs",),
        None),
    ("compaction: latest by", Kind.SECONDS, ("kafka_log_logcleaner_max_compaction_delay_secs",),
        None),
    ("replication: largest lag", Kind.COUNT, ("kafka_server_replicafetchermanager_maxlag",), None),
    ("replication: failed partitions", Kind.COUNT,
        ("kafka_server_replicafetchermanager_failedpartitionscount",), 0),
    ("replication: bytes in", Kind.BYTES,
        ("kafka_server_brokertopicmetrics_replicationbytesin_total",), None),
    ("replication: bytes out", Kind.BYTES,
        ("kafka_server_brokertopicmetrics_replicationbytesout_total",), None),
    ("replication: under-replicated", Kind.COUNT,
        ("kafka_server_replicamanager_underreplicatedpartitions",), 0),
    ("replication: ISR shrinks", Kind.COUNT, ("kafka_server_replicamanager_isrshrinks_total",),
        None),
    ("flushes waiting", Kind.COUNT, ("tailrace_flushes_waiting",), None),
    ("requests throttled", Kind.COUNT, ("tailrace_throttled_total",), None),
    ("rebalances", Kind.COUNT, ("tailrace_rebalances_total",), None),
)  # fmt: skip
"""Facts by the metrics that have them, and the value from which on they are a warning."""

_PER_S: Final = {Kind.BYTES: Kind.BYTES}


def _error_codes(scrape: Scrape, request: str) -> set[str]:
    found = scrape.page.samples.get("kafka_network_requestmetrics_errors_total", {})
    labels = [dict(each) for each in found]
    return {
        each["error"]
        for each in labels
        if each.get("request") == request and each.get("error") not in (None, "NONE")
    }


def _measured(scrape: Scrape | None) -> tuple[float | None, ...]:
    """The columns of `_BROKERS` that metrics tell."""
    if scrape is None:
        return (None,) * 8
    page, prefix = scrape.page, "kafka_server_brokertopicmetrics"
    connections = "kafka_server_socket_server_metrics_connection_count"
    idle = "kafka_network_socketserver_networkprocessoravgidle_percent"
    return (
        page.total(connections, "kafka_server_socketservermetrics_connection_count"),
        request_rate(scrape),
        scrape.per_s(f"{prefix}_bytesin_total"),
        scrape.per_s(f"{prefix}_bytesout_total"),
        page.total(idle),
        page.total("kafka_server_replicafetchermanager_maxlag"),
        page.total("tailrace_compaction_running"),
        page.total("process_resident_memory_bytes"),
    )


def _lag(group: GroupState, now: Snapshot) -> tuple[int | None, int]:
    """Records that a group has not committed, and the number of partitions that it is of."""
    lags = [
        max(end - offset, 0)
        for partition, offset in (group.committed or {}).items()
        if (end := now.ends.get(partition)) is not None
    ]
    return (sum(lags) if lags else None), len(lags)


def catch_up_s(lag: int | None, lag_rate: float | None) -> float | None:
    """Seconds until the lag is zero if it continues to change so; infinite if it does not fall."""
    if lag == 0:
        return 0.0
    if lag is None or lag_rate is None:
        return None
    return inf if lag_rate >= 0 else lag / -lag_rate


def _lag_mood(lag: int | None, lag_rate: float | None, *, is_partial: bool) -> Mood:
    is_warning = bool(lag) and lag_rate is not None and lag_rate > 0
    return _mood(is_bad=is_partial, is_warning=is_warning)


def shown(kind: Kind, value: Value) -> str:
    """A value in the words of a cell; - where it is not known."""
    if value is None:
        return "-"
    if isinstance(value, str):
        return printable(value) or "-"
    match kind:
        case Kind.TEXT | Kind.EXACT:
            return str(value)
        case Kind.COUNT | Kind.RATE:
            return _scaled(value, 1000, ("", "k", "M", "G", "T"))
        case Kind.BYTES:
            return _scaled(value, 1024, (" B", " KiB", " MiB", " GiB", " TiB"))
        case Kind.PART:
            return f"{value:.0%}"
        case Kind.MILLISECONDS:
            return f"{value:.3g} ms" if value < 100 else f"{value:.0f} ms"
        case Kind.SECONDS:
            return _duration(value)


def _scaled(value: float, step: int, units: Sequence[str]) -> str:
    size, unit = float(value), 0
    # Four digits are as short as three with a unit.
    if abs(size) >= (10_000 if step == 1000 else step):
        while abs(size) >= step and unit < len(units) - 1:
            size, unit = size / step, unit + 1
    digits = 0 if abs(size) >= 99.95 or size == int(size) else 1
    return f"{size:.{digits}f}{units[unit]}"


def _duration(seconds: float) -> str:
    if seconds == inf:
        return "never"
    if seconds < 10:
        return f"{seconds:.2g} s"
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"
