"""The operator's settings for transactions, under Kafka's names."""

from tailrace.config.settings import INT32_MAX, setting, settings_of
from tailrace.values import dataclass


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class TransactionSettings:
    """Limits and times of transactions; times are in milliseconds."""

    partition_count: int = setting(
        "transaction.state.log.num.partitions",
        default=50,
        low=1,
        high=10_000,
        text="Partitions of `__transaction_state` when it is created; a transactional id is in "
        "one of them.",
    )
    replication_factor: int = setting(
        "transaction.state.log.replication.factor",
        default=3,
        low=1,
        high=(1 << 15) - 1,
        text="Replicas of `__transaction_state` when a broker of a cluster has it created; a node "
        "that is its own controller has one.",
    )
    # A transaction that was decided on one replica alone, and lost with it, leaves its partitions
    # half committed.
    insync_replicas_min: int = setting(
        "transaction.state.log.min.isr",
        default=2,
        low=1,
        high=INT32_MAX,
        text="`min.insync.replicas` of `__transaction_state` when a broker of a cluster has it "
        "created; a node that is its own controller does not set it.",
    )
    # As small as that of `__consumer_offsets`, and for the same reason: loads read it whole.
    segment_bytes: int = setting(
        "transaction.state.log.segment.bytes",
        default=104_857_600,
        low=1024,
        high=INT32_MAX,
        text="`segment.bytes` of `__transaction_state` when it is created.",
    )
    # An open transaction holds up all readers of committed records in its partitions, and its
    # producer may be gone.
    timeout_ms_max: int = setting(
        "transaction.max.timeout.ms",
        default=900_000,
        low=1,
        high=INT32_MAX,
        text="Longest transaction timeout that a producer may ask for.",
    )
    # Ids are chosen by clients, often with a random part, and each takes memory until it expires.
    id_expiration_ms: int = setting(
        "transactional.id.expiration.ms",
        default=604_800_000,
        low=1,
        high=INT32_MAX,
        text="How long a transactional id stays after its last transaction.",
    )
    abort_interval_ms: int = setting(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        default=10_000,
        low=1,
        high=INT32_MAX,
        text="How often the broker looks for transactions that are open for longer than their "
        "timeout, and aborts them.",
    )
    expiry_interval_ms: int = setting(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        default=3_600_000,
        low=1,
        high=INT32_MAX,
        text="How often the broker looks for expired transactional ids.",
    )
    is_verifying: bool = setting(
        "transaction.partition.verification.enable",
        default=True,
        text="Whether the coordinator is asked before a transaction's first batch in a partition "
        "(KIP-890). Without that, a late batch can open a transaction that nobody ends. Producers "
        "that leave it to the broker to add a partition have it added in any case.",
    )
    retry_ms: int = setting(
        "add.partitions.to.txn.retry.backoff.ms",
        default=20,
        low=1,
        high=INT32_MAX,
        text="Time between two requests to add a partition to a transaction while the markers of "
        "the one before are written.",
    )
    retry_ms_max: int = setting(
        "add.partitions.to.txn.retry.backoff.max.ms",
        default=100,
        low=0,
        high=INT32_MAX,
        text="Time after which such a produce request is answered with CONCURRENT_TRANSACTIONS.",
    )


TRANSACTION_SETTINGS = settings_of(TransactionSettings)
