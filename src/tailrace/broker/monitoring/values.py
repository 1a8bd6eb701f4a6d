"""`Values`: the values of all metrics of a node at one moment.

They are read on the event loop, where nothing changes meanwhile, and in slices: there may be ten
thousand partitions and groups. So a whole scrape is of no one moment, but each value is true.
"""

import asyncio
import shutil
import time
from collections import Counter
from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple

from tailrace.broker.monitoring.families import confluent_name, family_of
from tailrace.coordinator.groups.classic_group import ClassicGroup
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.runtime.slices import Slices
from tailrace.security.quotas import QuotaKind
from tailrace.server.request_times import quantiles_s

if TYPE_CHECKING:
    from tailrace.broker.broker import RunningBroker
    from tailrace.broker.controller.node import ControllerNode, ControllerStatistics
    from tailrace.broker.monitoring.leader_ends import LeaderEnds
    from tailrace.cluster.metadata.image import MetadataImage
    from tailrace.replication.partition import Partition
    from tailrace.replication.traffic import Traffic
    from tailrace.server.listener import ServerStatistics
    from tailrace.server.request_times import RequestTimes

QUANTILES: Final = (0.5, 0.75, 0.95, 0.98, 0.99, 0.999)
"""The quantiles of Kafka's histograms."""

_TRAFFIC: Final = {
    "messagesin": "messages_in",
    "bytesin": "bytes_in",
    "bytesout": "bytes_out",
    "totalproducerequests": "produce_requests",
    "totalfetchrequests": "fetch_requests",
    "failedproducerequests": "failed_produce_requests",
    "failedfetchrequests": "failed_fetch_requests",
}
_QUOTAS: Final = {
    QuotaKind.PRODUCE: ("kafka_server_produce", "byte_rate"),
    QuotaKind.FETCH: ("kafka_server_fetch", "byte_rate"),
    QuotaKind.REQUEST_TIME: ("kafka_server_request", "request_time"),
}
_STATES: Final = {
    "PreparingRebalance": "preparingrebalance",
    "CompletingRebalance": "completingrebalance",
    "Stable": "stable",
    "Dead": "dead",
    "Empty": "empty",
}
_PARTITION_COUNTS: Final = (
    "partitioncount", "leadercount", "underreplicatedpartitions", "underminisrpartitioncount",
    "atminisrpartitioncount",
)  # fmt: skip
_NO_LEADER: Final = -1

STARTING, RECOVERING, RUNNING = 1, 2, 3
"""States of a broker, by Kafka's numbers."""


class Value(NamedTuple):
    """One value of a metric."""

    name: str
    labels: Mapping[str, str]
    value: float


class Values:
    """Collects values; `of_broker` and `of_controller` fill it."""

    def __init__(self) -> None:
        self.found: dict[str, list[Value]] = {}
        """By the name of the metric, in the order in which they were added."""
        self.directories: list[str] = []
        """Log directories in service; see `add_room`."""

    def add(self, name: str, value: float, *labels: object, quantile: float | None = None) -> None:
        """Add a value, with its labels in the order in which the metric has them.

        Under both names where there are two.
        """
        named = dict(zip(family_of(name).labels, map(str, labels), strict=False))
        if quantile is not None:
            named["quantile"] = f"{quantile:g}"
        self.found.setdefault(name, []).append(Value(name, named, value))
        other = confluent_name(name)
        if other is not None:
            self.found.setdefault(other, []).append(Value(other, named, value))


def add_room(values: Values) -> None:
    """Add the free bytes of the directories; not on the event loop, since a device may hang."""
    for path in values.directories:
        with suppress(OSError):
            values.add("tailrace_directory_free_bytes", shutil.disk_usage(path).free, path)


class Meter:
    """Rates between two scrapes, and how busy and how late the event loop was; made on the loop."""

    INTERVAL_S: Final = 0.25

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._loop = asyncio.get_running_loop()
        self._clock = clock
        self._wall_s, self._cpu_s = clock(), time.thread_time()
        self._totals: dict[tuple[str, str], tuple[float, float]] = {}
        """Totals, and when they were read."""
        self._late_s = self._due_s = 0.0
        self._timer: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Measure how late the loop is from now on; a second time changes nothing."""
        if self._timer is not None:
            return
        self._due_s = self._loop.time() + self.INTERVAL_S
        self._timer = self._loop.call_at(self._due_s, self._tick)

    def _tick(self) -> None:
        now_s = self._loop.time()
        self._late_s = max(self._late_s, now_s - self._due_s)
        self._due_s = now_s + self.INTERVAL_S
        self._timer = self._loop.call_at(self._due_s, self._tick)

    def take(self) -> tuple[float, float]:
        """The part of the time in which the loop did nothing, and its longest delay in seconds.

        Begins a scrape: both are since the last one.
        """
        wall_s, cpu_s = self._clock(), time.thread_time()
        passed_s = max(wall_s - self._wall_s, 1e-9)
        idle = min(max(1 - (cpu_s - self._cpu_s) / passed_s, 0.0), 1.0)
        late_s, self._late_s = self._late_s, 0.0
        self._wall_s, self._cpu_s = wall_s, cpu_s
        return idle, late_s

    def rate(self, name: str, total: float, label: str = "") -> float:
        """The growth of a total in a second since the last scrape; 0 in the first one."""
        # Each by its own time: a scrape takes a while, and another one may begin meanwhile.
        now = total, self._clock()
        (before, at_s), self._totals[name, label] = self._totals.get((name, label), now), now
        return (total - before) / max(now[1] - at_s, 1e-9)

    def close(self) -> None:
        """Measure no more."""
        if self._timer is not None:
            self._timer.cancel()


async def of_broker(
    broker: "RunningBroker", times: "RequestTimes", meter: Meter, *, ends: "LeaderEnds | None"
) -> Values:
    """The values of a broker; `ends` asks other brokers, if there are any."""
    values, slices = Values(), Slices()
    _add_process(values, meter, server=broker.server_statistics(), times=times)
    _add_traffic(values, broker.replicas.traffic)
    await slices.turn()
    await _add_partitions(values, broker, slices)
    await _add_directories(values, broker, slices)
    _add_work(values, broker)
    await slices.turn()
    await _add_groups(values, broker, slices, ends=ends)
    await _add_transactions(values, broker, slices)
    _add_metadata(values, broker, meter)
    return values


def of_controller(
    controller: "ControllerNode", times: "RequestTimes", meter: Meter, *, node_id: int
) -> Values:
    """The values of a controller that is no broker."""
    values, statistics = Values(), controller.statistics()
    _add_process(values, meter, server=statistics.server, times=times)
    _add_cluster(values, controller.image)
    _add_controller(values, node_id, statistics, meter=meter)
    return values


def _add_process(
    values: Values, meter: Meter, *, server: "ServerStatistics", times: "RequestTimes"
) -> None:
    idle, late_s = meter.take()
    values.add("kafka_network_socketserver_networkprocessoravgidle_percent", idle)
    values.add("kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent", idle)
    values.add("tailrace_loop_delay_seconds", late_s)
    values.add("tailrace_request_buffer_bytes", server.buffered_bytes)
    values.add("tailrace_request_memory_bytes", server.claimed_bytes)
    # Kafka has several network threads, and numbers them.
    for listener, count in server.connections.items():
        values.add("kafka_server_socket_server_metrics_connection_count", count, listener, 0)
    prefix = "kafka_server_socket_server_metrics_connection"
    for listener, count in server.accepted.items():
        closed = count - server.connections[listener]
        for way, total in (("creation", count), ("close", closed)):
            values.add(f"{prefix}_{way}_total", total, listener, 0)
            values.add(f"{prefix}_{way}_rate", meter.rate(way, total, listener), listener, 0)
    for line in _io_lines():
        key, _, text = line.partition(": ")
        if key in ("read_bytes", "write_bytes"):
            values.add(f"kafka_server_kafkaserver_linux_disk_{key}", int(text))
    times.turn()
    for request, each in times.apis.items():
        for version, count in each.versions.items():
            values.add("kafka_network_requestmetrics_requests_total", count, request, version)
        for code, count in each.errors.items():
            error = ErrorCode(code).name if code in set(ErrorCode) else str(code)
            values.add("kafka_network_requestmetrics_errors_total", count, request, error)
        for stage, counts in each.stages().items():
            name = f"kafka_network_requestmetrics_{stage}timems"
            for quantile, seconds in zip(QUANTILES, quantiles_s(counts, QUANTILES), strict=True):
                values.add(name, seconds * 1000, request, quantile=quantile)
            values.add(f"{name}_count", each.count, request)


def _io_lines() -> list[str]:
    # Of Linux alone, and not everywhere allowed.
    with suppress(OSError):
        return Path("/proc/self/io").read_text().splitlines()
    return []


def _add_traffic(values: Values, traffic: "Traffic") -> None:
    total = traffic.total()
    for name, field in _TRAFFIC.items():
        family = f"kafka_server_brokertopicmetrics_{name}_total"
        values.add(family, getattr(total, field))
        for topic, each in traffic.topics.items():
            values.add(family, getattr(each, field), topic)
    for way in ("in", "out"):
        family = f"kafka_server_brokertopicmetrics_replicationbytes{way}_total"
        values.add(family, getattr(total, f"replication_bytes_{way}"))
    values.add("kafka_server_replicamanager_isrshrinks_total", total.isr_shrinks)
    values.add("kafka_server_replicamanager_isrexpands_total", total.isr_expands)


async def _add_partitions(values: Values, broker: "RunningBroker", slices: Slices) -> None:
    manager, node_id = "kafka_server_replicamanager", broker.config.node_id
    counts: Counter[str] = Counter()
    led_topics: set[str] = set()
    for name in broker.replicas.names():
        partition = broker.replicas.get(name)
        if partition is None or broker.replicas.is_offline(name):
            continue
        counts["partitioncount"] += 1
        log, labels = partition.log, (name.topic, name.partition)
        values.add("kafka_log_log_size", log.size, *labels)
        values.add("kafka_log_log_logstartoffset", log.start_offset, *labels)
        values.add("kafka_log_log_logendoffset", log.end_offset, *labels)
        values.add("kafka_log_log_numlogsegments", len(log.segments), *labels)
        if partition.is_leader:
            led_topics.add(name.topic)
            spare, leadership = partition.insync_spare, partition.leadership
            counts["leadercount"] += 1
            counts["atminisrpartitioncount"] += spare == 0
            counts["underminisrpartitioncount"] += spare < 0
            is_short = leadership is not None and leadership.is_under_replicated
            counts["underreplicatedpartitions"] += is_short
            _add_led(values, broker.cluster.metadata, partition, node_id=node_id)
        await slices.turn()
    for count in _PARTITION_COUNTS:
        values.add(f"{manager}_{count}", counts[count])
    values.add(f"{manager}_offlinereplicacount", broker.replicas.offline_count)
    image = broker.cluster.image
    for topic in led_topics & image.topics.keys():
        values.add("kafka_topic_partitions", len(image.topics[topic].partitions), topic)


def _add_led(
    values: Values, image: "MetadataImage", partition: "Partition", *, node_id: int
) -> None:
    name, log, leadership = partition.name, partition.log, partition.leadership
    labels = (name.topic, name.partition)
    replica_count, isr_count = 1, 1
    if leadership is not None:
        replica_count, isr_count = 1 + len(leadership.followers), len(leadership.isr)
    is_short = leadership is not None and leadership.is_under_replicated
    topic = image.topic(name.topic)
    state = None if topic is None else topic.partitions.get(name.partition)
    spare, positions = partition.insync_spare, log.positions
    readable = positions.high_watermark
    cluster, exporter = "kafka_cluster_partition", "kafka_topic_partition"
    for family, value in (
        (f"{cluster}_underreplicated", is_short),
        (f"{cluster}_underminisr", spare < 0),
        (f"{cluster}_atminisr", spare == 0),
        (f"{cluster}_replicascount", replica_count),
        (f"{cluster}_insyncreplicascount", isr_count),
        (f"{cluster}_laststableoffsetlag", max(readable - positions.last_stable, 0)),
        (f"{exporter}_current_offset", readable),
        (f"{exporter}_oldest_offset", log.start_offset),
        (f"{exporter}_leader", node_id),
        (f"{exporter}_replicas", replica_count),
        (f"{exporter}_in_sync_replica", isr_count),
        (f"{exporter}_leader_is_preferred", state is None or state.replicas[0] == node_id),
        (f"{exporter}_under_replicated_partition", is_short),
    ):
        values.add(family, value, *labels)


async def _add_directories(values: Values, broker: "RunningBroker", slices: Slices) -> None:
    logs, failed = broker.logs, dict(broker.logs.left_out)
    for directory in logs.directories:
        if directory.failure is not None:
            failed[directory.path] = directory.failure
            continue
        size = 0
        for log in tuple(directory):
            size += log.size
            await slices.turn()
        values.directories.append(directory.path)
        values.add("tailrace_log_bytes", size, directory.path)
        values.add("kafka_log_logmanager_logdirectoryoffline", 0, directory.path)
    for path in failed:
        values.add("kafka_log_logmanager_logdirectoryoffline", 1, path)
    values.add("kafka_log_logmanager_offlinelogdirectorycount", len(failed))


def _add_work(values: Values, broker: "RunningBroker") -> None:
    """The work beside requests: compaction, moves, flushes, fetch sessions, quotas."""
    cleaner, flushes = broker.cleaner.statistics(), broker.flushes.statistics()
    values.add("kafka_log_logcleaner_max_clean_time_secs", cleaner.seconds_max)
    values.add("kafka_log_logcleaner_max_buffer_utilization_percent", cleaner.map_load_max * 100)
    values.add("kafka_log_logcleaner_max_compaction_delay_secs", cleaner.delay_ms_max / 1000)
    values.add("tailrace_compaction_running", cleaner.cleaning_count)
    values.add("tailrace_compaction_failed", cleaner.failed_logs)
    values.add("tailrace_moves_running", len(broker.moves.statistics().moving))
    values.add("kafka_log_logflushstats_logflushrateandtimems_count", flushes.flush_count)
    values.add("tailrace_flush_seconds_total", flushes.seconds_total)
    values.add("tailrace_flushes_waiting", flushes.waiting_count)
    sessions = broker.fetch_sessions.statistics()
    cache = "kafka_server_fetchsessioncache"
    values.add(f"{cache}_numincrementalfetchsessions", sessions.session_count)
    values.add(f"{cache}_numincrementalfetchpartitionscached", sessions.partition_count)
    values.add(f"{cache}_incrementalfetchsessionevictions_total", sessions.evicted_count)
    for quota, count in broker.quotas.statistics().throttled_count.items():
        values.add("tailrace_throttled_total", count, quota)
    for kind, (family, rated) in _QUOTAS.items():
        for (user, client_id), rate, throttle_ms in broker.quotas.rates(kind):
            values.add(f"{family}_{rated}", rate, user, client_id)
            values.add(f"{family}_throttle_time", throttle_ms, user, client_id)
    following = broker.following_statistics()
    if following is not None:
        fetchers = "kafka_server_replicafetchermanager"
        values.add(f"{fetchers}_maxlag", following.lag_max, "Replica")
        values.add(f"{fetchers}_failedpartitionscount", following.failed_count, "Replica")


async def _add_groups(
    values: Values, broker: "RunningBroker", slices: Slices, *, ends: "LeaderEnds | None"
) -> None:
    elsewhere: Mapping[TopicPartition, int] = {}
    if ends is not None:
        elsewhere = await ends.find(await _unknown_ends(broker, slices))
    states: Counter[str] = Counter()
    offset_count = 0
    for machine in tuple(broker.coordinators.groups.machines()):
        for group_id, group in tuple(machine.groups.by_id.items()):
            if isinstance(group, ClassicGroup):
                states[group.state.value] += 1
            values.add("kafka_consumergroup_members", len(group.members), group_id)
            await slices.turn()
        for group_id, offsets in tuple(machine.groups.offsets.committed.items()):
            offset_count += len(offsets)
            committed = {name: each.offset for name, each in offsets.items()}
            await _add_lag(values, broker, group_id, slices=slices, committed=committed,
                           elsewhere=elsewhere)  # fmt: skip
    prefix = "kafka_coordinator_group_groupmetadatamanager_num"
    values.add(f"{prefix}groups", states.total())
    for state, name in _STATES.items():
        values.add(f"{prefix}groups{name}", states[state])
    values.add(f"{prefix}offsets", offset_count)
    counts = broker.coordinators.group_counts
    values.add("tailrace_offset_commits_total", counts.committed.total)
    values.add("tailrace_rebalances_total", counts.classic_rebalances, "classic")
    values.add("tailrace_rebalances_total", counts.consumer_rebalances, "consumer")


async def _unknown_ends(broker: "RunningBroker", slices: Slices) -> set[TopicPartition]:
    """The partitions with committed offsets here whose ends only their leaders know."""
    found: set[TopicPartition] = set()
    for machine in tuple(broker.coordinators.groups.machines()):
        for offsets in tuple(machine.groups.offsets.committed.values()):
            for name in tuple(offsets):
                if name not in found and broker.readable_end(name) is None:
                    found.add(name)
                await slices.turn()
    return found


async def _add_lag(
    values: Values,
    broker: "RunningBroker",
    group_id: str,
    *,
    slices: Slices,
    committed: Mapping[TopicPartition, int],
    elsewhere: Mapping[TopicPartition, int],
) -> None:
    sums: Counter[str] = Counter()
    lags: Counter[str] = Counter()
    unknown: set[str] = set()
    for name, offset in committed.items():
        labels = (group_id, name.topic, name.partition)
        values.add("kafka_consumergroup_current_offset", offset, *labels)
        sums[name.topic] += offset
        end = broker.readable_end(name)
        end = elsewhere.get(name) if end is None else end
        if end is None:
            unknown.add(name.topic)
        else:
            lag = max(end - offset, 0)
            values.add("kafka_consumergroup_lag", lag, *labels)
            lags[name.topic] += lag
        await slices.turn()
    for topic, total in sums.items():
        values.add("kafka_consumergroup_current_offset_sum", total, group_id, topic)
    for topic, total in lags.items():
        # A part of the lag would look like all of it.
        if topic not in unknown:
            values.add("kafka_consumergroup_lag_sum", total, group_id, topic)


async def _add_transactions(values: Values, broker: "RunningBroker", slices: Slices) -> None:
    states: Counter[str] = Counter()
    for machine in tuple(broker.coordinators.transactions.machines()):
        for each in tuple(machine):
            states[each.status.label] += 1
            await slices.turn()
    for state, count in states.items():
        values.add("tailrace_transactions", count, state)
    timed_out = broker.coordinators.transaction_counts.timed_out
    values.add("tailrace_transaction_timeouts_total", timed_out.total)


def _add_metadata(values: Values, broker: "RunningBroker", meter: Meter) -> None:
    image, node = broker.cluster.metadata, broker.controller_node
    values.add("kafka_server_kafkaserver_brokerstate", RUNNING)
    for broker_id, each in image.brokers.items():
        if each.fenced or not each.end_points:
            continue
        endpoint = each.end_points[0]
        values.add("kafka_broker_info", 1, broker_id, f"{endpoint.host}:{endpoint.port}")
    values.add("kafka_brokers", sum(not each.fenced for each in image.brokers.values()))
    if node is not None:
        _add_cluster(values, image)
        _add_controller(values, broker.config.node_id, node.statistics(), meter=meter)
        return
    metadata = broker.metadata_statistics()
    if metadata is None:
        # The only node, which is its own controller.
        _add_cluster(values, image)
        values.add("kafka_controller_kafkacontroller_activecontrollercount", 1)
        return
    raft, applied = "kafka_server_raftmetrics", "kafka_server_brokermetadatametrics"
    leader = metadata.leader
    values.add(f"{raft}_current_leader", _NO_LEADER if leader is None else leader.id)
    values.add(f"{raft}_current_epoch", metadata.epoch)
    values.add(f"{raft}_current_state", 1, "observer")
    values.add(f"{raft}_high_watermark", metadata.high_watermark)
    values.add(f"{raft}_log_end_offset", metadata.end_offset)
    values.add(f"{raft}_fetch_records_rate", meter.rate("records", metadata.end_offset))
    values.add(f"{applied}_last_applied_record_offset", metadata.applied_offset)
    values.add(f"{applied}_metadata_load_error_count", metadata.failures)


def _add_cluster(values: Values, image: "MetadataImage") -> None:
    """The cluster as controllers show it."""
    prefix = "kafka_controller_kafkacontroller"
    partitions = [each for topic in image.topics.values() for each in topic.partitions.values()]
    offline = [each for each in partitions if each.leader == _NO_LEADER]
    other = [each for each in partitions if each.leader not in (_NO_LEADER, each.replicas[0])]
    fenced = sum(each.fenced for each in image.brokers.values())
    values.add(f"{prefix}_activebrokercount", len(image.brokers) - fenced)
    values.add(f"{prefix}_fencedbrokercount", fenced)
    values.add(f"{prefix}_globaltopiccount", len(image.topics))
    values.add(f"{prefix}_globalpartitioncount", len(partitions))
    values.add(f"{prefix}_offlinepartitionscount", len(offline))
    values.add(f"{prefix}_preferredreplicaimbalancecount", len(other))


def _add_controller(
    values: Values, node_id: int, statistics: "ControllerStatistics", *, meter: Meter
) -> None:
    values.add("kafka_controller_kafkacontroller_activecontrollercount", 1)
    raft = "kafka_server_raftmetrics"
    values.add(f"{raft}_current_leader", node_id)
    values.add(f"{raft}_current_epoch", statistics.epoch)
    values.add(f"{raft}_current_state", 1, "leader")
    values.add(f"{raft}_high_watermark", statistics.watermark)
    values.add(f"{raft}_log_end_offset", statistics.end_offset)
    values.add(f"{raft}_append_records_rate", meter.rate("records", statistics.end_offset))
