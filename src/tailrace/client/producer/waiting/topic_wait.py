"""`TopicWait`: one caller's wait until a topic is known, and has the partition of a record.

A partition that is not there may have been added a moment ago, so the cluster is asked once more;
if the answer has none either, waiting for longer is vain.

Not here: who waits, and how (`producer`, `lines`).
"""

from typing import TYPE_CHECKING

from tailrace.client.listings import Listing, PartitionInfo
from tailrace.client.pending import Pending
from tailrace.client.producer.errors import MetadataTimeoutError, UnknownTopicError
from tailrace.client.producer.intake.record import ProducerRecord
from tailrace.client.producer.waiting.explanations import last_failure, why_no_topic

if TYPE_CHECKING:
    from tailrace.client.producer.engine import Engine


class TopicWait:
    """Begins with a request for the topic if nothing is known of it; `started` is in seconds.

    `request` is what `request_update` has returned since the record was sent, if it was called.
    """

    def __init__(
        self,
        engine: "Engine",
        record: ProducerRecord,
        *,
        started: float,
        request: int | None = None,
    ) -> None:
        self._engine = engine
        self._record = record
        self._started = started
        self._request = request
        """The request for metadata whose answer decides whether the partition exists."""
        engine.metadata.add_topic(record.topic, started)

    def is_over(self) -> bool:
        """Whether the record can get a partition; may ask for metadata, which is then to be sent.

        Raises:
            UnknownTopicError: the topic has no such partition.
            ProducerError: waiting is vain for another reason; see `Engine.check_topic`.
        """
        topic, partition = self._record.topic, self._record.partition or 0
        metadata = self._engine.metadata
        self._engine.check_topic(topic)
        count = metadata.partition_count(topic)
        if count is None or partition < count:
            return count is not None
        if self._request is None:
            self._request = metadata.request_update()
        elif metadata.last_answered >= self._request:
            last = f"0 to {count - 1}" if count > 1 else "0 alone"
            raise UnknownTopicError(
                f"partition: topic {topic} has no partition {partition}, it has {last}; send to "
                "one of these, leave partition out, or add partitions to the topic"
            )
        return False

    def timed_out(self, now: float) -> MetadataTimeoutError:
        """The error of a caller who waited for too long."""
        return MetadataTimeoutError(why_no_topic(self._engine, self._record, now - self._started))


def listed_in(engine: "Engine", pending: Pending[Listing]) -> Listing:
    """The answer for a caller who has waited.

    Raises:
        MetadataTimeoutError: there is none.
        ClosedProducerError: the producer was closed meanwhile.
        ProducerError: the request failed.
    """
    if not pending.is_done:
        engine.check_open()
        raise MetadataTimeoutError(
            f"no list of topics has come in time: {last_failure(engine) or pending.reason}; check "
            "bootstrap.servers, or wait for longer"
        )
    return pending.result()


def partitions_in(listing: Listing, topic: str) -> list[PartitionInfo]:
    """The partitions of one topic of an answer.

    Raises:
        UnknownTopicError: it is not there.
    """
    found = listing.get(topic)
    if found is None:
        raise UnknownTopicError(f"{topic}: no broker knows it any more; was the topic deleted?")
    return list(found)
