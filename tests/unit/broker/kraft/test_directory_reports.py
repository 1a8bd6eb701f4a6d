"""Reports of replicas' directories, to a controller that a test scripts."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any
from uuid import UUID

import pytest

from tailrace.broker.kraft.directory_reports import DirectoryReports
from tailrace.client.config import ClientConfig
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.assign_replicas_to_dirs import (
    AssignReplicasToDirsRequest,
    AssignReplicasToDirsResponse,
    AssignReplicasToDirsResponseDirectoryData,
    AssignReplicasToDirsResponsePartitionData,
    AssignReplicasToDirsResponseTopicData,
)
from tailrace.protocol.messages.sasl_authenticate import (
    SaslAuthenticateRequest,
    SaslAuthenticateResponse,
)
from tailrace.testing import Outside
from tests.unit.broker.kraft.scripted import (
    CLIENT,
    LOGIN,
    ScriptedController,
    channel_to,
    refuse_logins,
)

LEFT, RIGHT = UUID(int=100), UUID(int=200)

Place = tuple[int, int, UUID]
"""Number of the topic, partition, directory."""


class Scene(ScriptedController):
    """A controller that accepts all reports but those of `codes`, and the sender of them."""

    def __init__(self, outside: Outside, config: ClientConfig) -> None:
        super().__init__(outside)
        self.gone: set[tuple[int, int]] = set()
        """Partitions that the broker has no replica of any more."""
        self.codes: dict[int, list[int | None]] = {}
        """Codes of the next answers by partition; None: it is left out."""
        self.top: list[int] = []
        """Codes of the next requests."""
        self.done: list[Place] = []
        self.answers[AssignReplicasToDirsRequest] = self._accept
        _, self.channel = channel_to(outside, self, config=config)
        self.reports = DirectoryReports(
            self.channel,
            broker_id=1,
            broker_epoch=lambda: 50,
            is_replica=lambda topic_id, index: (topic_id.int, index) not in self.gone,
            chance=outside.runtime.chance,
        )

    def assign(self, partition: int, directory: UUID = LEFT, *, topic: int = 1) -> None:
        """Report the directory of a partition."""
        self.reports.assign(
            TopicPartition(f"t{topic}", partition),
            UUID(int=topic),
            directory,
            done=lambda: self.done.append((topic, partition, directory)),
        )

    def asked(self) -> list[set[Place]]:
        """The reports of each request so far."""
        return [
            {
                (topic.topic_id.int, each.partition_index, directory.id)
                for directory in request.directories
                for topic in directory.topics
                for each in topic.partitions
            }
            for request in self.requests
        ]

    def _accept(self, request: AssignReplicasToDirsRequest) -> Any:
        if self.top:
            return AssignReplicasToDirsResponse(error_code=self.top.pop(0))
        return AssignReplicasToDirsResponse(
            directories=tuple(
                AssignReplicasToDirsResponseDirectoryData(
                    id=directory.id,
                    topics=tuple(
                        AssignReplicasToDirsResponseTopicData(
                            topic_id=topic.topic_id,
                            partitions=tuple(
                                AssignReplicasToDirsResponsePartitionData(
                                    partition_index=each.partition_index, error_code=code
                                )
                                for each in topic.partitions
                                if (code := self._code(each.partition_index)) is not None
                            ),
                        )
                        for topic in directory.topics
                    ),
                )
                for directory in request.directories
            )
        )

    def _code(self, index: int) -> int | None:
        left = self.codes.get(index)
        return left.pop(0) if left else 0


@asynccontextmanager
async def scene(outside: Outside, config: ClientConfig = CLIENT) -> AsyncIterator[Scene]:
    """A sender of reports that has none yet."""
    made = Scene(outside, config)
    yield made
    made.reports.close()
    made.channel.close()
    await outside.pass_time(0)


async def test_reports_of_100_ms_are_one_request(outside: Outside) -> None:
    """By directory and topic; each is done when the controller has accepted it."""
    async with scene(outside) as on:
        on.assign(0)
        on.assign(1, RIGHT)
        await outside.pass_time(0.05)
        on.assign(0, topic=2)
        await outside.pass_time(0.1)
        everything: set[Place] = {(1, 0, LEFT), (1, 1, RIGHT), (2, 0, LEFT)}
        assert on.asked() == [everything]
        assert set(on.done) == everything
        assert on.reports.pending_count == 0
        (request,) = on.requests
        assert (request.broker_id, request.broker_epoch) == (1, 50)


async def test_thousands_of_reports_are_batched(outside: Outside) -> None:
    """2,250 in a request; a full one does not wait for more."""
    async with scene(outside) as on:
        for each in range(5000):
            on.assign(each)
        await outside.pass_time(0.5)
        assert [len(each) for each in on.asked()] == [2250, 2250, 500]
        assert len(on.done) == 5000


async def test_the_last_report_of_a_partition_counts(outside: Outside) -> None:
    """Also where the one before is under way: its answer ends nothing."""
    async with scene(outside) as on:
        on.assign(0, LEFT)
        on.assign(0, RIGHT)
        outside.network.delay_s = 0.1
        await outside.pass_time(0.55)
        assert on.asked() == [{(1, 0, RIGHT)}]
        on.assign(0, LEFT)
        await outside.pass_time(2)
        assert on.asked() == [{(1, 0, RIGHT)}, {(1, 0, LEFT)}]
        assert on.done == [(1, 0, LEFT)]


async def test_a_replica_that_is_gone_is_not_reported(outside: Outside) -> None:
    """Its topic was deleted, or a reassignment has taken it away."""
    async with scene(outside) as on:
        on.assign(0)
        on.assign(1)
        on.gone = {(1, 0)}
        await outside.pass_time(1)
        assert on.asked() == [{(1, 1, LEFT)}]
        on.assign(0)
        await outside.pass_time(1)
        assert (len(on.requests), on.reports.pending_count) == (1, 0)


async def test_refused_reports_are_sent_again(outside: Outside) -> None:
    """Until the controller knows the partition; those that it leaves out, too."""
    async with scene(outside) as on:
        on.codes = {1: [ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, 999], 2: [None]}
        for each in range(3):
            on.assign(each)
        await outside.pass_time(5)
        assert on.asked() == [
            {(1, 0, LEFT), (1, 1, LEFT), (1, 2, LEFT)},
            {(1, 1, LEFT), (1, 2, LEFT)},
            {(1, 1, LEFT)},
        ]
        assert len(on.done) == 3


async def test_the_pause_grows_while_nothing_is_accepted(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """From 100 ms to 10 s; the log says it once."""
    async with scene(outside) as on:
        on.top = [ErrorCode.STALE_BROKER_EPOCH] * 8
        on.assign(0)
        await outside.pass_time(2)
        assert 4 <= len(on.requests) <= 6
        await outside.pass_time(28)
        assert len(on.requests) == 9
        assert on.done == [(1, 0, LEFT)]
        assert caplog.text.count("directory_reports_failed") == 1


async def test_a_refused_login_is_tried_again(
    outside: Outside, caplog: pytest.LogCaptureFixture
) -> None:
    """A controller that does not have the request is, too; the log says each once."""
    async with scene(outside, LOGIN) as on:
        refuse_logins(on)
        on.assign(0)
        await outside.pass_time(30)
        assert on.reports.pending_count == 1
        assert caplog.text.count("directory_reports_failed") == 1
        on.versions[ApiKey.ASSIGN_REPLICAS_TO_DIRS] = (0, -1)
        on.answers[SaslAuthenticateRequest] = lambda _: SaslAuthenticateResponse()
        await outside.pass_time(30)
        assert caplog.text.count("directory_reports_failed") == 2
        on.versions.clear()
        on.kill()
        on.revive()
        await outside.pass_time(30)
        assert on.done == [(1, 0, LEFT)]


async def test_an_answer_for_another_directory_accepts_nothing(outside: Outside) -> None:
    """The controllers would look for the replica where it is not."""
    async with scene(outside) as on:
        right = on.answers[AssignReplicasToDirsRequest]
        wrong = AssignReplicasToDirsResponse(
            directories=(
                AssignReplicasToDirsResponseDirectoryData(
                    id=RIGHT,
                    topics=(
                        AssignReplicasToDirsResponseTopicData(
                            topic_id=UUID(int=1),
                            partitions=(AssignReplicasToDirsResponsePartitionData(),),
                        ),
                    ),
                ),
            )
        )
        on.answers[AssignReplicasToDirsRequest] = lambda _: wrong
        on.assign(0)
        await outside.pass_time(0.5)
        assert on.done == []
        on.answers[AssignReplicasToDirsRequest] = right
        await outside.pass_time(5)
        assert on.done == [(1, 0, LEFT)]


async def test_reports_wait_for_a_controller(outside: Outside) -> None:
    """However long that takes; none is sent after the end."""
    async with scene(outside) as on:
        on.kill()
        on.assign(0)
        await outside.pass_time(200)
        assert on.reports.pending_count == 1
        on.revive()
        await outside.pass_time(20)
        assert on.done == [(1, 0, LEFT)]
        on.assign(1)
        on.reports.close()
        await outside.pass_time(20)
        assert len(on.requests) == 1
