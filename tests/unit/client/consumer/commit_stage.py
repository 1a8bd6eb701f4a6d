"""A member with its commits, a scripted coordinator, and the outcomes of the calls."""

from typing import Any

from tailrace.client.consumer.membership import (
    GroupRequest,
    OffsetAndMetadata,
)
from tailrace.model import TopicPartition
from tailrace.protocol.messages.find_coordinator import FindCoordinatorRequest
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchResponse,
    OffsetFetchResponseGroup,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopics,
)
from tests.unit.client.consumer.member_stage import (
    FLIGHTS,
    GROUP,
    LOST,
    MemberStage,
    found,
    partitions,
)

ZERO, ONE = partitions(0, 1)


class CommitStage(MemberStage):
    """A member of a classic group that owns both partitions, and the outcomes of its calls."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        self.outcomes: list[Any] = []
        if settings.get("is_consumer_protocol"):
            self.becomes_consumer_member()
        else:
            self.becomes_member()

    def commit(self, seconds: float | None = 60, **fields: Any) -> None:
        """Commit offset 5 of partition 0, or what `offsets` has."""
        offsets = fields.pop("offsets", {ZERO: OffsetAndMetadata(5, 3, "note")})
        deadline = None if seconds is None else self.now + seconds
        self.commits.commit(offsets, done=self.outcomes.append, deadline=deadline, **fields)

    def fetch(self, *wanted: TopicPartition, seconds: float = 60) -> None:
        """Ask for committed offsets; of partition 0, if nothing is said."""
        self.commits.fetch(
            wanted or (ZERO,), done=self.outcomes.append, deadline=self.now + seconds
        )

    def sent(self) -> tuple[GroupRequest, Any]:
        """The request that is due."""
        request = self.commits.next_request(self.now)
        assert request is not None
        return request, request.body

    def is_quiet(self) -> bool:
        """Whether no request is due."""
        return self.commits.next_request(self.now) is None

    def answers(self, *codes: int) -> OffsetCommitRequest:
        """Answer an OffsetCommit with a code for each of its partitions; 0 for the rest."""
        request, body = self.sent()
        assert isinstance(body, OffsetCommitRequest)
        self.commits.answered(request, committed(body, *codes), self.now)
        return body

    def fails(self, outcome: Any = LOST) -> None:
        """Answer a request with an error."""
        request, _ = self.sent()
        self.commits.answered(request, outcome, self.now)

    def finds(self, node_id: int = 1) -> None:
        """Have the commits find their coordinator."""
        request, body = self.sent()
        assert isinstance(body, FindCoordinatorRequest)
        self.commits.answered(request, found(node_id), self.now)

    def fetched(self, offset: int = 7, code: int = 0, group_code: int = 0) -> OffsetFetchRequest:
        """Answer an OffsetFetch about partition 0."""
        request, body = self.sent()
        assert isinstance(body, OffsetFetchRequest)
        self.commits.answered(request, fetch_answer(offset, code, group_code), self.now)
        return body

    @property
    def outcome(self) -> Any:
        """The only outcome."""
        [outcome] = self.outcomes
        return outcome


def committed(body: OffsetCommitRequest, *codes: int) -> OffsetCommitResponse:
    """The answer to an OffsetCommit."""
    left = list(codes)
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=left.pop(0) if left else 0
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


def fetch_answer(offset: int, code: int = 0, group_code: int = 0) -> OffsetFetchResponse:
    """The answer to an OffsetFetch, from v8 on."""
    partition = OffsetFetchResponsePartitions(
        partition_index=0,
        committed_offset=offset,
        committed_leader_epoch=3,
        metadata="note",
        error_code=code,
    )
    topic = OffsetFetchResponseTopics(name=FLIGHTS, partitions=(partition,))
    group = OffsetFetchResponseGroup(
        group_id=GROUP, topics=() if group_code else (topic,), error_code=group_code
    )
    return OffsetFetchResponse(groups=(group,))
