"""`Script`: the faults of a `ScriptedCluster`, and when they happen.

    cluster.script.add(ApiKey.PRODUCE, FaultKind.ERROR, error=ErrorCode.NOT_LEADER_OR_FOLLOWER)
    cluster.script.add(ApiKey.PRODUCE, FaultKind.CUT_AFTER, partition=TopicPartition("t", 1))

Each fault applies to matching requests; if several match, the first one applies.
"""

from collections.abc import Callable
from enum import Enum
from typing import Any

from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.values import dataclass


class FaultKind(Enum):
    """The effect of a fault on a request and its response."""

    ERROR = "an error is answered, and nothing is done"
    ERROR_AFTER = "it is done, and an error is answered"
    LOSE = "the request is lost, with all that follows on its connection"
    LOSE_REPLY = "it is done, and the answer is lost, with all that follows on the connection"
    CUT = "the connection is closed, and nothing is done"
    CUT_AFTER = "it is done, and the connection is closed"
    TWICE = "it is answered twice"
    SWAP = "it is answered after the request that follows it"
    GARBAGE = "it is done, and answered with bytes that are no frame"
    DELAY = "it is done and answered, later"
    EDIT = "it is done, and the answer is changed"


@dataclass(slots=True, kw_only=True)
class Fault:
    """One fault; see `Script.add`."""

    api: ApiKey
    how: FaultKind
    error: ErrorCode
    partition: TopicPartition | None
    skip: int
    times: int
    delay_s: float
    edit: Callable[[Any], Any]


class Script:
    """The faults that have not happened yet."""

    def __init__(self) -> None:
        self.faults: list[Fault] = []

    def add(
        self,
        api: ApiKey,
        how: FaultKind,
        *,
        error: ErrorCode = ErrorCode.NONE,
        partition: TopicPartition | None = None,
        skip: int = 0,
        times: int = 1,
        delay_s: float = 0.0,
        edit: Callable[[Any], Any] = lambda answer: answer,
    ) -> None:
        """Disturb `times` requests of an API, after `skip` of them went undisturbed.

        `error` is the error code of ERROR and ERROR_AFTER; in Produce for all batches, or only for
        `partition`. With a partition, only requests with that partition match. The response is
        delayed by `delay_s`, and later responses wait for it, as on brokers. `edit` changes the
        correct response.
        """
        self.faults.append(
            Fault(
                api=api,
                how=how,
                error=error,
                partition=partition,
                skip=skip,
                times=times,
                delay_s=delay_s,
                edit=edit,
            )
        )

    def heal(self) -> None:
        """Remove all faults."""
        self.faults.clear()

    def next_fault(self, api: ApiKey, partitions: set[TopicPartition]) -> Fault | None:
        """The fault for a request, or None; counts down its `times`."""
        for fault in self.faults:
            if fault.api is not api or (fault.partition and fault.partition not in partitions):
                continue
            if fault.skip:
                fault.skip -= 1
                continue
            fault.times -= 1
            if not fault.times:
                self.faults.remove(fault)
            return fault
        return None
