"""Every setting of a producer: Kafka's names, defaults and ranges. Times are ms, sizes bytes."""

from typing import Final

from tailrace.client.settings import CONNECTION_SETTINGS, SECURITY_SETTINGS
from tailrace.config import Setting
from tailrace.config.settings import INT32_MAX, INT64_MAX

PRODUCER_SETTINGS: Final = (
    *CONNECTION_SETTINGS,
    Setting(
        name="metadata.max.age.ms",
        kind="int",
        default=300000,
        low=0,
        high=INT64_MAX,
        text="Ask for topics and leaders anew after so long, whatever happens.",
    ),
    Setting(
        name="metadata.recovery.strategy",
        kind="string",
        default="rebootstrap",
        choices=("none", "rebootstrap"),
        text="Go back to bootstrap.servers when no known broker can be reached, or not.",
    ),
    *SECURITY_SETTINGS,
    Setting(
        name="acks",
        kind="string",
        default="all",
        choices=("all", "-1", "1", "0"),
        text=(
            "Who must have a batch before it counts as written: all replicas in sync, the "
            "leader, nobody."
        ),
    ),
    Setting(
        name="enable.idempotence",
        kind="bool",
        default=True,
        text="Write each record exactly once and in order, however often it has to be sent.",
    ),
    Setting(
        name="retries",
        kind="int",
        default=INT32_MAX,
        low=0,
        high=INT32_MAX,
        text="How often a batch is sent again; `delivery.timeout.ms` is the better bound.",
    ),
    Setting(
        name="max.in.flight.requests.per.connection",
        kind="int",
        default=5,
        low=1,
        high=INT32_MAX,
        text=(
            "Requests on their way to one broker at a time; at most 5 keep order with idempotence."
        ),
    ),
    Setting(
        name="batch.size",
        kind="int",
        default=1000000,
        low=0,
        high=INT32_MAX,
        text=(
            "Bytes that a batch is filled up to. It takes memory as it grows, so the default can "
            "be larger than Kafka's 16384."
        ),
    ),
    Setting(
        name="linger.ms",
        kind="int",
        default=5,
        low=0,
        high=INT64_MAX,
        text=(
            "How long a batch waits for more records. A caller that waits for a receipt ends "
            "the waiting."
        ),
    ),
    Setting(
        name="buffer.memory",
        kind="int",
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
        kind="int",
        default=60000,
        low=0,
        high=INT64_MAX,
        text="How long `send` may wait for memory and for metadata.",
    ),
    Setting(
        name="max.request.size",
        kind="int",
        default=1048576,
        low=0,
        high=INT32_MAX,
        text="Largest request, and so largest record.",
    ),
    Setting(
        name="delivery.timeout.ms",
        kind="int",
        default=120000,
        low=0,
        high=INT32_MAX,
        text="A record has its outcome after so long at most, counted from `send`.",
    ),
    Setting(
        name="compression.type",
        kind="string",
        default="none",
        choices=("none", "gzip", "snappy", "lz4", "zstd"),
        text="Codec of the batches.",
    ),
    Setting(
        name="compression.level",
        kind="int",
        default=-1,
        low=-131072,
        high=22,
        text="How hard gzip, lz4 or zstd try; -1 for the codec's own default.",
    ),
    Setting(
        name="partitioner.adaptive.partitioning.enable",
        kind="bool",
        default=True,
        text="Give records without key rather to partitions whose queues are short.",
    ),
    Setting(
        name="partitioner.availability.timeout.ms",
        kind="int",
        default=0,
        low=0,
        high=INT64_MAX,
        text="Give none to a broker that has taken nothing for so long; 0 never looks.",
    ),
    Setting(
        name="partitioner.ignore.keys",
        kind="bool",
        default=False,
        text="Choose the partition as if records had no keys.",
    ),
    Setting(
        name="metadata.max.idle.ms",
        kind="int",
        default=300000,
        low=5000,
        high=INT64_MAX,
        text="Forget a topic that nothing was sent to for so long.",
    ),
    Setting(
        name="transactional.id",
        kind="string",
        default="",
        text="Name of the producer across restarts; transactions need one.",
    ),
    Setting(
        name="transaction.timeout.ms",
        kind="int",
        default=60000,
        low=1,
        high=INT32_MAX,
        text="The coordinator aborts a transaction that is open for longer.",
    ),
)
"""All settings of a producer."""
