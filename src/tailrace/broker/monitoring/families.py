# ruff: noqa: E501 - a line for each metric, which is one row of a table
"""The metrics of a node: names, kinds, labels, and what they say.

    kafka_...      as the usual exporters of Apache Kafka name them, so that boards made for these
                   work: Prometheus' JMX exporter with the rules of Strimzi (`..._total`) and with
                   those of Confluent (`...persec`), and kafka_exporter for topics and groups
    tailrace_...   what Kafka has no name for

A value is left out where there is none, and is never a zero that means so.
"""

from collections.abc import Mapping
from functools import cache
from typing import Final, NamedTuple

_TABLE: Final = """\
kafka_server_brokertopicmetrics_messagesin_total counter topic? | Records appended as leader; without a topic: of all.
kafka_server_brokertopicmetrics_bytesin_total counter topic? | Bytes of their batches.
kafka_server_brokertopicmetrics_bytesout_total counter topic? | Bytes of records in answers to consumers.
kafka_server_brokertopicmetrics_totalproducerequests_total counter topic? | Batches that producers have sent.
kafka_server_brokertopicmetrics_totalfetchrequests_total counter topic? | Partitions that Fetch requests were answered for.
kafka_server_brokertopicmetrics_failedproducerequests_total counter topic? | Batches that were refused, without errors of every day such as a leader that has moved.
kafka_server_brokertopicmetrics_failedfetchrequests_total counter topic? | Partitions answered with such an error.
kafka_server_brokertopicmetrics_replicationbytesin_total counter | Bytes of batches fetched from leaders.
kafka_server_brokertopicmetrics_replicationbytesout_total counter | Bytes of records in answers to followers.

kafka_server_replicamanager_partitioncount gauge | Partitions that are served.
kafka_server_replicamanager_leadercount gauge | Partitions that this broker leads.
kafka_server_replicamanager_offlinereplicacount gauge | Partitions whose log directory has failed.
kafka_server_replicamanager_underreplicatedpartitions gauge | Led partitions whose ISR lacks a replica.
kafka_server_replicamanager_underminisrpartitioncount gauge | Led partitions whose ISR is too small for acks=all.
kafka_server_replicamanager_atminisrpartitioncount gauge | Led partitions whose ISR is just large enough.
kafka_server_replicamanager_isrshrinks_total counter | Times that a led partition's ISR has lost a replica.
kafka_server_replicamanager_isrexpands_total counter | Times that one has joined it again.
kafka_server_replicafetchermanager_maxlag gauge clientId | Largest number of records that a followed partition lacks.
kafka_server_replicafetchermanager_failedpartitionscount gauge clientId | Followed partitions that are not fetched until they have another leader.
kafka_cluster_partition_underreplicated gauge topic partition | 1: the ISR of the led partition lacks a replica.
kafka_cluster_partition_underminisr gauge topic partition | 1: its ISR is too small for acks=all.
kafka_cluster_partition_atminisr gauge topic partition | 1: its ISR is just large enough.
kafka_cluster_partition_replicascount gauge topic partition | Its replicas.
kafka_cluster_partition_insyncreplicascount gauge topic partition | Its replicas in sync.
kafka_cluster_partition_laststableoffsetlag gauge topic partition | Records above the last stable offset: of open transactions, and what follows them.

kafka_log_log_size gauge topic partition | Bytes of the partition's segments, without indexes.
kafka_log_log_logstartoffset gauge topic partition | First offset.
kafka_log_log_logendoffset gauge topic partition | Offset of the next record.
kafka_log_log_numlogsegments gauge topic partition | Segments.
kafka_log_logmanager_offlinelogdirectorycount gauge | Log directories that are out of service.
kafka_log_logmanager_logdirectoryoffline gauge logDirectory | 1: it is out of service.
kafka_log_logcleaner_max_clean_time_secs gauge | Duration of the longest round of compaction.
kafka_log_logcleaner_max_buffer_utilization_percent gauge | Load of the fullest map of keys.
kafka_log_logcleaner_max_compaction_delay_secs gauge | Longest delay of a record beyond max.compaction.lag.ms.
kafka_log_logflushstats_logflushrateandtimems_count counter | Flushes to the devices that have ended.

kafka_network_requestmetrics_requests_total counter request version | Requests that were answered.
kafka_network_requestmetrics_errors_total counter request error | Answers, or parts of answers, by their error; NONE: without one.
kafka_network_requestmetrics_localtimems summary request | Time in the handler until it has the answer, or begins to wait.
kafka_network_requestmetrics_remotetimems summary request | Time for which it waits: for followers, for records, for a coordinator or a thread.
kafka_network_requestmetrics_totaltimems summary request | Both together.
kafka_network_socketserver_networkprocessoravgidle_percent gauge | Part of the time, from 0 to 1, in which the event loop had nothing to do, since the last scrape.
kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent gauge | The same: one loop does the work of both pools.
kafka_server_socket_server_metrics_connection_count gauge listener networkProcessor | Open connections.
kafka_server_socket_server_metrics_connection_creation_total counter listener networkProcessor | Connections that were accepted.
kafka_server_socket_server_metrics_connection_close_total counter listener networkProcessor | Connections that have ended.
kafka_server_socket_server_metrics_connection_creation_rate gauge listener networkProcessor | Connections accepted in a second, since the last scrape.
kafka_server_socket_server_metrics_connection_close_rate gauge listener networkProcessor | Connections that have ended in a second, since the last scrape.

kafka_server_kafkaserver_brokerstate gauge | 3: it serves; 2: it opens its logs; 1: it starts; 6: it stops.
kafka_server_kafkaserver_linux_disk_read_bytes gauge | Bytes that this process has had read from devices.
kafka_server_kafkaserver_linux_disk_write_bytes gauge | Bytes that it has had written to devices.
kafka_server_fetchsessioncache_numincrementalfetchsessions gauge | Fetch sessions.
kafka_server_fetchsessioncache_numincrementalfetchpartitionscached gauge | Partitions in them.
kafka_server_fetchsessioncache_incrementalfetchsessionevictions_total counter | Sessions that others have replaced.
kafka_server_produce_byte_rate gauge user client_id | Bytes a second of a client with a quota.
kafka_server_produce_throttle_time gauge user client_id | Milliseconds for which its answer would be throttled now.
kafka_server_fetch_byte_rate gauge user client_id | The rate of what it fetches.
kafka_server_fetch_throttle_time gauge user client_id | The time for that.
kafka_server_request_request_time gauge user client_id | Percent of a thread that its requests take.
kafka_server_request_throttle_time gauge user client_id | The time for that.

kafka_coordinator_group_groupmetadatamanager_numgroups gauge | Groups of the classic protocol.
kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance gauge | Those whose members join again.
kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance gauge | Those that wait for the assignment.
kafka_coordinator_group_groupmetadatamanager_numgroupsstable gauge | Those whose members have it.
kafka_coordinator_group_groupmetadatamanager_numgroupsdead gauge | Those that are gone.
kafka_coordinator_group_groupmetadatamanager_numgroupsempty gauge | Those without members.
kafka_coordinator_group_groupmetadatamanager_numoffsets gauge | Committed offsets, one for each group and partition.

kafka_controller_kafkacontroller_activecontrollercount gauge | 1: this node is the active controller.
kafka_controller_kafkacontroller_activebrokercount gauge | Registered brokers that are not fenced.
kafka_controller_kafkacontroller_fencedbrokercount gauge | Registered brokers that are.
kafka_controller_kafkacontroller_globaltopiccount gauge | Topics of the cluster.
kafka_controller_kafkacontroller_globalpartitioncount gauge | Partitions of the cluster.
kafka_controller_kafkacontroller_offlinepartitionscount gauge | Partitions without a leader.
kafka_controller_kafkacontroller_preferredreplicaimbalancecount gauge | Partitions that another replica than the preferred one leads.
kafka_server_raftmetrics_current_leader gauge | Node id of the active controller; -1: not known.
kafka_server_raftmetrics_current_epoch gauge | Epoch in which it leads.
kafka_server_raftmetrics_current_state gauge current_state | 1 for the state of this node: leader, or observer.
kafka_server_raftmetrics_high_watermark gauge | Offset after the last committed record of the metadata log; -1: not known.
kafka_server_raftmetrics_log_end_offset gauge | Offset after its last record here.
kafka_server_raftmetrics_append_records_rate gauge | Records that the controller has written in a second, since the last scrape.
kafka_server_raftmetrics_fetch_records_rate gauge | Records that a broker has fetched in a second, since the last scrape.
kafka_server_brokermetadatametrics_last_applied_record_offset gauge | Last offset that is in the broker's image.
kafka_server_brokermetadatametrics_metadata_load_error_count gauge | Requests in a row to controllers that have brought nothing.

kafka_brokers gauge | Brokers that are not fenced.
kafka_broker_info gauge id address | 1 for each of them.
kafka_topic_partitions gauge topic | Partitions of a topic of which this broker leads one.
kafka_topic_partition_current_offset gauge topic partition | Offset after the last record that consumers may read, of a led partition.
kafka_topic_partition_oldest_offset gauge topic partition | Its first offset.
kafka_topic_partition_leader gauge topic partition | Node id of its leader.
kafka_topic_partition_replicas gauge topic partition | Its replicas.
kafka_topic_partition_in_sync_replica gauge topic partition | Its replicas in sync.
kafka_topic_partition_leader_is_preferred gauge topic partition | 1: its leader is the preferred one.
kafka_topic_partition_under_replicated_partition gauge topic partition | 1: its ISR lacks a replica.
kafka_consumergroup_members gauge consumergroup | Members of a group that this broker coordinates.
kafka_consumergroup_current_offset gauge consumergroup topic partition | Offset that the group has committed.
kafka_consumergroup_current_offset_sum gauge consumergroup topic | Sum over the partitions of a topic.
kafka_consumergroup_lag gauge consumergroup topic partition | Records that it has not committed yet.
kafka_consumergroup_lag_sum gauge consumergroup topic | Sum over the partitions of a topic.

tailrace_ready gauge | 1: /readyz says that the node is ready.
tailrace_loop_delay_seconds gauge | Longest time, since the last scrape, by which the event loop was late.
tailrace_request_buffer_bytes gauge | Memory for requests that are not completely received.
tailrace_request_memory_bytes gauge | Memory that large requests hold or have reserved (queued.max.request.bytes).
tailrace_log_bytes gauge logDirectory | Bytes of all logs in a directory, without indexes.
tailrace_directory_free_bytes gauge logDirectory | Room that the file system of a directory has left.
tailrace_compaction_running gauge | Logs that are being compacted.
tailrace_compaction_failed gauge | Logs that could not be compacted, and are tried again later.
tailrace_moves_running gauge | Partitions that move to another log directory.
tailrace_flush_seconds_total counter | Duration of all flushes to the devices.
tailrace_flushes_waiting gauge | Logs that wait for a flush.
tailrace_throttled_total counter quota | Requests that were throttled, by the quota.
tailrace_transactions gauge state | Transactional ids by the state of their transaction.
tailrace_transaction_timeouts_total counter | Transactions that were aborted because they were open for too long.
tailrace_offset_commits_total counter | Offsets that groups have committed.
tailrace_rebalances_total counter protocol | Rebalances, by the protocol of the group.
"""


class Family(NamedTuple):
    """A metric."""

    name: str
    kind: str
    """counter, gauge, or summary: quantiles in milliseconds, as gauges, and a count."""
    labels: tuple[str, ...]
    is_totalled: bool
    """Whether it is there without labels too."""
    text: str


@cache
def families() -> Mapping[str, Family]:
    """All metrics by name."""
    found = {}
    for line in filter(None, _TABLE.splitlines()):
        head, _, text = line.partition(" | ")
        name, kind, *labels = head.split()
        is_totalled = any(each.endswith("?") for each in labels)
        names = tuple(each.rstrip("?") for each in labels)
        found[name] = Family(name, kind, names, is_totalled, text)
    return found


_CONFLUENT: Final = {
    "kafka_server_socket_server_metrics_": "kafka_server_socketservermetrics_",
    "kafka_server_raftmetrics_": "kafka_server_raft_metrics_",
    "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent":
        "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
    "kafka_network_socketserver_networkprocessoravgidle_percent":
        "kafka_network_socketserver_networkprocessoravgidlepercent",
}  # fmt: skip
_PER_SECOND: Final = (
    "kafka_server_brokertopicmetrics_", "kafka_server_replicamanager_isr",
    "kafka_network_requestmetrics_", "kafka_server_fetchsessioncache_",
)  # fmt: skip


def confluent_name(name: str) -> str | None:
    """The name of the same metric by Confluent's rules; None: it is no other one."""
    if name.endswith("_total") and name.startswith(_PER_SECOND):
        return f"{name.removesuffix('_total')}persec"
    for start, theirs in _CONFLUENT.items():
        if name.startswith(start) and not name.endswith("_total"):
            return theirs + name.removeprefix(start)
    return None


@cache
def family_of(name: str) -> Family:
    """The metric that a name is of: its own, Confluent's, or that of the count of a summary."""
    known = families()
    if name in known:
        return known[name]
    for family in known.values():
        names = [family.name, f"{family.name}_count"] if family.kind == "summary" else [family.name]
        if any(name in (each, confluent_name(each)) for each in names):
            return family
    raise KeyError(name)
