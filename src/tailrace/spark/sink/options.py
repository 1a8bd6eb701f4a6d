"""Options and columns of the sink, from Spark's strings and schema to one frozen value.

    value       string or binary                   required; null for a tombstone
    key         string or binary                   null for none
    headers     array<struct<key:string,value:binary>>
    topic       string                             the option `topic` wins over the column
    partition   int                                null to have the partitioner choose
    timestamp   timestamp                          null for now; Spark's own sink has no such column

`offset` and `timestampType`, which the source gives and nobody can choose, are passed over, so that
rows can be written as they were read. Any other column is a fault, where Spark would pass it over
too: it is a column that was misspelt, or one that gets lost.

Options are `topic`, `delivery`, `kafka.` before every setting of the producer
(docs/configuration.md), and `includeHeaders`, which changes nothing since a column `headers` is
always written. `txnAppId`, `txnVersion` and `checkpointLocation` together make a batch write one
version of a job, which is there once however often the job is run; the first two are those of
Delta Lake. `acceptOlderCheckpoint` takes notes of commits that are older than the cluster.

Not here: anything that has to look at a row or at a topic; see `rows`.

Invariant: all faults of one write are reported together, before Spark starts a job.
"""

import difflib
import hashlib
import re
from collections import Counter
from collections.abc import Mapping
from enum import StrEnum
from typing import Final

from pyspark.sql.types import StructType

from tailrace.client.producer.config import parse_producer_config
from tailrace.config.settings import INT64_MAX
from tailrace.errors import ConfigError
from tailrace.records.schema import names_added_by
from tailrace.spark.sink.ledger import ACCEPT, Count
from tailrace.values import dataclass

BOOTSTRAP: Final = "kafka.bootstrap.servers"
CLIENT_ID: Final = "tailrace-spark"

COLUMNS: Final[Mapping[str, tuple[str, ...]]] = {
    "value": ("string", "binary"),
    "key": ("string", "binary"),
    "headers": ("array<struct<key:string,value:binary>>",),
    "topic": ("string",),
    "partition": ("int",),
    "timestamp": ("timestamp",),
}
"""The columns that are written, with the types that each may have."""

PASSED_OVER: Final = frozenset(names_added_by(None)) - COLUMNS.keys()
"""Columns of the source that a record gets from the broker."""

_CHECKPOINT: Final = "checkpointLocation"
"""Option that Spark passes on to a stream's sink."""

_TXN: Final = ("txnAppId", "txnVersion")

_COUNT: Final = re.compile(r"[0-9]{1,19}:[0-9]{1,5}")

_DIGITS_MAX: Final = 100
"""Digits of a number that is looked at; Python refuses to read thousands."""

OWN: Final = {
    name.lower(): name
    for name in ("topic", "delivery", "includeHeaders", *_TXN, _CHECKPOINT, ACCEPT)
}
"""Options besides the producer's."""

_TRANSACTION_TIMEOUT: Final = "transaction.timeout.ms"

_EXACTLY_ONCE_DEFAULTS: Final = {_TRANSACTION_TIMEOUT: "900000"}
"""The most that brokers allow by default (transaction.max.timeout.ms): a batch has to be committed
by then, counted from its first record."""

_REFUSED: Final = {
    "path": "records are written to a broker; name it in kafka.bootstrap.servers, and the topic "
    "in the option topic",
    "kafka.key.serializer": "Kafka option 'key.serializer' is not supported; keys are written as "
    "the bytes or the text of the column, so convert them in a select",
    "kafka.value.serializer": "Kafka option 'value.serializer' is not supported; values are "
    "written as the bytes or the text of the column, so convert them in a select",
    "kafka.partitioner.class": "there is no Java producer that could run it; give a column "
    "partition",
    "kafka.interceptor.classes": "there is no Java producer that could run them",
    "kafka.transactional.id": "a transaction has one producer, and each task has its own; "
    "option('delivery', 'exactly-once') gives each of them one",
}
"""Options that would change something, and what to do instead; all in lower case."""


@dataclass(frozen=True, slots=True, kw_only=True)
class JobVersion:
    """One write of a job, which is there once however often the job is run for it."""

    app_id: str
    """The job's name."""
    number: int
    """Number of the write; it rises from write to write."""
    location: str
    """The directory in which it is noted."""

    @property
    def work_id(self) -> str:
        """The job's id in transactional ids: of one length, so that none begins with another."""
        return hashlib.sha256(self.app_id.encode()).hexdigest()[:32]


class Delivery(StrEnum):
    """Promise about the number of times that each row is written."""

    AT_LEAST_ONCE = "at-least-once"
    """Rows of a task or micro-batch that is run again are written again."""
    EXACTLY_ONCE = "exactly-once"
    """In transactions, which readers of committed records see once and whole."""


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkOptions:
    """Target of a write and settings of its producer."""

    topic: str | None
    """Topic of all rows; None: each row names its own."""
    producer: Mapping[str, str]
    """Settings of the producer by Kafka's names."""
    delivery: Delivery = Delivery.AT_LEAST_ONCE
    """Promise about rows that are written again."""
    checkpoint: str | None = None
    """The location of the stream's checkpoint, if Spark has passed it on."""
    job: JobVersion | None = None
    """A batch write that is one version of a job."""
    accepted: Count | None = None
    """The cluster's count of batches with which notes are taken that are older."""


def parse_sink(
    given: Mapping[str, str], schema: StructType, *, is_stream: bool = False
) -> SinkOptions:
    """The options of one write of rows with this schema; names of options in any case.

    Raises:
        ConfigError: unknown or contradictory options, missing or unknown columns, and wrong types;
            all of them, in Spark's words where it has some.
    """
    options = {name.lower(): value for name, value in given.items()}
    topic = options.get("topic")
    asked = options.get("delivery", Delivery.AT_LEAST_ONCE)
    is_once = asked.lower() == Delivery.EXACTLY_ONCE
    settings, faults = _producer_settings(options, is_once=is_once)
    faults += _option_faults(options)
    faults += (_stream_faults if is_stream else _job_faults)(options, is_once=is_once)
    faults += column_faults(schema, has_topic_option=topic is not None)
    if faults:
        raise ConfigError(faults)
    accepted = options.get(ACCEPT.lower())
    return SinkOptions(
        topic=topic,
        producer=settings,
        delivery=Delivery(asked.lower()),
        checkpoint=options.get(_CHECKPOINT.lower()) if is_stream else None,
        job=None if is_stream else _job_version(options),
        accepted=None if accepted is None else Count(*map(int, accepted.split(":"))),
    )


def column_faults(schema: StructType, *, has_topic_option: bool) -> list[str]:
    """Tell which columns are missing or wrong for rows to be records, as sentences."""
    faults = []
    if "topic" not in schema.names and not has_topic_option:
        faults.append(
            "topic option required when no 'topic' attribute is present. Use the topic option for "
            "setting a topic"
        )
    # In Spark's words, for those who search the internet for them.
    if "value" not in schema.names:
        faults.append("Required attribute 'value' not found")
    for name, count in Counter(schema.names).items():
        if count > 1:
            faults.append(f"{name}: {count} columns have this name")
    for field in schema.fields:
        name, kind = field.name, field.dataType.simpleString()
        # A DataFrame of the source can be written as it is: offset and timestampType are the
        # broker's to give.
        if name in PASSED_OVER or (name == "topic" and has_topic_option):
            continue
        if name not in COLUMNS:
            near = difflib.get_close_matches(name.lower(), COLUMNS, n=1)
            meant = f"did you mean {near[0]}?" if near else f"there are: {', '.join(COLUMNS)}"
            faults.append(f"{name}: records have no such column; {meant}")
        elif kind not in COLUMNS[name]:
            faults.append(
                f"{name} attribute unsupported type {kind}. {name} must be a(n) "
                f"{' or '.join(COLUMNS[name])}"
            )
    return faults


def _option_faults(options: Mapping[str, str]) -> list[str]:
    """Tell the faults of the options that are not the producer's settings."""
    faults = []
    for name in options:
        if name in _REFUSED:
            faults.append(f"{name}: {_REFUSED[name]}")
        elif name not in OWN and not name.startswith("kafka."):
            near = difflib.get_close_matches(name, [*OWN, BOOTSTRAP], n=1)
            meant = f"; did you mean {OWN.get(near[0], near[0])}?" if near else ""
            faults.append(f"{name}: no such option{meant}")
    if options.get("topic") == "":
        faults.append("topic: the name is empty")
    for name, allowed in (("includeHeaders", ("true", "false")), ("delivery", tuple(Delivery))):
        asked = options.get(name.lower(), allowed[0])
        if asked.lower() not in allowed:
            faults.append(f"{name}: {asked!r} is not one of {', '.join(allowed)}")
    # The count is copied from an error message, so it must have its form exactly.
    accepted = options.get(ACCEPT.lower(), "0:0")
    if not _COUNT.fullmatch(accepted):
        faults.append(f"{ACCEPT}: {accepted!r} is not a count such as 1000:7, as an error names it")
    if ACCEPT.lower() in options and _CHECKPOINT.lower() not in options:
        faults.append(f"{ACCEPT}: only with option('{_CHECKPOINT}', …), where commits are noted")
    return faults


def _stream_faults(options: Mapping[str, str], *, is_once: bool) -> list[str]:
    """Tell what a stream has no use for, or lacks."""
    faults = [
        f"{name}: it is for batch writes; a stream has an id, and its batches have numbers"
        for name in _TXN
        if name.lower() in options
    ]
    if is_once and _CHECKPOINT.lower() not in options:
        faults.append(
            "delivery: exactly-once keeps its record beside the checkpoint; give "
            "option('checkpointLocation', …) to the writer, also if a setting of Spark has it"
        )
    return faults


def _job_faults(options: Mapping[str, str], *, is_once: bool) -> list[str]:
    """Tell what is wrong with the options that make a batch write one version of a job."""
    wanted = (*_TXN, _CHECKPOINT)
    given = [name for name in wanted if name.lower() in options]
    if not given:
        return []
    about = ", ".join(given)
    faults = []
    if missing := [name for name in wanted if name not in given]:
        faults.append(
            f"{about}: a batch write is there once, however often its job runs, with "
            f"{', '.join(wanted)} together; give {', '.join(missing)} too, or none of them"
        )
    if not is_once:
        faults.append(f"{about}: only with option('delivery', 'exactly-once')")
    version = options.get("txnversion", "0")
    # Spark's options are text, and Python's `int` would take signs, spaces and other scripts.
    is_number = version.isascii() and version.isdecimal() and len(version) <= _DIGITS_MAX
    if not is_number or int(version) > INT64_MAX:
        faults.append(f"txnVersion: {version!r} is not a whole number from 0 to {INT64_MAX}")
    if options.get("txnappid") == "":
        faults.append("txnAppId: the name is empty")
    location = options.get(_CHECKPOINT.lower(), "/")
    if "://" not in location and not location.removeprefix("file:").startswith("/"):
        faults.append(
            f"{_CHECKPOINT}: {location!r} would be another place for a driver that is started "
            "elsewhere; give a whole path or a URI"
        )
    return faults


def _job_version(options: Mapping[str, str]) -> JobVersion | None:
    """The version that a batch write without faults is."""
    if "txnappid" not in options:
        return None
    return JobVersion(
        app_id=options["txnappid"],
        number=int(options["txnversion"]),
        location=options[_CHECKPOINT.lower()],
    )


def _producer_settings(
    options: Mapping[str, str], *, is_once: bool
) -> tuple[dict[str, str], list[str]]:
    """The settings with Kafka's names, and what is wrong with them."""
    settings = (
        # Quotas and logs of the broker go by it.
        {"client.id": CLIENT_ID}
        | (_EXACTLY_ONCE_DEFAULTS if is_once else {})
        | {
            name.removeprefix("kafka."): value
            for name, value in options.items()
            if name.startswith("kafka.") and name not in _REFUSED
        }
    )
    if BOOTSTRAP not in options:
        fault = f"Option '{BOOTSTRAP}' must be specified: HOST:PORT of some brokers"
        return settings, [fault]
    try:
        # The id is that of each task; it is given for what must hold together with one.
        config = parse_producer_config(
            settings | ({"transactional.id": CLIENT_ID} if is_once else {})
        )
    except ConfigError as error:
        return settings, [f"kafka.{fault}" for fault in error.faults]
    if is_once:
        # A driver that writes at least once loads no client.
        from tailrace.client.admin.transactions import FENCING_TIMEOUT_MS

        # A producer with it would be taken for one that was fenced.
        if config.transaction_timeout_ms == FENCING_TIMEOUT_MS:
            fault = (
                f"kafka.{_TRANSACTION_TIMEOUT} must not be {FENCING_TIMEOUT_MS}, by which the sink "
                "knows producers that were fenced; give another"
            )
            return settings, [fault]
    return settings, []
