"""`OffsetCommits`: the OffsetCommit requests of one consumer.

Commits are sent in the order of the calls, one request at a time, so that a retry never overtakes a
later commit. Those without a deadline that wait behind each other become one request.

A commit belongs to the partitions as the member owned them at the call: if one was given up and
came back since, another member may have committed more, and the commit fails.
"""

from collections import deque
from collections.abc import Callable, Mapping
from random import Random
from typing import Final

from tailrace.client.consumer.membership.calls import Call, Retries
from tailrace.client.consumer.membership.commit_requests import (
    RELOCATED,
    commit_codes,
    commit_request,
)
from tailrace.client.consumer.membership.errors import (
    CommitFailedError,
    RebalanceInProgressError,
    RetriableCommitError,
    commit_refusal,
    is_retriable,
)
from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    NEVER,
    Committer,
    GroupIdentity,
    GroupRequest,
    MembershipSettings,
)
from tailrace.client.errors import error_words
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.client.nodes import NodeError
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.offset_commit import OffsetCommitResponse
from tailrace.values import dataclass

CommitDone = Callable[[Exception | None], None]
"""Gets None for a commit that is stored, or the error."""

MERGED_MAX: Final = 1_000
"""Most commits in one request."""


@dataclass(slots=True, kw_only=True, eq=False)
class Commit(Call):
    """A commit that has no outcome yet."""

    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    done: CommitDone
    is_before_revocation: bool
    identity: GroupIdentity
    """The member at the time of the call."""
    grants: Mapping[TopicPartition, int | None]
    """The numbers under which it owned the partitions then."""


class OffsetCommits:
    """The commits that have no outcome yet."""

    def __init__(
        self, settings: MembershipSettings, coordinator: GroupCoordinator, *, chance: Random
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._retries = Retries(settings, chance=chance)
        self._waiting: deque[Commit] = deque()
        self._merged: list[Commit] = []
        """The commits in the request in flight."""
        self._request: GroupRequest | None = None
        self._sent = GroupIdentity(settings.group_id)

    @property
    def is_idle(self) -> bool:
        """Whether every commit has its outcome."""
        return not self._waiting and not self._merged

    @property
    def is_waiting(self) -> bool:
        """Whether a commit is to be sent."""
        return bool(self._waiting)

    def add(self, commit: Commit, membership: Committer) -> None:
        """Queue a commit."""
        self._waiting.append(commit)
        self.finish_front(membership)

    def next_request(self, membership: Committer, now: float) -> GroupRequest | None:
        """An OffsetCommit, if one is due."""
        node = self._coordinator.node
        if node is None or self._request is not None or not self._waiting:
            return None
        if self._waiting[0].retry_at > now:
            return None
        self._merged = [self._waiting.popleft()]
        while (
            self._merged[0].deadline is None
            and self._waiting
            and self._waiting[0].deadline is None
            and len(self._merged) < MERGED_MAX
        ):
            following = self._waiting.popleft()
            fault = self._fault(following, membership)
            if fault is None and following.offsets:
                self._merged.append(following)
            else:
                following.done(fault)
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for each in self._merged:
            offsets.update(each.offsets)
        self._sent = membership.identity
        self._request = commit_request(
            self._sent,
            offsets,
            node=node,
            timeout_ms=self._settings.request_timeout_ms,
            is_consumer_protocol=membership.names_member_in_fetch,
        )
        return self._request

    def next_deadline(self) -> float:
        """When a commit can be sent, or when one times out."""
        due = [each.deadline for each in (*self._waiting, *self._merged) if each.deadline]
        if self._coordinator.node is not None and self._request is None and self._waiting:
            due.append(self._waiting[0].retry_at)
        return min(due, default=NEVER)

    def put_back(self, request: GroupRequest) -> bool:
        """The request could not be sent; return whether it is one of these."""
        if request is not self._request:
            return False
        self._request = None
        self._waiting.extendleft(reversed(self._merged))
        self._merged = []
        return True

    def answered(
        self,
        request: GroupRequest,
        outcome: Message | NodeError,
        membership: Committer,
        *,
        now: float,
    ) -> bool:
        """Handle an answer or an error; return whether the request is one of these."""
        if request is not self._request:
            return False
        merged, self._merged, self._request = self._merged, [], None
        if isinstance(outcome, Exception):
            self._settle([(each, outcome) for each in merged], now)
        else:
            assert isinstance(outcome, OffsetCommitResponse)
            codes = commit_codes(outcome)
            verdicts = [(each, self._verdict(each, codes, membership, now=now)) for each in merged]
            self._relocate(codes, request, now)
            self._settle(verdicts, now)
        self.finish_front(membership)
        return True

    def check(self, now: float) -> None:
        """Fail commits whose time is up, and retry those whose coordinator was lost."""
        for each in [each for each in self._waiting if each.is_late(now)]:
            self._waiting.remove(each)
            each.done(
                self._retries.timed_out(
                    each, what="OffsetCommit", trouble=self._coordinator.trouble
                )
            )
        if self._request is not None and self._request.node != self._coordinator.node:
            lost = RetriableCommitError(
                f"group {self._settings.group_id!r}: the coordinator was lost before it answered"
            )
            merged, self._merged, self._request = self._merged, [], None
            self._settle([(each, lost) for each in merged], now)

    def fail(self, error: Exception) -> None:
        """Fail all commits."""
        self._request = None
        failed = [*self._merged, *self._waiting]
        self._merged = []
        self._waiting.clear()
        for each in failed:
            each.done(error)

    def finish_front(self, membership: Committer) -> None:
        """Finish commits at the front that have nothing to send, or may not be sent."""
        while self._waiting and self._request is None:
            first = self._waiting[0]
            fault = self._fault(first, membership)
            if first.offsets and fault is None:
                return
            self._waiting.popleft()
            first.done(fault)

    def _fault(self, commit: Commit, membership: Committer) -> Exception | None:
        """Why a commit may not be sent: the member is out, or has lost a partition meanwhile."""
        if not commit.offsets:
            return None
        fault = membership.commit_fault()
        if fault is not None or membership.identity == commit.identity:
            return fault
        for partition, grant in commit.grants.items():
            if grant is None or membership.grants.get(partition) != grant:
                return CommitFailedError(
                    f"group {self._settings.group_id!r}: offset "
                    f"{commit.offsets[partition].offset} of {partition} was not committed: the "
                    "group has rebalanced since the call, and another member may have read on; "
                    "commit what this consumer reads now"
                )
        return None

    def _settle(self, outcomes: list[tuple[Commit, Exception | None]], now: float) -> None:
        """Finish commits with their outcomes; those with a deadline are queued to be retried."""
        again = []
        for commit, error in outcomes:
            if not isinstance(error, RetriableError) or isinstance(error, RebalanceInProgressError):
                commit.done(error)
            elif commit.deadline is None:
                commit.done(
                    RetriableCommitError(f"{error}; the commit was not retried: commit again")
                )
            else:
                self._retries.pause(commit, error, now)
                again.append(commit)
        self._waiting.extendleft(reversed(again))

    def _verdict(
        self,
        commit: Commit,
        codes: Mapping[TopicPartition, int],
        membership: Committer,
        *,
        now: float,
    ) -> Exception | None:
        """The outcome of a commit by the codes of its partitions; a RetriableError is retried."""
        group_id = self._settings.group_id
        unauthorized = []
        for partition in commit.offsets:
            code = codes.get(partition)
            if code == ErrorCode.NONE:
                continue
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                unauthorized.append(str(partition))
                continue
            if code is None:
                return RetriableCommitError(
                    f"group {group_id!r}, {partition}: the answer does not say whether the offset "
                    "is committed"
                )
            if code == ErrorCode.STALE_MEMBER_EPOCH and commit.is_before_revocation:
                return RetriableCommitError(f"group {group_id!r}: {error_words(code)}")
            error = membership.commit_refused(code, self._sent, now)
            if error is not None:
                return error
            is_gone = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and commit.is_before_revocation
            if is_retriable(code) and not is_gone:
                return RetriableCommitError(f"group {group_id!r}, {partition}: {error_words(code)}")
            return commit_refusal(code, group_id=group_id, partitions=[str(partition)])
        if unauthorized:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return commit_refusal(code, group_id=group_id, partitions=unauthorized)
        return None

    def _relocate(
        self, codes: Mapping[TopicPartition, int], request: GroupRequest, now: float
    ) -> None:
        for code in RELOCATED.intersection(codes.values()):
            self._coordinator.mark_unknown(request.node, now, why=error_words(code))
