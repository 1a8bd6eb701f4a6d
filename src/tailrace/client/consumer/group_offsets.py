"""`GroupOffsets`: the committed offsets of a consumer's group, stored and fetched.

Not here: how commits are retried, and when they are due by themselves (`membership`).

Invariant: a partition gets its committed offset only if it still waits for it.
"""

import logging
from collections.abc import Callable, Collection, Mapping

from tailrace.client.cluster_metadata import NOBODY
from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.handling import Handling, Offsets
from tailrace.client.consumer.membership.commit_requests import FetchedOffsets
from tailrace.client.consumer.membership.commits import AutoCommit, Commits
from tailrace.client.consumer.membership.interface import NEVER
from tailrace.client.consumer.metadata import ConsumerMetadata
from tailrace.client.consumer.subscription import (
    Assigned,
    Phase,
    Position,
    SubscriptionState,
)
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.client.pending import Pending
from tailrace.model import TopicPartition

log = logging.getLogger(__name__)


class GroupOffsets:
    """The offsets of one group, for one consumer; times are monotonic seconds."""

    def __init__(
        self,
        commits: Commits,
        auto_commit: AutoCommit,
        *,
        config: ConsumerConfig,
        subscription: SubscriptionState,
        metadata: ConsumerMetadata,
        clock: Callable[[], float],
        handling: Handling,
    ) -> None:
        self._config = config
        self._commits = commits
        self._auto_commit = auto_commit
        self._subscription = subscription
        self._metadata = metadata
        self._clock = clock
        self._handling = handling
        self._look_at = 0.0
        """When to look again whether an iteration goes on, while a commit is due."""
        self.errors: list[Exception] = []
        """Errors of the fetch of committed offsets; the next poll of the caller raises them."""
        self._asked: dict[TopicPartition, int] = {}
        """Partitions whose committed offsets are fetched, with the versions of their states."""
        self._without: set[TopicPartition] = set()
        """Partitions that turned out to have no committed offset."""

    def polled(self, now: float) -> None:
        """Commit if that is due: the caller has handled what was returned."""
        if self._auto_commit.is_due(now):
            self._commit_by_itself(self._handling.handled(), now)

    def commit_progress(self, now: float) -> None:
        """Commit if that is due, and something was handled: the caller need not poll for it."""
        if self._auto_commit.is_due(now) and now >= self._look_at:
            offsets = self._handling.progress()
            if offsets is not None:
                self._commit_by_itself(offsets, now)
            else:
                # The next poll is to commit. An iteration goes on without being heard of here.
                self._look_at = now + self._config.auto_commit_interval_ms / 1000

    def next_deadline(self) -> float:
        """When to call `commit_progress`."""
        return max(self._auto_commit.next_deadline(), self._look_at)

    def _commit_by_itself(self, offsets: Offsets, now: float) -> None:
        def done(error: Exception | None) -> None:
            if error is None:
                self._note_stored(offsets)
            self._auto_commit.finished(error, self._clock())

        self._auto_commit.started(now)
        self._commits.commit(offsets, done=done, deadline=None)

    def without_offsets(self, states: Collection[Assigned]) -> list[Assigned]:
        """Fetch the committed offsets of partitions; returns those that turned out to have none.

        They are asked for until there is an answer, however long the coordinator is away: a `poll`
        waits for them as it does for records.
        """
        found = [each for each in states if each.partition in self._without]
        self._without -= {each.partition for each in found}
        missing = {
            each.partition: each.version
            for each in states
            if each not in found and each.partition not in self._asked
        }
        if missing:
            self._asked |= missing
            self._commits.fetch(
                missing,
                done=lambda outcome: self._take_committed(missing, outcome),
                deadline=NEVER,
            )
        return found

    def commit(self, offsets: Offsets, *, deadline: float, is_last: bool = False) -> Pending[None]:
        """Store offsets; with `is_last`, before partitions go to others."""
        pending: Pending[None] = Pending()

        def take(error: Exception | None) -> None:
            if error is None:
                self._note_stored(offsets)
                pending.settle(None)
            else:
                pending.fail(error)

        self._commits.commit(offsets, done=take, deadline=deadline, is_before_revocation=is_last)
        return pending

    def commit_handled(self, *, deadline: float) -> Pending[None]:
        """Store the offsets after handled records, before partitions go away.

        Those that were stored last are left out, so that a consumer with nothing to commit need
        not wait for a coordinator that is away.
        """
        assigned = self._subscription.assigned
        handled = self._handling.handled()
        offsets = {each: at for each, at in handled.items() if assigned[each].stored != at}
        if offsets:
            return self.commit(offsets, deadline=deadline, is_last=True)
        pending: Pending[None] = Pending()
        pending.settle(None)
        return pending

    def commit_given_up(self, offsets: Offsets, now: float) -> None:
        """Store the positions of partitions that `assign` gives up; a failure is logged."""
        deadline = now + self._config.default_api_timeout_ms / 1000

        def done(error: Exception | None) -> None:
            if error is not None:
                log.warning(
                    "commit_failed group=%s partitions=%s reason=%s",
                    self._config.group_id,
                    ",".join(map(str, offsets)),
                    error,
                )

        self._commits.commit(offsets, done=done, deadline=deadline)

    def committed(
        self, partitions: Collection[TopicPartition], *, deadline: float
    ) -> Pending[Mapping[TopicPartition, OffsetAndMetadata | None]]:
        """The offsets that the group has stored."""
        pending: Pending[Mapping[TopicPartition, OffsetAndMetadata | None]] = Pending()

        def take(outcome: FetchedOffsets | Exception) -> None:
            if isinstance(outcome, Exception):
                pending.fail(outcome)
            else:
                pending.settle(
                    {
                        each: None if found is None else OffsetAndMetadata(*found)
                        for each, found in outcome.items()
                    }
                )

        self._commits.fetch(partitions, done=take, deadline=deadline)
        return pending

    def _note_stored(self, offsets: Offsets) -> None:
        for each, at in offsets.items():
            if each in self._subscription.assigned:
                self._subscription.assigned[each].stored = at

    def _take_committed(
        self, asked: Mapping[TopicPartition, int], outcome: FetchedOffsets | Exception
    ) -> None:
        """Give partitions the positions that the group has stored."""
        for each in asked:
            self._asked.pop(each, None)
        if isinstance(outcome, Exception):
            if any(each in self._subscription.assigned for each in asked):
                self.errors.append(outcome)
            return
        for each, offset in outcome.items():
            state = self._subscription.current(each, asked[each])
            if state is None or state.phase is not Phase.INITIALIZING:
                continue
            if offset is None:
                self._without.add(each)
            else:
                leader = self._metadata.leader(each) or NOBODY
                state.seek_unvalidated(Position(offset.offset, offset.leader_epoch, leader))
                state.stored = OffsetAndMetadata(offset.offset, offset.leader_epoch)

    def close(self, error: Exception) -> None:
        """Fail commits that have no outcome."""
        self._commits.close(error)
