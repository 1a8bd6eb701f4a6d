"""`Preparation`: a record from the caller's arguments until it can go into a batch, without a lock.

    arguments to built-in types -> interceptors -> topic name and timestamp checked -> serializers
    -> size checked

Values of a wrong type raise a TypeError; values of the right type that a broker would refuse fail
the record.
"""

import re
from collections.abc import Iterable, Mapping
from operator import index
from typing import TYPE_CHECKING, Any, Final, NoReturn, cast

from tailrace.client.group_offsets import ConsumerGroupMetadata, OffsetAndMetadata
from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.errors import InvalidTopicError, RejectedRecordError
from tailrace.client.producer.intake.encoding import BATCH_OVERHEAD, record_size_bound
from tailrace.client.producer.metadata import ProducerMetadata
from tailrace.client.producer.plugins import (
    Header,
    ProducerInterceptors,
    ProducerRecord,
    serialize,
)
from tailrace.client.user_code import function_for
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.errors import kind_of
from tailrace.kernels.record_block import NOW, pack_headers
from tailrace.model import TopicPartition
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.client.producer.plugins import Plugins


@dataclass(slots=True)
class Prepared:
    """A serialized record that is not in a batch yet."""

    record: ProducerRecord
    key: bytes | None
    value: bytes | None
    headers: bytes
    """Encoded with their count; empty if there are none."""
    size: int
    """Bytes it takes in a batch, at most."""


INT16_MAX: Final = 32_767

_PLAIN: Final = frozenset({bytes, str, type(None)})
_BYTES: Final = (bytes, bytearray, memoryview)
_SENDABLE: Final = (*_BYTES, str)
_NUMBERS: Final = frozenset({int, type(None)})


def plain_record(record: ProducerRecord, plugins: "Plugins") -> ProducerRecord:
    """The record with each field converted to its declared type.

    A key or value may have any type if `plugins` has a serializer for it.

    Raises:
        TypeError: a field has a wrong type; the message names it.
    """
    # A subclass of `str` or `int` may run its own code whenever it is hashed, compared or encoded,
    # and a mutable sequence may change later. So arguments become exactly the built-in types before
    # the producer takes a lock or changes anything, and errors of that code reach the caller.
    topic, value, key, headers, timestamp, partition = record
    if (
        type(topic) is str
        and type(value) in _PLAIN
        and type(key) in _PLAIN
        and type(headers) is tuple
        and not headers
        and type(timestamp) in _NUMBERS
        and type(partition) in _NUMBERS
    ):
        return record
    for name, data, serializer in (
        ("key", record.key, plugins.key_serializer),
        ("value", record.value, plugins.value_serializer),
    ):
        is_known = data is None or isinstance(data, _SENDABLE)
        if serializer is None and not is_known:
            wanted = f"bytes, str or None, or set {name}_serializer, such as json.dumps"
            _refuse(name, data, wanted)
    return ProducerRecord(
        plain_topic(record.topic),
        record.value,
        record.key,
        plain_headers(record.headers),
        _plain_int("timestamp", record.timestamp, "an int, milliseconds since 1970-01-01 UTC"),
        _plain_int("partition", record.partition, "an int or None"),
    )


def plain_headers(headers: object) -> tuple[Header, ...]:
    """The headers as plain pairs; TypeError names what has a wrong type."""
    if headers is None:
        return ()
    is_plain = type(headers) in {list, tuple, dict}
    if not is_plain and (isinstance(headers, _SENDABLE) or not isinstance(headers, Iterable)):
        _refuse("headers", headers, "pairs of a str and bytes or None, or a mapping of them")
    pairs = cast("Iterable[Any]", headers.items() if isinstance(headers, Mapping) else headers)
    found = []
    for pair in pairs:
        if not isinstance(pair, (tuple, list)) or len(pair) != 2:
            _refuse("a header", pair, "a pair of a str and bytes or None")
        name, content = pair
        if content is not None and not isinstance(content, _BYTES):
            _refuse(f"the value of the header {name!r}", content, "bytes or None")
        found.append(
            (_plain_text("the name of a header", name), None if content is None else bytes(content))
        )
    return tuple(found)


def plain_topic(topic: object) -> str:
    return _plain_text("topic", topic)


def plain_partition(partition: object) -> int:
    """The partition as a plain `int`; TypeError if it is none, ValueError if out of range."""
    return _bounded("partition", partition, first=0, last=INT32_MAX)


def check_callback(callback: object) -> None:
    if callback is not None and not callable(callback):
        _refuse("on_delivery", callback, "callable")


def plain_offsets(offsets: object) -> dict[TopicPartition, OffsetAndMetadata]:
    """A mapping of partitions to offsets, with each offset as an `OffsetAndMetadata`.

    Raises:
        TypeError: a key or value has a wrong type; the message names it.
        ValueError: a number is out of range, or a text cannot be encoded or is too long.
    """
    if not isinstance(offsets, Mapping):
        _refuse("offsets", offsets, "a mapping of TopicPartition to an offset")
    found = {}
    for key, given in offsets.items():
        if not isinstance(key, tuple) or len(key) != 2:
            _refuse("a key of offsets", key, "a tailrace.model.TopicPartition")
        partition = TopicPartition(
            _sendable("the topic of an offset", key[0]),
            _bounded("the partition of an offset", key[1], first=0, last=INT32_MAX),
        )
        consumed = given if isinstance(given, OffsetAndMetadata) else OffsetAndMetadata(given)
        offset, epoch, metadata = consumed
        about = f"the offset of {partition}"
        found[partition] = OffsetAndMetadata(
            _bounded(about, offset, first=0, last=INT64_MAX),
            _bounded(f"the leader epoch in {about}", epoch, first=-1, last=INT32_MAX),
            None if metadata is None else _sendable(f"the metadata in {about}", metadata),
        )
    return found


def plain_group(group: object) -> ConsumerGroupMetadata:
    """The group as a `ConsumerGroupMetadata`; it may be given by its name alone.

    Raises:
        TypeError: it is neither a name nor a `ConsumerGroupMetadata`.
        ValueError: a number is out of range, or a text cannot be encoded or is too long.
    """
    if isinstance(group, str):
        group = ConsumerGroupMetadata(group)
    if not isinstance(group, ConsumerGroupMetadata):
        wanted = "the name of the group, or a ConsumerGroupMetadata"
        if isinstance(group, bytes) and group.startswith(b"CGMD"):
            wanted += ": the metadata that confluent-kafka gives cannot be read, so pass the name"
            wanted += " (then an old member of the group is not refused)"
        _refuse("group", group, wanted)
    instance = group.group_instance_id
    return ConsumerGroupMetadata(
        _sendable("the id of group", group.group_id),
        _bounded("the generation of group", group.generation_id, first=-1, last=INT32_MAX),
        _sendable("the member id of group", group.member_id),
        None if instance is None else _sendable("the instance id of group", instance),
    )


def _sendable(name: str, text: object) -> str:
    """The text as a plain `str`; raises ValueError if a request cannot carry it."""
    found = _plain_text(name, text)
    try:
        size = len(found.encode())
    except UnicodeEncodeError as error:
        raise ValueError(f"{name} is a str that UTF-8 cannot encode: {error}") from error
    if size > INT16_MAX:
        raise ValueError(f"{name} has {size} bytes; a request carries {INT16_MAX} at most")
    return found


def _bounded(name: str, number: object, *, first: int, last: int) -> int:
    """The number as a plain `int`; raises ValueError if it is out of range."""
    found = _plain_int(name, number, "an int")
    if found is None:
        _refuse(name, number, "an int")
    if not first <= found <= last:
        raise ValueError(f"{name} is {found}; it has to be from {first} to {last}")
    return found


def _plain_text(name: str, text: object) -> str:
    if type(text) is str:
        return text
    if not isinstance(text, str):
        _refuse(name, text, "a str")
    return str.__str__(text)


def _plain_int(name: str, number: object, wanted: str) -> int | None:
    if number is None or type(number) is int:
        return number
    try:
        # `True` is an int for Python; as a partition it is a mistake.
        found = None if isinstance(number, bool) else index(number)  # type: ignore[arg-type]
    except TypeError:
        found = None
    if found is None:
        _refuse(name, number, wanted)
    return found


def _refuse(name: str, given: object, wanted: str) -> NoReturn:
    advice = ""
    if isinstance(given, str) and wanted.startswith("bytes"):
        advice = "; encode() makes bytes of a str"
    elif isinstance(given, bytes) and wanted == "a str":
        advice = "; decode() makes a str of bytes"
    raise TypeError(f"{name} is {kind_of(given)}; it has to be {wanted}{advice}")


_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names that brokers accept."""


class Preparation:
    """Calls the user's interceptors and serializers, and refuses what cannot be sent."""

    def __init__(
        self,
        config: ProducerConfig,
        plugins: "Plugins",
        interceptors: ProducerInterceptors,
        *,
        metadata: ProducerMetadata,
    ) -> None:
        self._config = config
        self._plugins = plugins
        self._interceptors = interceptors
        self._metadata = metadata

    def prepare(self, record: ProducerRecord) -> Prepared:
        """Run interceptors and serializers on a record and check its size.

        Raises:
            ProducerError: the record cannot be sent.
        """
        if self._interceptors:
            try:
                record = plain_record(self._interceptors.on_send(record), self._plugins)
            except TypeError as error:
                raise RejectedRecordError(
                    f"{record.topic}: after the interceptors, {error}"
                ) from error
        self.check_name(record.topic)
        if record.timestamp is not None and not NOW < record.timestamp <= INT64_MAX:
            raise RejectedRecordError(
                f"{record.topic}: timestamp {record.timestamp} is not in the range "
                f"{NOW + 1} to {INT64_MAX} (ms since 1970-01-01 UTC)"
            )
        plugins, topic = self._plugins, record.topic
        for_keys = function_for(plugins.key_serializer, topic, method="serialize")
        for_values = function_for(plugins.value_serializer, topic, method="serialize")
        key = serialize(record.key, for_keys, setting="key_serializer")
        value = serialize(record.value, for_values, setting="value_serializer")
        try:
            headers = pack_headers(record.headers)
        except UnicodeEncodeError as error:
            raise RejectedRecordError(
                f"{record.topic}: the name of a header cannot be encoded as UTF-8: {error}"
            ) from error
        size = record_size_bound(key, value, headers, has_timestamp=record.timestamp is not None)
        # As in Kafka's `ensureValidRecordSize`, before any memory is taken.
        for limit, setting in (
            (self._config.max_request_size, "max.request.size"),
            (self._config.buffer_memory, "buffer.memory"),
        ):
            if BATCH_OVERHEAD + size > limit:
                raise RejectedRecordError(
                    f"{record.topic}: the record takes up to {BATCH_OVERHEAD + size} bytes, more "
                    f"than {setting} ({limit}) allows"
                )
        return Prepared(record, key, value, headers, size)

    def check_name(self, topic: str) -> None:
        """Raise InvalidTopicError for a name that no broker accepts."""
        # An invalid name would fail the requests about all other topics too. One that a broker has
        # accepted is valid.
        if self._metadata.partition_count(topic) is None and not _TOPIC_NAME.fullmatch(topic):
            raise InvalidTopicError(
                f"topic {topic!r}: a topic name must have 1 to 249 of the characters a-z, A-Z, "
                "0-9, '.', '_' and '-'"
            )
