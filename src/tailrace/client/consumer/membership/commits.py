"""`Commits`: OffsetCommit and OffsetFetch of a consumer, retried as Kafka's consumer does.

    commits.commit({TopicPartition("flights", 0): OffsetAndMetadata(17)}, done=take, now=now,
                   deadline=now + 60)
    commits.fetch(partitions, done=take, deadline=now + 60)

A commit with a deadline is retried until then (Kafka's commitSync); one without is sent once
(commitAsync), and a retriable failure is its outcome.

Not here: when offsets are committed by themselves (`auto_commit`), transactions, and callbacks.

Invariant: `done` is called exactly once for each call, and only inside a method of this class.
"""

from collections.abc import Collection, Mapping
from random import Random

from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    Committer,
    GroupRequest,
    MembershipSettings,
)
from tailrace.client.consumer.membership.offset_commits import Commit, CommitDone, OffsetCommits
from tailrace.client.consumer.membership.offset_fetches import FetchDone, OffsetFetches
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.client.nodes import NodeError
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.fields import Message


class Commits:
    """The commits and fetches of offsets of one consumer; a `RequestSource`."""

    def __init__(
        self,
        settings: MembershipSettings,
        coordinator: GroupCoordinator,
        membership: Committer,
        *,
        chance: Random,
    ) -> None:
        self.membership = membership
        """Exchanged when a consumer begins or ends to assign partitions itself."""
        self._coordinator = coordinator
        self._commits = OffsetCommits(settings, coordinator, chance=chance)
        self._fetches = OffsetFetches(settings, coordinator, chance=chance)

    @property
    def is_idle(self) -> bool:
        """Whether every commit has its outcome; nobody needs what is fetched at the end."""
        return self._commits.is_idle

    def commit(
        self,
        offsets: Mapping[TopicPartition, OffsetAndMetadata],
        *,
        done: CommitDone,
        deadline: float | None,
        is_before_revocation: bool = False,
    ) -> None:
        """Commit the offsets of next records; `done` gets the outcome.

        With `is_before_revocation`, STALE_MEMBER_EPOCH is retried with the present epoch: the
        member has not given up the partitions yet.

        Raises:
            ValueError: an offset is negative.
        """
        for partition, each in offsets.items():
            if each.offset < 0:
                raise ValueError(
                    f"{partition}: offset {each.offset} cannot be committed: give the offset of "
                    "the next record to read, 0 or more"
                )
        membership = self.membership
        commit = Commit(
            offsets=dict(offsets),
            done=done,
            deadline=deadline,
            is_before_revocation=is_before_revocation,
            identity=membership.identity,
            grants={each: membership.grants.get(each) for each in offsets},
        )
        self._commits.add(commit, membership)

    def fetch(
        self, partitions: Collection[TopicPartition], *, done: FetchDone, deadline: float
    ) -> None:
        """Ask for committed offsets; `done` gets one for each partition, or the error."""
        self._fetches.add(partitions, done=done, deadline=deadline)

    def next_request(self, now: float) -> GroupRequest | None:
        """OffsetCommit, OffsetFetch, or the look-up of the coordinator, if one is due."""
        coordinator, membership = self._coordinator, self.membership
        self._commits.check(now)
        self._fetches.check(now)
        if coordinator.error is not None:
            self.close(coordinator.error)
        self._commits.finish_front(membership)
        if coordinator.node is None:
            return coordinator.next_request(now) if self._needs_coordinator else None
        return self._commits.next_request(membership, now) or self._fetches.next_request(
            membership, now
        )

    def put_back(self, request: GroupRequest, now: float) -> None:
        """The request could not be sent yet."""
        del now
        if not (self._commits.put_back(request) or self._fetches.put_back(request)):
            self._coordinator.put_back(request)

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        """Handle an answer, or the error that came instead."""
        if isinstance(outcome, RetriableError):
            self._coordinator.mark_unknown(request.node, now, why=str(outcome))
        membership = self.membership
        if not (
            self._commits.answered(request, outcome, membership, now=now)
            or self._fetches.answered(request, outcome, membership, now=now)
        ):
            self._coordinator.answered(request, outcome, now)

    def next_deadline(self, now: float) -> float:
        """When `next_request` has to be called again."""
        del now
        due = min(self._commits.next_deadline(), self._fetches.next_deadline())
        if self._coordinator.node is None and self._needs_coordinator:
            return min(due, self._coordinator.next_deadline())
        return due

    def close(self, error: Exception) -> None:
        """Fail every call without an outcome."""
        self._commits.fail(error)
        self._fetches.fail(error)

    @property
    def _needs_coordinator(self) -> bool:
        return self._commits.is_waiting or not self._fetches.is_idle
