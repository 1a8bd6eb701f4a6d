"""`Preparation`: what is done to a record before it goes into a batch, without the producer's lock.

interceptors -> topic name and timestamp checked -> serializers -> size checked
"""

import re
from typing import TYPE_CHECKING, Final

from tailrace.client.producer.config import ProducerConfig
from tailrace.client.producer.errors import InvalidTopicError, RejectedRecordError
from tailrace.client.producer.intake.arguments import plain_record
from tailrace.client.producer.intake.encoding import (
    BATCH_OVERHEAD,
    record_size_bound,
)
from tailrace.client.producer.intake.interceptors import ProducerInterceptors
from tailrace.client.producer.intake.record import Prepared, ProducerRecord
from tailrace.client.producer.intake.serializers import serialize
from tailrace.client.producer.metadata import ProducerMetadata
from tailrace.config.settings import INT64_MAX
from tailrace.kernels.record_block import NOW, pack_headers

if TYPE_CHECKING:
    from tailrace.client.producer.intake.plugins import Plugins

_TOPIC_NAME: Final = re.compile(r"[a-zA-Z0-9._-]{1,249}")
"""Names that brokers accept; an invalid one would fail the requests about all other topics."""


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
        key = serialize(record.key, self._plugins.key_serializer, setting="key_serializer")
        value = serialize(record.value, self._plugins.value_serializer, setting="value_serializer")
        try:
            headers = pack_headers(record.headers)
        except UnicodeEncodeError as error:
            raise RejectedRecordError(
                f"{record.topic}: the name of a header cannot be encoded as UTF-8: {error}"
            ) from error
        size = record_size_bound(key, value, headers, has_timestamp=record.timestamp is not None)
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
        """Raise InvalidTopicError for an invalid name, which would fail requests for all topics."""
        if self._metadata.partition_count(topic) is None and not _TOPIC_NAME.fullmatch(topic):
            raise InvalidTopicError(
                f"topic {topic!r}: a topic name must have 1 to 249 of the characters a-z, A-Z, "
                "0-9, '.', '_' and '-'"
            )
