"""A group with members that commit late: with an earlier generation, and after they have left.

Clients of Kafka do not do that by themselves: they look before they commit, or drop what was under
way. But a request can be late on the network, so the broker must refuse it. The history then shows
no commit that moves the group back.

    both members join    generation 1    the first commits a
    both join again      generation 2    the second commits b, which is above a
    the first commits a again, with generation 1, and once more when it has left
"""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from typing import Final

from tailrace.client.reader import ClusterReader, RemoteBroker
from tailrace.client.routes import group_coordinator
from tailrace.errors import TailraceError
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.join_group import (
    JoinGroupRequest,
    JoinGroupRequestProtocol,
    JoinGroupResponse,
)
from tailrace.protocol.messages.leave_group import (
    LeaveGroupRequest,
    LeaveGroupResponse,
    MemberIdentity,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
)
from tailrace.protocol.messages.sync_group import (
    SyncGroupRequest,
    SyncGroupRequestAssignment,
    SyncGroupResponse,
)
from tests.chaos.life import EVENTS, Life, named
from tests.histories.history import Commit, Outcome

_REFUSED: Final = {
    ErrorCode.UNKNOWN_MEMBER_ID,
    ErrorCode.ILLEGAL_GENERATION,
    ErrorCode.REBALANCE_IN_PROGRESS,
}
"""Codes of a commit that certainly has not happened: the request is not sent twice."""

_PAUSE_S: Final = 0.3
_JOINS_MAX: Final = 5
"""Rounds in which two members should have come into one generation."""


class _UnexpectedCodeError(Exception):
    """An answer with an error, after which the members begin anew."""


class _Member:
    """A member on a connection of its own, which sends what it is told to."""

    def __init__(self, life: Life, cluster: ClusterReader) -> None:
        self._life = life
        self._cluster = cluster
        self._joins = 0
        self.member_id = ""
        self.generation = -1
        self.leader_id = ""

    @property
    def _broker(self) -> RemoteBroker:
        return self._cluster.broker_of(group_coordinator(self._life.plan.group))

    def join(self) -> None:
        """Join, or join again."""
        answer = self._ask_to_join()
        if answer.error_code == ErrorCode.MEMBER_ID_REQUIRED:
            answer = self._ask_to_join()
        if answer.error_code:
            self.member_id = ""
            raise _UnexpectedCodeError(answer.error_code)
        self.generation, self.leader_id = answer.generation_id, answer.leader

    def _ask_to_join(self) -> JoinGroupResponse:
        # Other metadata each time makes the group rebalance.
        self._joins += 1
        timeout_ms = self._life.plan.timeout_ms
        metadata = f"{self._life.plan.process} {self._joins}".encode()
        request = JoinGroupRequest(
            group_id=self._life.plan.group,
            session_timeout_ms=3 * timeout_ms,
            rebalance_timeout_ms=timeout_ms,
            member_id=self.member_id,
            protocol_type="zombies",
            protocols=(JoinGroupRequestProtocol(name="none", metadata=metadata),),
        )
        answer = self._broker.request(request, JoinGroupResponse)
        self.member_id = answer.member_id
        return answer

    def sync(self, members: Sequence["_Member"]) -> None:
        """Ask for the assignment; the leader gives every member the same."""
        is_leader = self.member_id == self.leader_id
        request = SyncGroupRequest(
            group_id=self._life.plan.group,
            generation_id=self.generation,
            member_id=self.member_id,
            protocol_type="zombies",
            protocol_name="none",
            assignments=tuple(
                SyncGroupRequestAssignment(member_id=each.member_id, assignment=b"all")
                for each in members
                if is_leader
            ),
        )
        code = self._broker.request(request, SyncGroupResponse).error_code
        if code:
            raise _UnexpectedCodeError(code)

    def commit(self, offset: int, *, generation: int) -> None:
        """Commit an offset of partition 0, and write what has become of it."""
        recorder, group = self._life.recorder, self._life.plan.group
        number = recorder.begin(Commit(group=group, offsets={named(EVENTS, 0): offset}))
        partition = OffsetCommitRequestPartition(
            partition_index=0, committed_offset=offset, committed_metadata=None
        )
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=generation,
            member_id=self.member_id,
            topics=(OffsetCommitRequestTopic(name=EVENTS, partitions=(partition,)),),
        )
        answer = self._broker.request(request, OffsetCommitResponse)
        code = ErrorCode(answer.topics[0].partitions[0].error_code)
        outcome = Outcome.FAIL if code in _REFUSED else Outcome.INFO
        recorder.end(number, Outcome.OK if code is ErrorCode.NONE else outcome)

    def committed(self) -> int:
        """The offset that the group has committed; 0: none."""
        topics = (OffsetFetchRequestTopics(name=EVENTS, partition_indexes=(0,)),)
        group = OffsetFetchRequestGroup(group_id=self._life.plan.group, topics=topics)
        answer = self._broker.request(OffsetFetchRequest(groups=(group,)), OffsetFetchResponse)
        [found] = answer.groups
        if found.error_code or found.topics[0].partitions[0].error_code:
            raise _UnexpectedCodeError(found.error_code)
        return max(found.topics[0].partitions[0].committed_offset, 0)

    def leave(self) -> None:
        """Leave the group."""
        request = LeaveGroupRequest(
            group_id=self._life.plan.group, members=(MemberIdentity(member_id=self.member_id),)
        )
        self._broker.request(request, LeaveGroupResponse)


def commit_late(life: Life) -> None:
    """Rebalance two members and commit late, until the end of the life."""
    while not life.stopping.is_set():
        with (
            closing(_cluster(life)) as first,
            closing(_cluster(life)) as second,
            ThreadPoolExecutor(2) as threads,
        ):
            members = _Member(life, first), _Member(life, second)
            try:
                for _ in _rounds(life):
                    _play(members, threads)
            except (TailraceError, _UnexpectedCodeError):
                pass  # The broker was killed, or the sessions were over: with new members.
        life.stopping.wait(_PAUSE_S)


def _rounds(life: Life) -> Iterator[None]:
    while not life.stopping.is_set():
        yield
        life.stopping.wait(_PAUSE_S)


def _cluster(life: Life) -> ClusterReader:
    # A join waits for the other member, and for members of an earlier life.
    return ClusterReader(life.plan.bootstrap, timeout_ms=4 * life.plan.timeout_ms)


def _play(members: tuple[_Member, _Member], threads: ThreadPoolExecutor) -> None:
    first, second = members
    _rebalance(members, threads)
    old, offset = first.generation, first.committed() + 1
    first.commit(offset, generation=old)
    _rebalance(members, threads)
    second.commit(offset + 1, generation=second.generation)
    first.commit(offset, generation=old)
    first.leave()
    first.commit(offset, generation=first.generation)
    first.member_id = ""


def _rebalance(members: tuple[_Member, _Member], threads: ThreadPoolExecutor) -> None:
    """Bring both members into a new generation of their group."""
    before = max(each.generation for each in members)
    generations: set[int] = set()
    for _ in range(_JOINS_MAX):
        list(threads.map(_Member.join, members))
        generations = {each.generation for each in members}
        if len(generations) == 1 and min(generations) > before:
            break
    else:
        raise _UnexpectedCodeError(f"the members are in generations {generations}")
    list(threads.map(lambda each: each.sync(members), members))
