"""Settings of clients as keywords with their types, for mypy and editors.

Written by `make docs` from the declared settings; do not edit. Programs that run import it only to
annotate their own settings. Texts, as a file has them, go into the mapping of a client instead:
`Producer({"linger.ms": "20"})`.
"""

from os import PathLike
from typing import Literal, TypedDict

from tailrace.client.nodes.oauth import TokenFunction


class ClientSettings(TypedDict, total=False):
    """Settings of every client."""

    bootstrap_servers: str | list[str] | tuple[str, ...]
    """`bootstrap.servers`: HOST:PORT of some brokers, with commas between; the client learns the
    others from them. `PLAINTEXT://HOST:PORT` is accepted if `security.protocol` is the same."""
    client_id: str
    """`client.id`: The name in a broker's logs and quotas; `producer-N` or `consumer-GROUP-N` if
    empty."""
    request_timeout_ms: int
    """`request.timeout.ms`: How long a broker may take to answer before the connection is
    closed."""
    retry_backoff_ms: int
    """`retry.backoff.ms`: Pause before the first retry; doubled for each further one."""
    retry_backoff_max_ms: int
    """`retry.backoff.max.ms`: Longest pause between retries."""
    reconnect_backoff_ms: int
    """`reconnect.backoff.ms`: Pause before connecting again; doubled for each failure."""
    reconnect_backoff_max_ms: int
    """`reconnect.backoff.max.ms`: Longest pause between attempts to connect."""
    connections_max_idle_ms: int
    """`connections.max.idle.ms`: Close a connection that was unused for so long; -1 never."""
    socket_connection_setup_timeout_ms: int
    """`socket.connection.setup.timeout.ms`: How long a connection may take to be opened; doubled
    for each failure."""
    socket_connection_setup_timeout_max_ms: int
    """`socket.connection.setup.timeout.max.ms`: Longest time for opening a connection."""
    security_protocol: Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]
    """`security.protocol`: Whether connections are encrypted (SSL), and whether the client logs in
    (SASL)."""
    sasl_mechanism: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512", "OAUTHBEARER", "GSSAPI"]
    """`sasl.mechanism`: How the client logs in."""
    sasl_username: str
    """`sasl.username`: The user's name, for PLAIN and SCRAM."""
    sasl_password: str
    """`sasl.password`: The user's password, for PLAIN and SCRAM."""
    sasl_jaas_config: str
    """`sasl.jaas.config`: The login as Java's clients have it, instead of the settings of the
    mechanism: one entry of PlainLoginModule, ScramLoginModule, OAuthBearerLoginModule or
    Krb5LoginModule."""
    sasl_oauth_token: TokenFunction
    """`sasl.oauth.token`: A function (also a coroutine function) that returns a token for
    OAUTHBEARER, as a str or an `OAuthToken`. It runs on a thread of its own."""
    sasl_oauthbearer_token_endpoint_url: str
    """`sasl.oauthbearer.token.endpoint.url`: Address of an identity provider's token endpoint, for
    OAUTHBEARER with client credentials; `https`, or `http` on this machine."""
    sasl_oauthbearer_client_credentials_client_id: str
    """`sasl.oauthbearer.client.credentials.client.id`: The client's id at the token endpoint; also
    as `sasl.oauthbearer.client.id`."""
    sasl_oauthbearer_client_credentials_client_secret: str
    """`sasl.oauthbearer.client.credentials.client.secret`: Its secret; also as
    `sasl.oauthbearer.client.secret`."""
    sasl_oauthbearer_scope: str
    """`sasl.oauthbearer.scope`: Scopes that the token endpoint is asked for, with spaces
    between."""
    sasl_oauthbearer_extensions: str | list[str] | tuple[str, ...]
    """`sasl.oauthbearer.extensions`: SASL extensions that are sent with a token of the token
    endpoint, as NAME=VALUE."""
    sasl_oauthbearer_header_urlencode: bool
    """`sasl.oauthbearer.header.urlencode`: URL-encode id and secret for the token endpoint, as RFC
    6749 asks."""
    https_ca_location: str | PathLike[str]
    """`https.ca.location`: PEM file with the authorities that the token endpoint's certificate is
    checked against; the system's if empty."""
    sasl_login_connect_timeout_ms: int
    """`sasl.login.connect.timeout.ms`: How long a connection to the token endpoint may take.
    (Kafka's default is no limit.)"""
    sasl_login_read_timeout_ms: int
    """`sasl.login.read.timeout.ms`: How long its whole answer may take. (Kafka's default is no
    limit.)"""
    sasl_login_retry_backoff_ms: int
    """`sasl.login.retry.backoff.ms`: Pause before the token endpoint is asked again; doubled for
    each further time."""
    sasl_login_retry_backoff_max_ms: int
    """`sasl.login.retry.backoff.max.ms`: How long the token endpoint is asked again until the login
    fails."""
    sasl_kerberos_service_name: str
    """`sasl.kerberos.service.name`: First part of the brokers' Kerberos principals, usually
    `kafka`; for GSSAPI."""
    sasl_kerberos_principal: str
    """`sasl.kerberos.principal`: The client's Kerberos principal; that of the ticket cache or
    keytab if empty."""
    sasl_kerberos_keytab: str | PathLike[str]
    """`sasl.kerberos.keytab`: Keytab from which tickets are fetched; the ticket cache (`kinit`) if
    empty."""
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
    sasl_oauthbearer_client_id: str
    """`sasl.oauthbearer.client.id`: The client's id at the token endpoint; also as
    `sasl.oauthbearer.client.id`."""
    sasl_oauthbearer_client_secret: str
    """`sasl.oauthbearer.client.secret`: Its secret; also as `sasl.oauthbearer.client.secret`."""


class AdminSettings(ClientSettings, total=False):
    """Settings of `Admin` and `AsyncAdmin`."""

    default_api_timeout_ms: int
    """`default.api.timeout.ms`: Longest time of a call, with all retries."""
    retries: int
    """`retries`: Most retries of one item of a call; its time limit ends them too."""


class RecordsSettings(ClientSettings, total=False):
    """Settings of producers and of consumers."""

    metadata_max_age_ms: int
    """`metadata.max.age.ms`: Refresh the metadata of topics and leaders at least this often."""
    metadata_recovery_strategy: Literal["none", "rebootstrap"]
    """`metadata.recovery.strategy`: rebootstrap: use bootstrap.servers again if no known broker can
    be reached."""
    statistics_interval_ms: int
    """`statistics.interval.ms`: How often `on_metrics` is called, if it is given; 0 never."""


class ProducerSettings(RecordsSettings, total=False):
    """Settings of `Producer`, `AsyncProducer`."""

    acks: Literal["all", "-1", "1", "0", -1, 1, 0]
    """`acks`: Which replicas must have a batch before it is acknowledged: all in sync (all, -1),
    the leader (1), none (0)."""
    enable_idempotence: bool
    """`enable.idempotence`: Write each record exactly once and in order, however often it has to be
    sent."""
    retries: int
    """`retries`: How often a batch is sent again; `delivery.timeout.ms` is the better bound."""
    max_in_flight_requests_per_connection: int
    """`max.in.flight.requests.per.connection`: Unanswered requests per connection at a time;
    idempotence keeps the order with at most 5."""
    batch_size: int
    """`batch.size`: Bytes up to which a batch is filled. A batch takes memory only as it grows, so
    the default can be larger than Kafka's 16384."""
    linger_ms: float
    """`linger.ms`: How long a batch waits for more records; may have a fraction. It is sent earlier
    if a caller waits for a receipt."""
    buffer_memory: int
    """`buffer.memory`: Bytes of memory for records that are not acknowledged yet; `send` waits when
    it is full."""
    max_block_ms: int
    """`max.block.ms`: How long `send` may wait for memory and for metadata."""
    max_request_size: int
    """`max.request.size`: Largest request, and so the largest record too."""
    delivery_timeout_ms: int
    """`delivery.timeout.ms`: Longest time from `send` until a record is acknowledged or fails."""
    compression_type: Literal["none", "gzip", "snappy", "lz4", "zstd"]
    """`compression.type`: Codec of the batches."""
    compression_level: int
    """`compression.level`: Compression level of the codec (gzip: 1 to 9, or -1; lz4: 1 to 17; zstd:
    -131072 to 22); -1 for the codec's default."""
    compression_gzip_level: int
    """`compression.gzip.level`: `compression.level` where `compression.type` is gzip."""
    compression_lz4_level: int
    """`compression.lz4.level`: `compression.level` where `compression.type` is lz4."""
    compression_zstd_level: int
    """`compression.zstd.level`: `compression.level` where `compression.type` is zstd."""
    partitioner_adaptive_partitioning_enable: bool
    """`partitioner.adaptive.partitioning.enable`: Prefer partitions with short queues for records
    without a key."""
    partitioner_availability_timeout_ms: int
    """`partitioner.availability.timeout.ms`: Avoid the partitions of a broker that has taken no
    request for so long, for records without a key; 0 never."""
    partitioner_ignore_keys: bool
    """`partitioner.ignore.keys`: Choose the partition as if records had no key."""
    metadata_max_idle_ms: int
    """`metadata.max.idle.ms`: Forget the metadata of a topic to which nothing was sent for so
    long."""
    transactional_id: str
    """`transactional.id`: Identifies the producer across restarts; needed for transactions."""
    transaction_timeout_ms: int
    """`transaction.timeout.ms`: The coordinator aborts a transaction that stays open for longer."""


class ConsumerSettings(RecordsSettings, total=False):
    """Settings of `Consumer`, `AsyncConsumer`."""

    group_id: str
    """`group.id`: The group of the consumer; needed to subscribe and to commit."""
    group_instance_id: str
    """`group.instance.id`: A name that this member keeps when it starts again: it gets its
    partitions back within `session.timeout.ms`, without a rebalance."""
    group_protocol: Literal["classic", "consumer"]
    """`group.protocol`: classic: a member assigns the partitions; consumer: the broker does
    (KIP-848, Kafka 4.0 and later)."""
    group_remote_assignor: str
    """`group.remote.assignor`: The broker's assignor with `group.protocol=consumer`, such as
    uniform or range."""
    partition_assignment_strategy: str | list[str] | tuple[str, ...]
    """`partition.assignment.strategy`: How a group of the classic protocol distributes partitions;
    the first one that all members have."""
    auto_offset_reset: str
    """`auto.offset.reset`: Where to begin without a committed offset, or where the log does not
    have the position any more. none raises an error."""
    enable_auto_commit: bool
    """`enable.auto.commit`: Commit what the program has handled, every `auto.commit.interval.ms`,
    before partitions go to others, and in `close`."""
    auto_commit_interval_ms: int
    """`auto.commit.interval.ms`: How often offsets are committed."""
    isolation_level: Literal["read_committed", "read_uncommitted"]
    """`isolation.level`: read_committed: leave out records of aborted transactions, and end before
    the first open one."""
    fetch_min_bytes: int
    """`fetch.min.bytes`: Bytes that a broker waits for before it answers, up to
    `fetch.max.wait.ms`."""
    fetch_max_wait_ms: int
    """`fetch.max.wait.ms`: How long a broker waits for `fetch.min.bytes`."""
    fetch_max_bytes: int
    """`fetch.max.bytes`: Bytes of records that are kept in memory for each broker: received and not
    returned, or asked for. A larger batch comes alone."""
    max_partition_fetch_bytes: int
    """`max.partition.fetch.bytes`: Bytes of one partition in one answer; up to three answers are
    kept or under way. The partitions of a broker share them, and each gets 1048576 at least."""
    max_poll_records: int
    """`max.poll.records`: Most records that one `poll` returns."""
    max_poll_interval_ms: int
    """`max.poll.interval.ms`: Longest time between two calls of `poll`, or between two records of a
    loop; after that the consumer leaves its group, since its program seems to hang."""
    session_timeout_ms: int
    """`session.timeout.ms`: A member that the coordinator does not hear from for so long is out of
    the group; `group.protocol=classic` only."""
    heartbeat_interval_ms: int
    """`heartbeat.interval.ms`: How often the member reports; below `session.timeout.ms`."""
    client_rack: str
    """`client.rack`: The consumer's rack: brokers may have it fetch from a replica there
    (KIP-392)."""
    allow_auto_create_topics: bool
    """`allow.auto.create.topics`: Whether a broker may create a topic because this consumer asks
    for it."""
    check_crcs: bool
    """`check.crcs`: Accepted for Kafka's sake: every batch is always checked."""
    exclude_internal_topics: bool
    """`exclude.internal.topics`: Whether a pattern leaves out Kafka's own topics."""
    default_api_timeout_ms: int
    """`default.api.timeout.ms`: How long a call waits that is given no timeout: commit, position,
    end_offsets."""
