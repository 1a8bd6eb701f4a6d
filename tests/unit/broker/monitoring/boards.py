"""The metrics that the most used Grafana boards for Kafka ask for, by board.

Read from the boards' JSON in August 2026: Strimzi's (`strimzi-kafka`, `strimzi-kraft`,
`strimzi-kafka-exporter`), Confluent's of its `jmx-monitoring-stacks` (`kafka-cluster-kraft`,
`kafka-topics-kraft`, `kafka-quotas`, `kraft`), and kafka_exporter's (Grafana's board 7589).
"""

from collections.abc import Mapping
from typing import Final

_TRAFFIC: Final = (
    "bytesin", "bytesout", "failedfetchrequests", "failedproducerequests", "messagesin",
    "totalfetchrequests", "totalproducerequests",
)  # fmt: skip

BOARDS: Final[Mapping[str, frozenset[str]]] = {
    "Strimzi Kafka": frozenset(
        {f"kafka_server_brokertopicmetrics_{each}_total" for each in _TRAFFIC}
        | {
            "kafka_cluster_partition_atminisr",
            "kafka_cluster_partition_replicascount",
            "kafka_cluster_partition_underminisr",
            "kafka_controller_controllerstats_uncleanleaderelections_total",
            "kafka_controller_kafkacontroller_activecontrollercount",
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "kafka_log_log_size",
            "kafka_network_socketserver_networkprocessoravgidle_percent",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidle_percent",
            "kafka_server_kafkaserver_linux_disk_read_bytes",
            "kafka_server_kafkaserver_linux_disk_write_bytes",
            "kafka_server_replicamanager_leadercount",
            "kafka_server_replicamanager_partitioncount",
            "kafka_server_replicamanager_underreplicatedpartitions",
            "kafka_server_socket_server_metrics_connection_count",
            "process_open_fds",
        }
    ),
    "Strimzi's alerts": frozenset(
        {
            "kafka_controller_kafkacontroller_activecontrollercount",
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "kafka_log_logmanager_offlinelogdirectorycount",
            "kafka_server_replicamanager_underminisrpartitioncount",
            "kafka_server_replicamanager_underreplicatedpartitions",
        }
    ),
    "Strimzi KRaft": frozenset(
        {
            "kafka_server_raftchannelmetrics_incoming_byte_total",
            "kafka_server_raftchannelmetrics_outgoing_byte_total",
            "kafka_server_raftchannelmetrics_request_total",
            "kafka_server_raftchannelmetrics_response_total",
            "kafka_server_raftmetrics_append_records_rate",
            "kafka_server_raftmetrics_commit_latency_avg",
            "kafka_server_raftmetrics_current_epoch",
            "kafka_server_raftmetrics_current_leader",
            "kafka_server_raftmetrics_current_state",
            "kafka_server_raftmetrics_current_vote",
            "kafka_server_raftmetrics_fetch_records_rate",
            "kafka_server_raftmetrics_high_watermark",
            "kafka_server_raftmetrics_log_end_offset",
            "process_open_fds",
        }
    ),
    "Strimzi Kafka Exporter": frozenset(
        {
            "kafka_broker_info",
            "kafka_cluster_partition_atminisr",
            "kafka_cluster_partition_underminisr",
            "kafka_consumergroup_current_offset",
            "kafka_consumergroup_lag",
            "kafka_topic_partition_current_offset",
            "kafka_topic_partition_in_sync_replica",
            "kafka_topic_partition_leader_is_preferred",
            "kafka_topic_partition_oldest_offset",
            "kafka_topic_partition_replicas",
            "kafka_topic_partition_under_replicated_partition",
            "kafka_topic_partitions",
        }
    ),
    "kafka_exporter overview": frozenset(
        {
            "kafka_consumergroup_current_offset",
            "kafka_consumergroup_lag",
            "kafka_topic_partition_current_offset",
            "kafka_topic_partitions",
        }
    ),
    "Confluent Kafka Cluster": frozenset(
        {
            "kafka_cluster_partition_underminisr",
            "kafka_controller_controllerstats_uncleanleaderelectionspersec",
            "kafka_controller_kafkacontroller_activecontrollercount",
            "kafka_controller_kafkacontroller_offlinepartitionscount",
            "kafka_controller_kafkacontroller_preferredreplicaimbalancecount",
            "kafka_coordinator_group_groupmetadatamanager_numgroups",
            "kafka_coordinator_group_groupmetadatamanager_numgroupscompletingrebalance",
            "kafka_coordinator_group_groupmetadatamanager_numgroupsdead",
            "kafka_coordinator_group_groupmetadatamanager_numgroupsempty",
            "kafka_coordinator_group_groupmetadatamanager_numgroupspreparingrebalance",
            "kafka_coordinator_group_groupmetadatamanager_numgroupsstable",
            "kafka_log_log_size",
            "kafka_log_log_tiersize",
            "kafka_network_acceptor_acceptorblockedpercent",
            "kafka_network_requestchannel_requestqueuesize",
            "kafka_network_requestchannel_responsequeuesize",
            "kafka_network_requestmetrics_errorspersec",
            "kafka_network_requestmetrics_localtimems",
            "kafka_network_requestmetrics_remotetimems",
            "kafka_network_requestmetrics_requestqueuetimems",
            "kafka_network_requestmetrics_requestspersec",
            "kafka_network_requestmetrics_responsequeuetimems",
            "kafka_network_requestmetrics_responsesendtimems",
            "kafka_network_requestmetrics_totaltimems",
            "kafka_network_socketserver_networkprocessoravgidlepercent",
            "kafka_server_brokertopicmetrics_bytesinpersec",
            "kafka_server_brokertopicmetrics_bytesoutpersec",
            "kafka_server_brokertopicmetrics_fetchmessageconversionspersec",
            "kafka_server_brokertopicmetrics_messagesinpersec",
            "kafka_server_brokertopicmetrics_producemessageconversionspersec",
            "kafka_server_fetchsessioncache_incrementalfetchsessionevictionspersec",
            "kafka_server_fetchsessioncache_numincrementalfetchsessions",
            "kafka_server_kafkarequesthandlerpool_requesthandleravgidlepercent_oneminuterate",
            "kafka_server_kafkaserver_brokerstate",
            "kafka_server_kafkaserver_linux_disk_read_bytes",
            "kafka_server_kafkaserver_linux_disk_write_bytes",
            "kafka_server_replicafetchermanager_maxlag",
            "kafka_server_replicafetchermanager_minfetchrate",
            "kafka_server_replicamanager_isrexpandspersec",
            "kafka_server_replicamanager_isrshrinkspersec",
            "kafka_server_replicamanager_leadercount",
            "kafka_server_replicamanager_partitioncount",
            "kafka_server_replicamanager_straypartitionscount",
            "kafka_server_replicamanager_straypartitionsmisclassifiedcount",
            "kafka_server_replicamanager_straypartitionstotalsize",
            "kafka_server_replicamanager_underreplicatedpartitions",
            "kafka_server_socketservermetrics_connection_close_rate",
            "kafka_server_socketservermetrics_connection_count",
            "kafka_server_socketservermetrics_connection_creation_rate",
            "kafka_server_socketservermetrics_connections",
            "kafka_tier_tasks_archive_tierarchiver_bytespersec",
            "kafka_tier_tasks_archive_tierarchiver_retriespersec",
            "kafka_tier_tasks_archive_tierarchiver_totallag",
            "kafka_tier_tasks_tiertasks_numpartitionsinerror",
            "process_cpu_seconds_total",
        }
    ),
    "Confluent Kafka Topics": frozenset(
        {
            "kafka_controller_kafkacontroller_globalpartitioncount",
            "kafka_controller_kafkacontroller_globaltopiccount",
            "kafka_log_log_logendoffset",
            "kafka_log_log_logstartoffset",
            "kafka_log_log_size",
            "kafka_log_log_tiersize",
            "kafka_server_brokertopicmetrics_bytesinpersec",
            "kafka_server_brokertopicmetrics_bytesoutpersec",
            "kafka_server_brokertopicmetrics_messagesinpersec",
            "kafka_server_brokertopicmetrics_totalfetchrequestspersec",
            "kafka_server_brokertopicmetrics_totalproducerequestspersec",
            "kafka_server_kafkaserver_brokerstate",
        }
    ),
    "Confluent Kafka Quotas": frozenset(
        {
            "kafka_server_fetch_byte_rate",
            "kafka_server_fetch_throttle_time",
            "kafka_server_kafkaserver_brokerstate",
            "kafka_server_produce_byte_rate",
            "kafka_server_produce_throttle_time",
            "kafka_server_request_request_time",
            "kafka_server_request_throttle_time",
        }
    ),
    "Confluent KRaft": frozenset(
        {
            "kafka_controller_controllereventmanager_eventqueueprocessingtimems",
            "kafka_controller_controllereventmanager_eventqueuetimems",
            "kafka_controller_kafkacontroller_activebrokercount",
            "kafka_controller_kafkacontroller_fencedbrokercount",
            "kafka_controller_kafkacontroller_lastappliedrecordlagms",
            "kafka_controller_kafkacontroller_metadataerrorcount",
            "kafka_server_raft_metrics_append_records_rate",
            "kafka_server_raft_metrics_commit_latency_avg",
            "kafka_server_raft_metrics_current_epoch",
            "kafka_server_raft_metrics_current_leader",
            "kafka_server_raft_metrics_election_latency_max",
            "kafka_server_raft_metrics_fetch_records_rate",
            "kafka_server_raft_metrics_high_watermark",
            "process_cpu_seconds_total",
        }
    ),
}
"""The names of their queries, without those of Java's, of Kubernetes' and of the machine's."""

NOT_SERVED: Final[Mapping[str, str]] = {
    name: why
    for why, names in {
        "there is no tiered storage": (
            "kafka_log_log_tiersize kafka_tier_tasks_archive_tierarchiver_bytespersec "
            "kafka_tier_tasks_archive_tierarchiver_retriespersec "
            "kafka_tier_tasks_archive_tierarchiver_totallag "
            "kafka_tier_tasks_tiertasks_numpartitionsinerror"
        ),
        "there are no queues between threads": (
            "kafka_network_acceptor_acceptorblockedpercent "
            "kafka_network_requestchannel_requestqueuesize "
            "kafka_network_requestchannel_responsequeuesize "
            "kafka_network_requestmetrics_requestqueuetimems "
            "kafka_network_requestmetrics_responsequeuetimems "
            "kafka_controller_controllereventmanager_eventqueueprocessingtimems "
            "kafka_controller_controllereventmanager_eventqueuetimems"
        ),
        "answers leave in the turn in which they are made": (
            "kafka_network_requestmetrics_responsesendtimems"
        ),
        "nothing is converted, as in Kafka 4": (
            "kafka_server_brokertopicmetrics_fetchmessageconversionspersec "
            "kafka_server_brokertopicmetrics_producemessageconversionspersec"
        ),
        "Kafka 4 has no such metric": (
            "kafka_server_replicamanager_straypartitionscount "
            "kafka_server_replicamanager_straypartitionsmisclassifiedcount "
            "kafka_server_replicamanager_straypartitionstotalsize"
        ),
        "a controller is a quorum of one, or Kafka's": (
            "kafka_server_raftchannelmetrics_incoming_byte_total "
            "kafka_server_raftchannelmetrics_outgoing_byte_total "
            "kafka_server_raftchannelmetrics_request_total "
            "kafka_server_raftchannelmetrics_response_total "
            "kafka_server_raftmetrics_current_vote "
            "kafka_server_raft_metrics_election_latency_max"
        ),
        "not measured": (
            "kafka_controller_controllerstats_uncleanleaderelections_total "
            "kafka_controller_controllerstats_uncleanleaderelectionspersec "
            "kafka_controller_kafkacontroller_lastappliedrecordlagms "
            "kafka_controller_kafkacontroller_metadataerrorcount "
            "kafka_server_raftmetrics_commit_latency_avg "
            "kafka_server_raft_metrics_commit_latency_avg "
            "kafka_server_replicafetchermanager_minfetchrate "
            "kafka_server_socketservermetrics_connections"
        ),
    }.items()
    for name in names.split()
}
"""Names without a value here, and why."""
