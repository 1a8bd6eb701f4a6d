"""`Plugins`: the user code of a producer, and the records that it gets.

    serializers    a key or value to bytes, for each record
    interceptors   may change a record before it is serialized, and get its outcome (KIP-42)
    partitioner    see `partitioning`
    hooks          are called for each batch; for tracing and custom metrics

Bytes are sent unchanged, a `str` as UTF-8, and None as null, which in a compacted topic deletes the
key. Other types need a serializer: any callable of one argument that returns bytes, a `str` or
None, such as `json.dumps`; or an object with a method `serialize(topic, value)`. Those of this
module give the same bytes as Kafka's own serializers of the same type.

Exceptions of interceptors and hooks are logged and have no other effect, so a faulty one never
loses a record. Hooks are called by the thread or loop that also runs delivery callbacks, one at a
time.

Not here: serializers that register a schema (`tailrace.schemas`), and counts that are kept anyway
(`metrics`).
"""

import logging
import struct
from collections.abc import Callable, Sequence
from functools import cache
from typing import Any, NamedTuple, Protocol
from uuid import UUID

from tailrace.client.producer.errors import SerializationError
from tailrace.client.producer.outcome import RecordMetadata
from tailrace.client.producer.partitioners import Partitioner
from tailrace.client.user_code import call_user_code
from tailrace.model import TopicPartition
from tailrace.values import dataclass

Header = tuple[str, bytes | None]


class ProducerRecord(NamedTuple):
    """A record before it is serialized, as interceptors get it."""

    topic: str
    value: object = None
    key: object = None
    headers: tuple[Header, ...] = ()
    timestamp: int | None = None
    """Milliseconds since 1970-01-01 UTC; None for the time of sending, -1 for no time."""
    partition: int | None = None
    """Number of the partition; with None the partitioner chooses it."""


Serialized = bytes | bytearray | memoryview | str | None
"""Types that can be sent without a serializer."""


class TopicSerializer(Protocol):
    """A serializer that needs the topic, as those of `tailrace.schemas` do for the subject."""

    def serialize(self, topic: str, value: Any, /) -> Serialized:  # noqa: ANN401 - any value
        """The bytes of a key or value of this topic, or a type that can be sent."""
        ...


Serializer = Callable[[Any], Serialized] | TopicSerializer
"""Turns a key or value into bytes: a function of it, or an object with a method `serialize`, which
is called with the topic too."""


def serialize(
    data: object, serializer: Callable[[Any], Serialized] | None, *, setting: str
) -> bytes | None:
    """The bytes of a key or value; a buffer that could change later is copied.

    `setting` is the name that the serializer is set by: `key_serializer` or `value_serializer`.

    Raises:
        SerializationError: the serializer failed, with its error as the cause; or it returned a
            type that cannot be sent; or there is no serializer and the type needs one.
    """
    # Null is a deletion in a compacted topic, and no serializer should have to know that.
    if serializer is not None and data is not None:
        try:
            data = serializer(data)
        except Exception as error:
            raise SerializationError(
                f"{setting} failed on a {type(data).__qualname__}: {error}"
            ) from error
    if data is None or type(data) is bytes:
        return data
    if isinstance(data, str):
        try:
            return str.encode(data)
        except UnicodeEncodeError as error:
            raise SerializationError(f"a str cannot be encoded as UTF-8: {error}") from error
    if isinstance(data, bytes | bytearray | memoryview):
        try:
            # By a memoryview, since a subclass may override `__bytes__`.
            return bytes(memoryview(data))
        except ValueError as error:
            raise SerializationError(f"a memoryview was released before: {error}") from error
    kind = type(data).__qualname__
    if serializer is not None:
        raise SerializationError(f"{setting} returned a {kind}, not bytes, str or None")
    raise SerializationError(
        f"a {kind} cannot be sent without a serializer: give bytes, str or None, or set {setting}"
    )


def serialize_json(value: object) -> str:
    """JSON without spaces, as UTF-8; NaN and infinities raise ValueError, as JSON lacks them."""
    return _json_encode()(value)


@cache
def _json_encode() -> Callable[[object], str]:
    import json  # Takes 2 ms, and most producers send none.

    return json.JSONEncoder(separators=(",", ":"), ensure_ascii=False, allow_nan=False).encode


def serialize_long(value: int) -> bytes:
    """8 bytes, big-endian, as Kafka's LongSerializer; a larger number raises struct.error."""
    return struct.pack(">q", value)


def serialize_double(value: float) -> bytes:
    """8 bytes, big-endian IEEE 754, as Kafka's DoubleSerializer."""
    return struct.pack(">d", value)


def serialize_uuid(value: UUID) -> str:
    """The 36 characters of a UUID, as Kafka's UUIDSerializer."""
    return str(value)


log = logging.getLogger(__name__)


class ProducerInterceptor(Protocol):
    """Base class for interceptors; each method does nothing unless it is overridden."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Return the record to send, which may be another one; key and value are not serialized.

        Called by the thread that sends, so it should not block.
        """
        return record

    def on_acknowledgement(
        self,
        metadata: RecordMetadata,  # noqa: ARG002 - for those who override it.
        error: Exception | None,  # noqa: ARG002
    ) -> None:
        """Called when a record was written, or failed with `error`.

        After a failure, unknown numbers in `metadata` are -1. Called by the producer's own thread,
        so it should not block.
        """
        return

    def close(self) -> None:
        """Called after the producer was closed."""
        return


class ProducerInterceptors:
    """All interceptors of a producer; a call goes to each of them."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """Pass a record through all interceptors; one that fails is skipped."""
        # As in Kafka (KIP-42): the next one gets the record of the last one that did not fail.
        for each in self._interceptors:
            try:
                changed: object = each.on_send(record)
            except Exception:
                log.exception("user_code_failed name=%s.on_send", type(each).__name__)
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                log.error(
                    "user_code_failed name=%s.on_send reason=it returned a %s instead of a "
                    "ProducerRecord",
                    type(each).__name__,
                    type(changed).__name__,
                )
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Tell all interceptors the outcome of a record."""
        for each in self._interceptors:
            call_user_code(
                each.on_acknowledgement,
                metadata,
                error,
                about=f"{type(each).__name__}.on_acknowledgement",
            )

    def on_send_error(self, record: ProducerRecord, error: Exception) -> None:
        """Tell all interceptors that a record failed before it was in a batch.

        The partition is the record's own, or -1 if it has none.
        """
        partition = -1 if record.partition is None else record.partition
        self.on_acknowledgement(RecordMetadata(record.topic, partition, -1, -1), error)

    def close(self) -> None:
        """Call `close` of all interceptors."""
        for each in self._interceptors:
            call_user_code(each.close, about=f"{type(each).__name__}.close")


class BatchInfo(NamedTuple):
    """A batch as it is in one request."""

    number: int
    """Number of the batch in this producer, from 0; the same for all attempts and for the end."""
    partition: TopicPartition
    record_count: int
    byte_count: int
    """Size of the encoded batch."""
    attempt: int
    """1 for the first attempt; 0 for a batch that was never sent."""
    base_offset: int = -1
    """Offset of the first record, once it is acknowledged and the broker has sent it."""
    client_id: str = ""
    """The `client.id` of this producer, which tells its batches from those of others."""


class BatchHook:
    """Base class for hooks; pass instances to a producer as `hooks`."""

    def on_send(self, batch: BatchInfo) -> None:
        """Called each time a batch is sent, retries included."""

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """Called when a batch has its outcome; one that was never sent has attempt 0.

        A batch that is too large for its topic ends with that error; its parts are new batches.
        """


class BatchHooks:
    """All hooks of a producer; a call goes to each of them."""

    def __init__(self, hooks: Sequence[BatchHook] = ()) -> None:
        self._hooks = tuple(hooks)

    def __bool__(self) -> bool:
        return bool(self._hooks)

    def on_send(self, batch: BatchInfo) -> None:
        """Call `on_send` of all hooks."""
        for each in self._hooks:
            call_user_code(each.on_send, batch, about=f"{type(each).__name__}.on_send")

    def on_done(self, batch: BatchInfo, error: Exception | None) -> None:
        """Call `on_done` of all hooks."""
        for each in self._hooks:
            call_user_code(each.on_done, batch, error, about=f"{type(each).__name__}.on_done")


@dataclass(frozen=True, slots=True, kw_only=True)
class Plugins:
    """User code that a producer was given: serializers, partitioner, interceptors, hooks."""

    key_serializer: Serializer | None = None
    value_serializer: Serializer | None = None
    partitioner: Partitioner | None = None
    interceptors: Sequence[ProducerInterceptor] = ()
    hooks: Sequence[BatchHook] = ()

    @property
    def is_plain(self) -> bool:
        """Whether a value goes into a batch without interceptors, serializer and partitioner."""
        return not self.interceptors and not self.value_serializer and self.partitioner is None

    @property
    def changes_rows(self) -> bool:
        """Whether interceptors or serializers have to be called for each row of `send_many`."""
        return bool(self.interceptors or self.key_serializer or self.value_serializer)

    def close(self) -> None:
        """Close the serializers and the partitioner that have a `close` method."""
        closable = (self.key_serializer, self.value_serializer, self.partitioner)
        # The same object may serialize keys and values; it is closed once.
        for part in {id(each): each for each in closable}.values():
            call_user_code(_close, part, about=f"{type(part).__name__}.close")


def _close(part: object) -> None:
    # A class as a serializer, such as `str`, has a `close` of its instances.
    close = None if isinstance(part, type) else getattr(part, "close", None)
    if callable(close):
        close()
