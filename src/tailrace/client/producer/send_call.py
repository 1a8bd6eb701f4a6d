# cython: auto_pickle=False, nonecheck=True
"""`SendCall`: base class of the producers, with `send`.

It is compiled, since half of what a record costs otherwise is Python's call of `send`.
"""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Literal, overload

from tailrace.client.producer.intake.record import Header
from tailrace.client.producer.outcome import DeliveryCallback
from tailrace.client.producer.receipts import Receipt

if TYPE_CHECKING:
    from tailrace.client.producer.queue.open_batches import OpenBatches

HeadersLike = Mapping[str, bytes | None] | Sequence[Header]
"""Names and contents of headers."""


class SendCall:
    """Sends a record into an open batch, and leaves the others to its subclass."""

    if TYPE_CHECKING:
        _batches: OpenBatches

    def _send_into(self, batches: "OpenBatches") -> None:
        """Set where records go."""
        self._batches = batches

    @overload
    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        headers: HeadersLike | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        receipt: Literal[True] = True,
    ) -> Receipt: ...
    @overload
    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        headers: HeadersLike | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        receipt: Literal[False],
    ) -> None: ...
    def send(
        self,
        topic: str,
        value: object = None,
        key: object = None,
        *,
        headers: HeadersLike | None = None,
        timestamp: int | None = None,
        partition: int | None = None,
        on_delivery: DeliveryCallback | None = None,
        receipt: bool = True,
    ) -> Receipt | None:
        """Queue one record to be sent in the background, and return a receipt for it.

        `value` and `key` are bytes, text (UTF-8), None, or any type that the serializers take. A
        None value deletes its key in a compacted topic. `timestamp` is in ms since 1970-01-01 UTC,
        by default the time of this call; before 1970 it is negative, and -1 stands for no time.
        Without `partition`, the key decides; records without a key go to one partition after the
        other, a batch at a time.

        `on_delivery(metadata, error)` is called with the outcome, by the producer's own thread or
        the event loop; nothing is sent while it blocks. `receipt=False` returns None instead of a
        receipt, which is cheaper; errors are then only logged and counted.

        An invalid record fails with its receipt; an argument of a wrong type raises here.

        Raises:
            TypeError: an argument is of a type that cannot be sent; the message names it.
            ClosedProducerError: the producer is closed, or was created before a fork.
            ReentrantCallError: called by a signal handler that has interrupted another call.
        """
        taken = self._batches.take(
            topic, value, key, headers, timestamp, partition, on_delivery, receipt
        )
        if taken is False:
            return self._send_slowly(
                topic, value, key, headers=headers, timestamp=timestamp, partition=partition,
                on_delivery=on_delivery, receipt=receipt,
            )  # fmt: skip
        return None if taken is True else taken

    def _send_slowly(
        self,
        topic: str,
        value: object,
        key: object,
        *,
        headers: HeadersLike | None,
        timestamp: int | None,
        partition: int | None,
        on_delivery: DeliveryCallback | None,
        receipt: bool,
    ) -> Receipt | None:
        """Send a record that needs the engine."""
        raise NotImplementedError
