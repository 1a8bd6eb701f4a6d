"""Interceptors: user code that is called for each record when it is sent and when it is done.

They may change a record before it is serialized (KIP-42). Their exceptions are logged and have no
other effect, so a faulty interceptor never loses a record.
"""

import logging
from collections.abc import Sequence
from typing import Protocol

from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.outcome import RecordMetadata
from tailrace.client.user_code import call_user_code

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
