"""Every setting of a producer: Kafka's names, defaults and ranges. Times are ms, sizes bytes."""

from typing import Final

from tailrace.client.settings import CONNECTION_SETTINGS, SECURITY_SETTINGS
from tailrace.config import Setting
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.model import Codec
from tailrace.records.codecs import LEVELS

PRODUCER_SETTINGS: Final = (
    *CONNECTION_SETTINGS,
    Setting(
        name="metadata.max.age.ms",
        default=300000,
        low=0,
        high=INT64_MAX,
        text="Refresh the metadata of topics and leaders at least this often.",
    ),
    Setting(
        name="metadata.recovery.strategy",
        default="rebootstrap",
        choices=("none", "rebootstrap"),
        text="rebootstrap: use bootstrap.servers again if no known broker can be reached.",
    ),
    *SECURITY_SETTINGS,
    Setting(
        name="acks",
        default="all",
        choices=("all", "-1", "1", "0"),
        text=(
            "Which replicas must have a batch before it is acknowledged: all in sync (all, -1), "
            "the leader (1), none (0)."
        ),
    ),
    Setting(
        name="enable.idempotence",
        default=True,
        text="Write each record exactly once and in order, however often it has to be sent.",
    ),
    Setting(
        name="retries",
        default=INT32_MAX,
        low=0,
        high=INT32_MAX,
        text="How often a batch is sent again; `delivery.timeout.ms` is the better bound.",
    ),
    Setting(
        name="max.in.flight.requests.per.connection",
        default=5,
        low=1,
        high=INT32_MAX,
        text=(
            "Unanswered requests per connection at a time; idempotence keeps the order with at "
            "most 5."
        ),
    ),
    Setting(
        name="batch.size",
        default=1000000,
        low=0,
        high=INT32_MAX,
        text=(
            "Bytes up to which a batch is filled. A batch takes memory only as it grows, so the "
            "default can be larger than Kafka's 16384."
        ),
    ),
    Setting(
        name="linger.ms",
        default=5,
        low=0,
        high=INT64_MAX,
        text=(
            "How long a batch waits for more records. It is sent earlier if a caller waits for a "
            "receipt."
        ),
    ),
    Setting(
        name="buffer.memory",
        default=33554432,
        low=0,
        high=INT64_MAX,
        text=(
            "Bytes of memory for records that are not acknowledged yet; `send` waits when it "
            "is full."
        ),
    ),
    Setting(
        name="max.block.ms",
        default=60000,
        low=0,
        high=INT64_MAX,
        text="How long `send` may wait for memory and for metadata.",
    ),
    Setting(
        name="max.request.size",
        default=1048576,
        low=0,
        high=INT32_MAX,
        text="Largest request, and so the largest record too.",
    ),
    Setting(
        name="delivery.timeout.ms",
        default=120000,
        low=0,
        high=INT32_MAX,
        text="Longest time from `send` until a record is acknowledged or fails.",
    ),
    Setting(
        name="compression.type",
        default="none",
        choices=tuple(codec.label for codec in Codec),
        text="Codec of the batches.",
    ),
    Setting(
        name="compression.level",
        default=-1,
        low=min(levels.low for levels in LEVELS.values()),
        high=max(levels.high for levels in LEVELS.values()),
        text="Compression level of the codec ("
        + "; ".join(f"{codec.label}: {levels}" for codec, levels in LEVELS.items())
        + "); -1 for the codec's default.",
    ),
    Setting(
        name="partitioner.adaptive.partitioning.enable",
        default=True,
        text="Prefer partitions with short queues for records without a key.",
    ),
    Setting(
        name="partitioner.availability.timeout.ms",
        default=0,
        low=0,
        high=INT64_MAX,
        text=(
            "Avoid the partitions of a broker that has taken no request for so long, for records "
            "without a key; 0 never."
        ),
    ),
    Setting(
        name="partitioner.ignore.keys",
        default=False,
        text="Choose the partition as if records had no key.",
    ),
    Setting(
        name="metadata.max.idle.ms",
        default=300000,
        low=5000,
        high=INT64_MAX,
        text="Forget the metadata of a topic to which nothing was sent for so long.",
    ),
    Setting(
        name="transactional.id",
        default="",
        text="Identifies the producer across restarts; needed for transactions.",
    ),
    Setting(
        name="transaction.timeout.ms",
        default=60000,
        low=1,
        high=INT32_MAX,
        text="The coordinator aborts a transaction that stays open for longer.",
    ),
)
"""All settings of a producer."""
