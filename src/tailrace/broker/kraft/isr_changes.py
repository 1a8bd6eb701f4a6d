"""`IsrChanges`: AlterPartition requests of the partitions that this broker leads (KIP-497).

    partition ─ submit(change, answered) ─► queued ─► one request in flight with all that are queued
              ◄─ answered(result) ─────────────────── or again after 50 ms, until there is an answer

One change of a partition at a time, as in Kafka's DefaultAlterPartitionManager: a second one is
OPERATION_NOT_ATTEMPTED, and the partition proposes again when the first has its answer. A change is
sent until it is answered, even if a newer image has decided on it meanwhile: the controller refuses
it by its partition epoch then.

After a crash: nothing is lost. The controller has the change or not, and the next leader has the
image.

Not here: what a partition makes of the result (`replication.leadership`).
"""

import asyncio
import logging
from collections.abc import Callable, Collection, Iterator
from itertools import groupby
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.broker.kraft.channel import Asker, ControllerChannel
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_partition import (
    AlterPartitionRequest,
    AlterPartitionResponse,
    BrokerState,
    PartitionData,
    TopicData,
)
from tailrace.protocol.messages.alter_partition import (
    AlterPartitionResponsePartitionData as AlteredPartition,
)
from tailrace.replication.leadership import IsrChange

logger = logging.getLogger(__name__)

IsrAnswer = AlteredPartition | ErrorCode
"""The partition's state after the change, or why the change was not made."""

AGAIN_S: Final = 0.05
"""Pause before a request without an answer is sent again; Kafka's constant."""
ATTEMPT_TIMEOUT_MS: Final = 10_000
"""Longest wait for a controller, after which the request is made from what is queued by then."""
RECOVERED: Final = 0
"""The leader has whatever was committed, or nobody has it: a leader says so of itself (KIP-704)."""
RECOVERY_STATES: Final = (0, 1)


class _Queued(NamedTuple):
    name: TopicPartition
    change: IsrChange
    answered: Callable[[IsrAnswer], None]


class IsrChanges:
    """Sends changes of the ISR to the controllers; for one loop."""

    def __init__(
        self, channel: ControllerChannel, *, broker_id: int, broker_epoch: Callable[[], int]
    ) -> None:
        """`broker_epoch` gives the epoch of the registration now."""
        self._asker = Asker(
            channel, logger, lambda: f"isr_changes_failed count={len(self._queued)}"
        )
        self._broker_id = broker_id
        self._broker_epoch = broker_epoch
        self._queued: dict[tuple[UUID, int], _Queued] = {}
        self._sending: asyncio.Task[None] | None = None

    @property
    def pending_count(self) -> int:
        """Partitions whose change has no answer yet."""
        return len(self._queued)

    def submit(
        self,
        name: TopicPartition,
        topic_id: UUID,
        change: IsrChange,
        *,
        answered: Callable[[IsrAnswer], None],
    ) -> None:
        """Have the controllers make a change; `answered` is called once, unless `close` comes.

        It gets OPERATION_NOT_ATTEMPTED at once if the partition has a change without an answer.
        """
        key = (topic_id, name.partition)
        if key in self._queued:
            answered(ErrorCode.OPERATION_NOT_ATTEMPTED)
            return
        self._queued[key] = _Queued(name, change, answered)
        # In the next turn: whatever else is submitted in this one goes into the same request.
        if self._sending is None:
            self._begin()

    def close(self) -> None:
        """Send no more; changes without an answer get none."""
        self._queued.clear()
        if self._sending is not None:
            self._sending.cancel()

    def _begin(self) -> None:
        self._sending = asyncio.ensure_future(self._send_all())
        self._sending.add_done_callback(self._ended)

    def _ended(self, task: "asyncio.Task[None]") -> None:
        self._sending = None
        error = None if task.cancelled() else task.exception()
        if error is not None:
            # The next submit begins again.
            logger.error("isr_changes_ended", exc_info=error)
        elif self._queued and not task.cancelled():
            # Submitted between the task's last look and this call, which comes a turn later: the
            # change would wait for that of another partition.
            self._begin()

    async def _send_all(self) -> None:
        while self._queued:
            sent = dict(self._queued)
            answer = await self._asker.ask(
                self._request(sent), AlterPartitionResponse, timeout_ms=ATTEMPT_TIMEOUT_MS
            )
            if answer is not None:
                self._asker.succeeded()
                # A partition that the answer lacks stays queued. Kafka asks for it again at once,
                # which a wrong controller could make an endless loop.
                if self._take(sent, answer):
                    continue
            await asyncio.sleep(AGAIN_S)

    def _request(self, sent: dict[tuple[UUID, int], _Queued]) -> AlterPartitionRequest:
        by_topic = groupby(sorted(sent), key=lambda key: key[0])
        return AlterPartitionRequest(
            broker_id=self._broker_id,
            broker_epoch=self._broker_epoch(),
            topics=tuple(
                TopicData(
                    topic_id=topic_id,
                    partitions=tuple(
                        _proposed(index, sent[id_, index].change) for id_, index in keys
                    ),
                )
                for topic_id, keys in by_topic
            ),
        )

    def _take(self, sent: dict[tuple[UUID, int], _Queued], answer: AlterPartitionResponse) -> bool:
        """Give each partition its result; whether the answer has all that were asked."""
        results = dict(_results(answer))
        for key, queued in sent.items():
            result = results.pop(key, None)
            if result is None:
                logger.warning("isr_change_unanswered partition=%s", queued.name)
                continue
            # First: the partition may submit its next change as it takes the result.
            self._queued.pop(key, None)
            if isinstance(result, AlteredPartition) and not _is_state(result):
                logger.error(
                    "isr_answer_wrong partition=%s answer=%s consequence=%s",
                    queued.name,
                    result,
                    "the change is proposed again when the metadata has the partition's state",
                )
                result = ErrorCode.UNKNOWN_SERVER_ERROR
            queued.answered(result)
        if results:
            logger.warning("isr_answers_unasked partitions=%s", sorted(map(str, results)))
        return not sent.keys() & self._queued.keys()


def _proposed(index: int, change: IsrChange) -> PartitionData:
    return PartitionData(
        partition_index=index,
        leader_epoch=change.leader_epoch,
        # Version 2 has the ids alone, version 3 the epochs (KIP-903); only one of them is written.
        new_isr=tuple(change.isr),
        new_isr_with_epochs=tuple(
            BrokerState(broker_id=number, broker_epoch=epoch)
            for number, epoch in change.isr.items()
        ),
        leader_recovery_state=RECOVERED,
        partition_epoch=change.partition_epoch,
    )


def _results(answer: AlterPartitionResponse) -> Iterator[tuple[tuple[UUID, int], IsrAnswer]]:
    for topic in answer.topics:
        for each in topic.partitions:
            result: IsrAnswer = each
            if each.error_code != ErrorCode.NONE:
                is_known = each.error_code in set(ErrorCode)
                result = ErrorCode(each.error_code if is_known else ErrorCode.UNKNOWN_SERVER_ERROR)
            yield (topic.topic_id, each.partition_index), result


def _is_state(result: AlteredPartition) -> bool:
    """Whether an answer without an error can be the state of a partition."""
    return (
        result.leader_epoch >= 0
        and result.partition_epoch >= 0
        and result.leader_recovery_state in RECOVERY_STATES
        and _are_brokers(result.isr)
    )


def _are_brokers(isr: Collection[int]) -> bool:
    return bool(isr) and min(isr) >= 0 and len(set(isr)) == len(isr)
