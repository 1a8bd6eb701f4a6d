"""Settings of brokers as keywords with their types, for mypy and editors.

Written by `make docs` from the declared settings; do not edit. Programs that run import it only to
annotate their own settings. Texts, names of single listeners, and Kafka's settings that have no
effect here go into the mapping: `Broker(settings={"num.partitions": "4"})`.
"""

from os import PathLike
from typing import Literal, TypedDict


class BrokerSettings(TypedDict, total=False):
    """Settings of a broker."""

    node_id: int
    """`node.id`: Number of this broker; must be that in the directory's meta.properties."""
    broker_id: int
    """`broker.id`: node.id, where that is not given; both must be the same. (Kafka 4 generates no
    ids either, and refuses -1.)"""
    process_roles: str | list[str] | tuple[str, ...]
    """`process.roles`: Roles of this node. `broker,controller`: it is the only controller of its
    cluster, and the only broker; with a listener in `controller.listener.names` others can join.
    `broker`: its controllers are other nodes, one of Tailrace or those of an Apache Kafka cluster.
    `controller`: it is the only controller of a cluster, and no broker."""
    config_providers: str | list[str] | tuple[str, ...]
    """`config.providers`: Names of providers, which are asked for values such as
    `${file:/run/secrets/a:b}` when the broker starts; see below."""
    controller_quorum_voters: str | list[str] | tuple[str, ...]
    """`controller.quorum.voters`: The voters of the quorum as ID@HOST:PORT. A node that is a
    controller may name itself alone."""
    cordoned_log_dirs: str | list[str] | tuple[str, ...]
    """`cordoned.log.dirs`: Directories of log.dirs that get no new logs, or * for all of them; what
    is in them stays in service. Controllers place nothing on a broker whose directories are all
    cordoned (KIP-1066)."""
    metadata_log_dir: str
    """`metadata.log.dir`: The directory of the cluster's metadata log: one of log.dirs, or one of
    its own that gets no partitions. The first of log.dirs if empty."""
    tailrace_durability: Literal["page-cache", "sync"]
    """`tailrace.durability`: What acks=all means. `page-cache`: the operating system has the
    records, as in Kafka; a killed broker loses nothing, a machine without power may lose the tail.
    `sync`: the records are on the device."""
    tailrace_http_listener: str
    """`tailrace.http.listener`: HOST:PORT on which metrics for Prometheus (/metrics) and health
    (/healthz, /readyz) are answered by HTTP, without a login, from the start of the process on;
    port 0: a free one. Empty: nowhere."""
    tailrace_opentelemetry_metrics: bool
    """`tailrace.opentelemetry.metrics`: Whether the metrics are instruments of OpenTelemetry too,
    which `opentelemetry-instrument tailrace serve` exports; needs `tailrace[otel]`."""
    tailrace_shutdown_timeout_ms: int
    """`tailrace.shutdown.timeout.ms`: Longest time of a stop. For half of it the node waits until
    other brokers lead its partitions, with `controlled.shutdown.enable`; at its end the process
    ends as if it was killed, and the next start recovers. (Kafka waits for other leaders for 5
    minutes, and then without a limit.)"""
    tailrace_log_format: Literal["text", "json"]
    """`tailrace.log.format`: Lines of the log, one for each event: `text` for people, or `json`;
    --log-format on the command line."""
    tailrace_slow_request_ms: int
    """`tailrace.slow.request.ms`: A request that took longer has a line in the log that says where
    its time went, without what it waits on purpose: for records, for members of a group, for a
    quota. -1: none has."""
    tailrace_decompressed_batch_bytes_max: int
    """`tailrace.decompressed.batch.bytes.max`: Most bytes that a batch may decompress to; one that
    gives more is refused as MESSAGE_TOO_LARGE, and what is in a log already is not read. Kafka has
    no such limit. Commands, programs and Spark have options of their own: see reading.md."""
    num_recovery_threads_per_data_dir: int
    """`num.recovery.threads.per.data.dir`: How many partitions of each data directory are opened at
    a time when the broker starts."""
    num_partitions: int
    """`num.partitions`: Partitions of a topic that was created without a number."""
    default_replication_factor: int
    """`default.replication.factor`: Replicas of a topic that was created without a number; 1 where
    this broker is its own controller, and the only one."""
    auto_create_topics_enable: bool
    """`auto.create.topics.enable`: Whether asking for a topic that does not exist creates it."""
    delete_topic_enable: bool
    """`delete.topic.enable`: Whether DeleteTopics deletes; else each topic is
    TOPIC_DELETION_DISABLED."""
    socket_request_max_bytes: int
    """`socket.request.max.bytes`: Largest produce request in bytes; other requests have a lower
    limit of their own."""
    queued_max_request_bytes: int
    """`queued.max.request.bytes`: Most bytes of memory for the requests of all connections that are
    larger than 64 KiB, and for the objects that others than Produce above 16 KiB are decoded to; at
    least socket.request.max.bytes. A request that finds none left waits. While one waits,
    connections are closed that hold memory and hardly send, or have been answered for 10 s. 0 or
    less: no limit, which is Kafka's default."""
    connections_max_idle_ms: int
    """`connections.max.idle.ms`: How long a connection may be silent before the broker closes it,
    also while one of its requests waits to be answered, as in Kafka; negative: for ever. A fetch
    waits half as long at most."""
    fetch_max_bytes: int
    """`fetch.max.bytes`: Most bytes of records in one fetch response; one batch may be larger."""
    max_incremental_fetch_session_cache_slots: int
    """`max.incremental.fetch.session.cache.slots`: Most fetch sessions at a time; a client that
    gets none sends all of its partitions with every fetch."""
    min_incremental_fetch_session_eviction_ms: int
    """`min.incremental.fetch.session.eviction.ms`: How long a fetch session must exist, or be
    unused, before another one may replace it."""
    max_request_partition_size_limit: int
    """`max.request.partition.size.limit`: Most partitions in one answer to
    DescribeTopicPartitions."""
    log_flush_offset_checkpoint_interval_ms: int
    """`log.flush.offset.checkpoint.interval.ms`: How often closed segments are flushed and the
    recovery points written."""
    log_flush_start_offset_checkpoint_interval_ms: int
    """`log.flush.start.offset.checkpoint.interval.ms`: How often the log start offsets are
    written."""
    log_flush_scheduler_interval_ms: int
    """`log.flush.scheduler.interval.ms`: How often the broker looks for logs whose flush.ms has
    passed. (In Kafka the default is never, so that flush.ms alone has no effect there.)"""
    log_retention_check_interval_ms: int
    """`log.retention.check.interval.ms`: How often the broker looks for segments that retention.ms,
    retention.bytes and DeleteRecords no longer keep."""
    log_retention_hours: int
    """`log.retention.hours`: log.retention.ms in hours; counts where neither that nor the minutes
    are given."""
    log_retention_minutes: int
    """`log.retention.minutes`: log.retention.ms in minutes; counts where that is not given."""
    log_roll_hours: int
    """`log.roll.hours`: log.roll.ms in hours; counts where that is not given."""
    log_roll_jitter_hours: int
    """`log.roll.jitter.hours`: log.roll.jitter.ms in hours; counts where that is not given."""
    log_initial_task_delay_ms: int
    """`log.initial.task.delay.ms`: How long after its start the broker checks for the first time
    for retention, flushes and checkpoints that are due."""
    log_cleaner_enable: bool
    """`log.cleaner.enable`: Whether logs with the policy compact are compacted."""
    log_cleaner_threads: int
    """`log.cleaner.threads`: How many logs are compacted at a time. They share
    log.cleaner.dedupe.buffer.size, of which each needs 4 MiB, and
    log.cleaner.io.max.bytes.per.second."""
    log_cleaner_backoff_ms: int
    """`log.cleaner.backoff.ms`: How long a cleaner thread rests when no log is due, in
    milliseconds."""
    log_cleaner_dedupe_buffer_size: int
    """`log.cleaner.dedupe.buffer.size`: Most bytes of memory for the keys of all rounds of
    compaction at a time; a log with more keys than fit its share takes more rounds."""
    log_cleaner_io_max_bytes_per_second: float
    """`log.cleaner.io.max.bytes.per.second`: Most bytes that compaction reads and writes in a
    second, all threads together."""
    log_cleaner_io_buffer_size: int
    """`log.cleaner.io.buffer.size`: Bytes of the buffers that compaction reads and writes with."""
    log_cleaner_io_buffer_load_factor: float
    """`log.cleaner.io.buffer.load.factor`: How full the map of keys may be."""
    remote_log_storage_system_enable: bool
    """`remote.log.storage.system.enable`: Whether the broker has tiered storage."""
    replica_alter_log_dirs_io_max_bytes_per_second: int
    """`replica.alter.log.dirs.io.max.bytes.per.second`: Most bytes that moves between log
    directories copy in a second, all together."""
    producer_id_expiration_ms: int
    """`producer.id.expiration.ms`: How long the state of an idle producer is kept. A batch that it
    repeats after that is appended again."""
    producer_id_expiration_check_interval_ms: int
    """`producer.id.expiration.check.interval.ms`: How often the broker looks for such producers."""
    advertised_listeners: str
    """`advertised.listeners`: NAME://HOST:PORT to which clients of each listener connect. Default:
    the addresses of the listeners. If HOST is empty, the name of this machine; 0.0.0.0 and :: are
    refused. A listener that is not in the list is for those who know it: no answer names it."""
    listener_security_protocol_map: str | list[str] | tuple[str, ...]
    """`listener.security.protocol.map`: What listeners with names of their own are, as
    NAME:PROTOCOL with PLAINTEXT, SSL, SASL_PLAINTEXT or SASL_SSL."""
    controller_listener_names: str | list[str] | tuple[str, ...]
    """`controller.listener.names`: Names of listeners that are for controllers only. A node with
    the role `controller` has at most one of them in `listeners`. With `process.roles=broker` the
    first is the listener by which controllers are reached, and none may be in `listeners`."""
    inter_broker_listener_name: str
    """`inter.broker.listener.name`: Name of the listener by which brokers reach each other:
    PLAINTEXT if empty, or the only one. Its connections are accepted even above
    `max.connections`."""
    security_inter_broker_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """`security.inter.broker.protocol`: The other way to name that listener, where its name is that
    of its protocol."""
    max_connections: int
    """`max.connections`: Most connections at a time; others wait in the kernel's queue. Each takes
    64 KiB. (Kafka's default is no limit.)"""
    max_connection_creation_rate: int
    """`max.connection.creation.rate`: Most connections that are accepted in a second; more wait in
    the kernel's queue, each for quota.window.size.seconds at most. A listener may have a limit of
    its own."""
    max_connections_per_ip: int
    """`max.connections.per.ip`: Most connections from one address; others are closed at once.
    (Kafka's default is no limit.)"""
    max_connections_per_ip_overrides: str | list[str] | tuple[str, ...]
    """`max.connections.per.ip.overrides`: Other limits for single addresses: ADDRESS:COUNT,
    separated by commas."""
    ssl_truststore_location: str | PathLike[str]
    """`ssl.truststore.location`: PEM or PKCS12 file with the authorities that certificates of
    others are checked against; the system's if empty."""
    ssl_truststore_type: Literal["PEM", "PKCS12", "JKS", ""]
    """`ssl.truststore.type`: Type of the truststore; its content decides if empty. JKS has to be
    converted."""
    ssl_truststore_password: str
    """`ssl.truststore.password`: Password of a PKCS12 truststore."""
    ssl_truststore_certificates: str
    """`ssl.truststore.certificates`: The authorities themselves, in PEM, instead of a file."""
    ssl_keystore_location: str | PathLike[str]
    """`ssl.keystore.location`: PEM or PKCS12 file with the own certificate chain, and its key
    unless `ssl.key.location` or `ssl.keystore.key` has it."""
    ssl_keystore_type: Literal["PEM", "PKCS12", "JKS", ""]
    """`ssl.keystore.type`: Type of the keystore; its content decides if empty. JKS has to be
    converted."""
    ssl_keystore_password: str
    """`ssl.keystore.password`: Password of a PKCS12 keystore."""
    ssl_keystore_certificate_chain: str
    """`ssl.keystore.certificate.chain`: The certificate chain itself, in PEM, instead of a file."""
    ssl_keystore_key: str
    """`ssl.keystore.key`: The private key itself, in PEM."""
    ssl_key_location: str | PathLike[str]
    """`ssl.key.location`: PEM file with the own private key."""
    ssl_key_password: str
    """`ssl.key.password`: Password of the private key."""
    ssl_enabled_protocols: str | list[str] | tuple[str, ...]
    """`ssl.enabled.protocols`: Versions of TLS that may be used."""
    ssl_protocol: Literal["TLSv1.2", "TLSv1.3", "TLS"]
    """`ssl.protocol`: The newest version of TLS that may be used; TLS for the newest there is."""
    ssl_cipher_suites: str | list[str] | tuple[str, ...]
    """`ssl.cipher.suites`: Cipher suites that may be used, by Java's or OpenSSL's names; OpenSSL's
    choice if empty."""
    ssl_endpoint_identification_algorithm: Literal["https", "HTTPS", "none", ""]
    """`ssl.endpoint.identification.algorithm`: Check that a broker's certificate has the host's
    name (https), or not (none, or empty)."""
    ssl_client_auth: Literal["required", "requested", "none"]
    """`ssl.client.auth`: Whether clients of encrypted listeners have to show a certificate, may do
    so, or are not asked for one."""
    ssl_principal_mapping_rules: str
    """`ssl.principal.mapping.rules`: How the name of a client's certificate becomes that of its
    principal: `RULE:pattern/replacement/` with L or U after it for lower or upper case, and DEFAULT
    for the whole name, with commas between; the first whose pattern fits the name counts."""
    ssl_allow_dn_changes: bool
    """`ssl.allow.dn.changes`: Let a certificate be replaced, while the broker runs, by one with
    another subject."""
    ssl_allow_san_changes: bool
    """`ssl.allow.san.changes`: Likewise by one with other names of hosts (subject alternative
    names)."""
    sasl_enabled_mechanisms: str | list[str] | tuple[str, ...]
    """`sasl.enabled.mechanisms`: How clients of listeners with SASL_PLAINTEXT or SASL_SSL log
    in."""
    sasl_mechanism_inter_broker_protocol: Literal[
        "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"
    ]
    """`sasl.mechanism.inter.broker.protocol`: How brokers log in to each other, with the login of
    their listener's JAAS entry."""
    sasl_mechanism_controller_protocol: Literal[
        "PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"
    ]
    """`sasl.mechanism.controller.protocol`: How nodes log in to controllers, likewise."""
    connections_max_reauth_ms: int
    """`connections.max.reauth.ms`: How long a login lasts: clients log in again on the same
    connection (KIP-368), or it ends. A login with a token lasts no longer than that. 0: without
    end."""
    connection_failed_authentication_delay_ms: int
    """`connection.failed.authentication.delay.ms`: How long after a login fails its client gets the
    answer, and the connection ends."""
    sasl_server_max_receive_size: int
    """`sasl.server.max.receive.size`: Most bytes of a request before the login; a larger one ends
    the connection."""
    sasl_server_callback_handler_class: str
    """`sasl.server.callback.handler.class`: Kafka's class that checks tokens against a key set,
    which is done here wherever there is one. With it, a listener without a key set is refused."""
    sasl_oauthbearer_jwks_endpoint_url: str
    """`sasl.oauthbearer.jwks.endpoint.url`: Address of the key set (JWKS) that checks the tokens of
    OAUTHBEARER: `https:`, `file:`, or `http:` on this machine. Without one, unsecured tokens are
    taken, as in Kafka: for development alone."""
    sasl_oauthbearer_jwks_endpoint_refresh_ms: int
    """`sasl.oauthbearer.jwks.endpoint.refresh.ms`: How old a key set may become until it is read
    again."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_ms: int
    """`sasl.oauthbearer.jwks.endpoint.retry.backoff.ms`: Pause after a key set could not be read;
    doubled for each further time."""
    sasl_oauthbearer_jwks_endpoint_retry_backoff_max_ms: int
    """`sasl.oauthbearer.jwks.endpoint.retry.backoff.max.ms`: The longest such pause, and the least
    time between two reads for unknown keys."""
    sasl_oauthbearer_expected_issuer: str
    """`sasl.oauthbearer.expected.issuer`: The issuer (`iss`) that a token must have; any if
    empty."""
    sasl_oauthbearer_expected_audience: str | list[str] | tuple[str, ...]
    """`sasl.oauthbearer.expected.audience`: Audiences (`aud`) of which a token must have one; if
    empty it must have none."""
    sasl_oauthbearer_clock_skew_seconds: int
    """`sasl.oauthbearer.clock.skew.seconds`: Seconds by which the times of a token may be off."""
    sasl_oauthbearer_sub_claim_name: str
    """`sasl.oauthbearer.sub.claim.name`: The claim with the user's name."""
    sasl_oauthbearer_scope_claim_name: str
    """`sasl.oauthbearer.scope.claim.name`: The claim with the scopes."""
    sasl_oauthbearer_token_endpoint_url: str
    """`sasl.oauthbearer.token.endpoint.url`: Where this node gets its own token for OAUTHBEARER to
    other nodes."""
    sasl_oauthbearer_client_credentials_client_id: str
    """`sasl.oauthbearer.client.credentials.client.id`: This node's id at that endpoint."""
    sasl_oauthbearer_client_credentials_client_secret: str
    """`sasl.oauthbearer.client.credentials.client.secret`: This node's secret there."""
    sasl_oauthbearer_scope: str
    """`sasl.oauthbearer.scope`: Scopes that this node asks for there, with spaces between."""
    sasl_kerberos_service_name: str
    """`sasl.kerberos.service.name`: First part of the nodes' Kerberos principals, usually `kafka`;
    `serviceName` of the JAAS entry if empty."""
    sasl_kerberos_principal_to_local_rules: str | list[str] | tuple[str, ...]
    """`sasl.kerberos.principal.to.local.rules`: How a Kerberos principal becomes a user's name:
    DEFAULT, or RULE:[COUNT:FORM] with (REGEX) and s/OLD/NEW/ after it; the first that fits
    counts."""
    authorizer_class_name: str
    """`authorizer.class.name`: Who may do what. Empty: every client may do everything; else by the
    access control lists of the cluster, as in Kafka. The same for all nodes of a cluster."""
    super_users: str
    """`super.users`: Principals that may do everything, where there is an authorizer. Brokers and
    controllers have to be among them, or have the rights that docs/security.md lists."""
    allow_everyone_if_no_acl_found: bool
    """`allow.everyone.if.no.acl.found`: Whether everybody may do everything with a resource that
    has no access control lists, where there is an authorizer."""
    offsets_topic_num_partitions: int
    """`offsets.topic.num.partitions`: Partitions of `__consumer_offsets` when it is created; a
    group is in one of them."""
    offsets_topic_replication_factor: int
    """`offsets.topic.replication.factor`: Replicas of `__consumer_offsets` when a broker of a
    cluster has it created; a node that is its own controller has one."""
    offsets_topic_segment_bytes: int
    """`offsets.topic.segment.bytes`: `segment.bytes` of `__consumer_offsets` when it is created."""
    group_max_size: int
    """`group.max.size`: Most members of a group."""
    group_min_session_timeout_ms: int
    """`group.min.session.timeout.ms`: Shortest session timeout that a member may ask for."""
    group_max_session_timeout_ms: int
    """`group.max.session.timeout.ms`: Longest session timeout that a member may ask for."""
    group_initial_rebalance_delay_ms: int
    """`group.initial.rebalance.delay.ms`: How long the first member of an empty group waits for
    others."""
    offset_metadata_max_bytes: int
    """`offset.metadata.max.bytes`: Most characters of the metadata that a client stores with an
    offset."""
    offsets_commit_timeout_ms: int
    """`offsets.commit.timeout.ms`: How long a request of a group waits until its records are
    committed."""
    offsets_retention_minutes: int
    """`offsets.retention.minutes`: How long an offset stays after its group has become empty, or
    has left the topic."""
    offsets_retention_check_interval_ms: int
    """`offsets.retention.check.interval.ms`: How often the broker looks for expired offsets."""
    group_coordinator_rebalance_protocols: str | list[str] | tuple[str, ...]
    """`group.coordinator.rebalance.protocols`: The protocols of groups. Without `consumer` its
    requests get UNSUPPORTED_VERSION. There are no share groups and no streams groups here, whether
    they are named or not."""
    group_consumer_max_size: int
    """`group.consumer.max.size`: Most members of a consumer group."""
    group_consumer_session_timeout_ms: int
    """`group.consumer.session.timeout.ms`: A member of a consumer group that is silent for so long
    is removed."""
    group_consumer_min_session_timeout_ms: int
    """`group.consumer.min.session.timeout.ms`: Lower limit of group.consumer.session.timeout.ms."""
    group_consumer_max_session_timeout_ms: int
    """`group.consumer.max.session.timeout.ms`: Upper limit of group.consumer.session.timeout.ms."""
    group_consumer_heartbeat_interval_ms: int
    """`group.consumer.heartbeat.interval.ms`: Time between two heartbeats of a member of a consumer
    group."""
    group_consumer_min_heartbeat_interval_ms: int
    """`group.consumer.min.heartbeat.interval.ms`: Lower limit of
    group.consumer.heartbeat.interval.ms."""
    group_consumer_max_heartbeat_interval_ms: int
    """`group.consumer.max.heartbeat.interval.ms`: Upper limit of
    group.consumer.heartbeat.interval.ms."""
    group_consumer_assignment_interval_ms: int
    """`group.consumer.assignment.interval.ms`: Least time between two target assignments of a
    consumer group."""
    group_consumer_min_assignment_interval_ms: int
    """`group.consumer.min.assignment.interval.ms`: Lower limit of
    group.consumer.assignment.interval.ms."""
    group_consumer_max_assignment_interval_ms: int
    """`group.consumer.max.assignment.interval.ms`: Upper limit of
    group.consumer.assignment.interval.ms."""
    group_consumer_assignors: str | list[str] | tuple[str, ...]
    """`group.consumer.assignors`: The assignors that members of consumer groups can ask for, the
    default first."""
    group_consumer_migration_policy: Literal["bidirectional", "upgrade", "downgrade", "disabled"]
    """`group.consumer.migration.policy`: Which groups with members may change their protocol:
    `upgrade` lets a member of the consumer protocol join a classic group, which becomes a consumer
    group; with `downgrade` a consumer group becomes a classic one when only members of that
    protocol are left."""
    group_consumer_regex_refresh_interval_ms: int
    """`group.consumer.regex.refresh.interval.ms`: How often the topics that match the regular
    expressions of a group are looked for, if no topic is created meanwhile."""
    transaction_state_log_num_partitions: int
    """`transaction.state.log.num.partitions`: Partitions of `__transaction_state` when it is
    created; a transactional id is in one of them."""
    transaction_state_log_replication_factor: int
    """`transaction.state.log.replication.factor`: Replicas of `__transaction_state` when a broker
    of a cluster has it created; a node that is its own controller has one."""
    transaction_state_log_min_isr: int
    """`transaction.state.log.min.isr`: `min.insync.replicas` of `__transaction_state` when a broker
    of a cluster has it created; a node that is its own controller does not set it."""
    transaction_state_log_segment_bytes: int
    """`transaction.state.log.segment.bytes`: `segment.bytes` of `__transaction_state` when it is
    created."""
    transaction_max_timeout_ms: int
    """`transaction.max.timeout.ms`: Longest transaction timeout that a producer may ask for."""
    transactional_id_expiration_ms: int
    """`transactional.id.expiration.ms`: How long a transactional id stays after its last
    transaction."""
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int
    """`transaction.abort.timed.out.transaction.cleanup.interval.ms`: How often the broker looks for
    transactions that are open for longer than their timeout, and aborts them."""
    transaction_remove_expired_transaction_cleanup_interval_ms: int
    """`transaction.remove.expired.transaction.cleanup.interval.ms`: How often the broker looks for
    expired transactional ids."""
    transaction_partition_verification_enable: bool
    """`transaction.partition.verification.enable`: Whether the coordinator is asked before a
    transaction's first batch in a partition (KIP-890). Without that, a late batch can open a
    transaction that nobody ends. Producers that leave it to the broker to add a partition have it
    added in any case."""
    add_partitions_to_txn_retry_backoff_ms: int
    """`add.partitions.to.txn.retry.backoff.ms`: Time between two requests to add a partition to a
    transaction while the markers of the one before are written."""
    add_partitions_to_txn_retry_backoff_max_ms: int
    """`add.partitions.to.txn.retry.backoff.max.ms`: Time after which such a produce request is
    answered with CONCURRENT_TRANSACTIONS."""
    metadata_log_segment_bytes: int
    """`metadata.log.segment.bytes`: `segment.bytes` of the metadata log."""
    metadata_log_segment_ms: int
    """`metadata.log.segment.ms`: `segment.ms` of the metadata log."""
    metadata_log_max_record_bytes_between_snapshots: int
    """`metadata.log.max.record.bytes.between.snapshots`: A snapshot of the cluster's state is
    written when the metadata log has grown by this number of bytes."""
    metadata_log_max_snapshot_interval_ms: int
    """`metadata.log.max.snapshot.interval.ms`: A snapshot of the cluster's state is written when
    the last one is so old and something has changed; 0: none by time."""
    metadata_max_retention_bytes: int
    """`metadata.max.retention.bytes`: Most bytes of the metadata log and its snapshots; the newest
    snapshot is always kept. -1: no limit."""
    metadata_max_retention_ms: int
    """`metadata.max.retention.ms`: How long a snapshot is kept that is not the newest; -1: no
    limit."""
    auto_leader_rebalance_enable: bool
    """`auto.leader.rebalance.enable`: Whether the controller gives partitions back to their
    preferred leaders."""
    leader_imbalance_check_interval_seconds: int
    """`leader.imbalance.check.interval.seconds`: Seconds between two looks for partitions that
    another replica than the preferred one leads."""
    unclean_leader_election_interval_ms: int
    """`unclean.leader.election.interval.ms`: Milliseconds between two looks for partitions without
    a leader whose topic allows an unclean election."""
    controller_quorum_bootstrap_servers: str | list[str] | tuple[str, ...]
    """`controller.quorum.bootstrap.servers`: HOST:PORT of some controllers, from which the broker
    learns the active one. A node that is a controller may name itself alone."""
    replica_lag_time_max_ms: int
    """`replica.lag.time.max.ms`: A follower that has not had all records of its leader within this
    time is out of sync."""
    replica_high_watermark_checkpoint_interval_ms: int
    """`replica.high.watermark.checkpoint.interval.ms`: Interval at which the high watermarks are
    saved; a start shows consumers nothing above them before the leader says more."""
    replication_quota_window_num: int
    """`replication.quota.window.num`: Windows over which the rate of throttled replicas is
    measured."""
    replication_quota_window_size_seconds: int
    """`replication.quota.window.size.seconds`: Length of such a window."""
    replica_selector_class: str
    """`replica.selector.class`: The replica that a consumer with `client.rack` is sent to. Empty:
    the leader; with the rack-aware selector a follower in sync in the consumer's rack, unless the
    leader is in that rack."""
    initial_broker_registration_timeout_ms: int
    """`initial.broker.registration.timeout.ms`: How long a start waits until a controller has
    registered the broker."""
    broker_heartbeat_interval_ms: int
    """`broker.heartbeat.interval.ms`: Time between heartbeats to the active controller."""
    broker_session_timeout_ms: int
    """`broker.session.timeout.ms`: Time after its last heartbeat when the controllers fence a
    broker. What they have for it counts; a broker compares it with the interval of heartbeats
    alone."""
    log_dir_failure_timeout_ms: int
    """`log.dir.failure.timeout.ms`: The broker stops if it cannot tell the controllers within this
    time that a log directory has failed."""
    broker_rack: str
    """`broker.rack`: Rack of the broker, for the placement of replicas and for fetches from the
    nearest."""
    controlled_shutdown_enable: bool
    """`controlled.shutdown.enable`: Whether a broker that stops has others become leaders of its
    partitions first."""
    controller_quorum_request_timeout_ms: int
    """`controller.quorum.request.timeout.ms`: Time after which a controller that has not answered
    counts as lost."""
    controller_quorum_retry_backoff_ms: int
    """`controller.quorum.retry.backoff.ms`: First pause before a controller is asked again; it
    grows up to a second."""
    controller_quorum_fetch_max_bytes: int
    """`controller.quorum.fetch.max.bytes`: Most bytes of the metadata log in an answer; one batch
    may be larger."""
    controller_quorum_fetch_snapshot_max_bytes: int
    """`controller.quorum.fetch.snapshot.max.bytes`: Most bytes of a snapshot of the metadata log in
    an answer."""
    replica_fetch_max_bytes: int
    """`replica.fetch.max.bytes`: Most bytes of one partition that a follower fetches at a time; a
    larger batch is fetched whole."""
    replica_fetch_response_max_bytes: int
    """`replica.fetch.response.max.bytes`: Most bytes of one answer to a follower, for all
    partitions together; a larger batch is fetched whole."""
    replica_fetch_min_bytes: int
    """`replica.fetch.min.bytes`: Bytes that a leader waits for before it answers a follower."""
    replica_fetch_wait_max_ms: int
    """`replica.fetch.wait.max.ms`: Longest time that a leader waits for `replica.fetch.min.bytes`;
    less than `replica.lag.time.max.ms`."""
    replica_fetch_backoff_ms: int
    """`replica.fetch.backoff.ms`: Pause before a follower asks again after an error of a partition
    or of its leader."""
    replica_socket_timeout_ms: int
    """`replica.socket.timeout.ms`: How long a leader may take to answer a follower, before the
    connection is closed; at least `replica.fetch.wait.max.ms`."""
    num_replica_fetchers: int
    """`num.replica.fetchers`: Accepted and reported: a follower has one connection to each leader,
    since all appends are on one event loop."""
    quota_window_num: int
    """`quota.window.num`: Windows over which the rates of clients and of new connections are
    measured."""
    quota_window_size_seconds: int
    """`quota.window.size.seconds`: Length of such a window. No new connection, and no request that
    took too much time, is delayed by more."""
    controller_quota_window_num: int
    """`controller.quota.window.num`: Windows whose partitions a client may create and delete at
    once, by the quota controller_mutation_rate."""
    controller_quota_window_size_seconds: int
    """`controller.quota.window.size.seconds`: Length of such a window."""
    log_segment_bytes: int
    """`log.segment.bytes`: Default of the topic setting `segment.bytes`."""
    log_roll_ms: int
    """`log.roll.ms`: Default of the topic setting `segment.ms`."""
    log_roll_jitter_ms: int
    """`log.roll.jitter.ms`: Default of the topic setting `segment.jitter.ms`."""
    log_index_size_max_bytes: int
    """`log.index.size.max.bytes`: Default of the topic setting `segment.index.bytes`."""
    log_index_interval_bytes: int
    """`log.index.interval.bytes`: Default of the topic setting `index.interval.bytes`."""
    message_max_bytes: int
    """`message.max.bytes`: Default of the topic setting `max.message.bytes`."""
    log_cleanup_policy: str | list[str] | tuple[str, ...]
    """`log.cleanup.policy`: Default of the topic setting `cleanup.policy`."""
    log_message_timestamp_type: Literal["CreateTime", "LogAppendTime"]
    """`log.message.timestamp.type`: Default of the topic setting `message.timestamp.type`."""
    log_message_timestamp_before_max_ms: int
    """`log.message.timestamp.before.max.ms`: Default of the topic setting
    `message.timestamp.before.max.ms`."""
    log_message_timestamp_after_max_ms: int
    """`log.message.timestamp.after.max.ms`: Default of the topic setting
    `message.timestamp.after.max.ms`."""
    log_retention_ms: int
    """`log.retention.ms`: Default of the topic setting `retention.ms`."""
    log_retention_bytes: int
    """`log.retention.bytes`: Default of the topic setting `retention.bytes`."""
    log_flush_interval_messages: int
    """`log.flush.interval.messages`: Default of the topic setting `flush.messages`."""
    log_flush_interval_ms: int
    """`log.flush.interval.ms`: Default of the topic setting `flush.ms`."""
    log_cleaner_delete_retention_ms: int
    """`log.cleaner.delete.retention.ms`: Default of the topic setting `delete.retention.ms`."""
    log_cleaner_min_compaction_lag_ms: int
    """`log.cleaner.min.compaction.lag.ms`: Default of the topic setting `min.compaction.lag.ms`."""
    log_cleaner_max_compaction_lag_ms: int
    """`log.cleaner.max.compaction.lag.ms`: Default of the topic setting `max.compaction.lag.ms`."""
    log_cleaner_min_cleanable_ratio: float
    """`log.cleaner.min.cleanable.ratio`: Default of the topic setting
    `min.cleanable.dirty.ratio`."""
    log_segment_delete_delay_ms: int
    """`log.segment.delete.delay.ms`: Default of the topic setting `file.delete.delay.ms`."""
    compression_type: Literal["uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"]
    """`compression.type`: Default of the topic setting `compression.type`."""
    compression_gzip_level: int
    """`compression.gzip.level`: Default of the topic setting `compression.gzip.level`."""
    compression_lz4_level: int
    """`compression.lz4.level`: Default of the topic setting `compression.lz4.level`."""
    compression_zstd_level: int
    """`compression.zstd.level`: Default of the topic setting `compression.zstd.level`."""
    min_insync_replicas: int
    """`min.insync.replicas`: Default of the topic setting `min.insync.replicas`."""
    unclean_leader_election_enable: bool
    """`unclean.leader.election.enable`: Default of the topic setting
    `unclean.leader.election.enable`."""
    log_preallocate: bool
    """`log.preallocate`: Default of the topic setting `preallocate`."""
    log_local_retention_ms: int
    """`log.local.retention.ms`: Default of the topic setting `local.retention.ms`."""
    log_local_retention_bytes: int
    """`log.local.retention.bytes`: Default of the topic setting `local.retention.bytes`."""
