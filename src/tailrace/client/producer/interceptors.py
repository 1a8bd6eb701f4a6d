"""Interceptors: code of the user's that sees each record on its way out, and what became of it.

They may change a record before it is serialized (KIP-42). What they raise is logged and otherwise
of no effect, so that a fault of an interceptor never loses a record.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from tailrace.client.producer.receipts import ProducerRecord, RecordMetadata
from tailrace.client.producer.user_code import call_user_code

log = logging.getLogger(__name__)


class ProducerInterceptor(Protocol):
    """To derive from: each method does nothing until it is overridden."""

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """The record to send instead, before key and value are serialized.

        Called by the thread that sends, so it should not block.
        """
        return record

    def on_acknowledgement(
        self,
        metadata: RecordMetadata,  # noqa: ARG002 - for those who override it.
        error: Exception | None,  # noqa: ARG002
    ) -> None:
        """A record was written, or failed with `error`; then metadata has -1 for what is unknown.

        Called by the producer's own thread, so it should not block.
        """
        return

    def close(self) -> None:
        """The producer was closed."""
        return


class ProducerInterceptors:
    """The interceptors of a producer, each called in turn."""

    def __init__(self, interceptors: Sequence[ProducerInterceptor] = ()) -> None:
        self._interceptors = tuple(interceptors)

    def __bool__(self) -> bool:
        return bool(self._interceptors)

    def on_send(self, record: ProducerRecord) -> ProducerRecord:
        """What the interceptors make of a record; one that fails is passed over."""
        for each in self._interceptors:
            try:
                changed: object = each.on_send(record)
            except Exception:
                log.exception("%s.on_send failed; it has no effect", type(each).__name__)
                continue
            if isinstance(changed, ProducerRecord):
                record = changed
            else:
                log.error(
                    "%s.on_send returned a %s instead of a ProducerRecord; it has no effect",
                    type(each).__name__,
                    type(changed).__name__,
                )
        return record

    def on_acknowledgement(self, metadata: RecordMetadata, error: Exception | None) -> None:
        """Tell all what became of a record that was to be sent."""
        for each in self._interceptors:
            call_user_code(
                each.on_acknowledgement,
                metadata,
                error,
                about=f"{type(each).__name__}.on_acknowledgement",
            )

    def on_send_error(self, record: ProducerRecord, error: Exception) -> None:
        """Tell all that a record failed before it was in a batch.

        The partition is the record's own, or -1 if it has none.
        """
        partition = -1 if record.partition is None else record.partition
        self.on_acknowledgement(RecordMetadata(record.topic, partition, -1, -1), error)

    def close(self) -> None:
        """Tell all that the producer was closed."""
        for each in self._interceptors:
            call_user_code(each.close, about=f"{type(each).__name__}.close")
