"""`Commits`: OffsetCommit and OffsetFetch of a consumer, retried as Kafka's consumer does.

    commits.commit({TopicPartition("flights", 0): OffsetAndMetadata(17)}, done=take,
                   deadline=now + 60)
    commits.fetch(partitions, done=take, deadline=now + 60)

`AutoCommit` says when a consumer commits its positions by itself (`enable.auto.commit`):

    if auto_commit.is_due(now):
        auto_commit.started(now)
        commits.commit(positions, done=lambda error: auto_commit.finished(error, now), ...)

A commit with a deadline is retried until then (Kafka's commitSync); one without is sent once
(commitAsync), and a retriable failure is its outcome.

Commits are sent in the order of the calls, one request at a time, so that a retry never overtakes a
later commit. Those without a deadline that wait one after the other become one request.

A commit belongs to the partitions as the member owned them at the call: if one was given up and
came back since, another member may have committed more, and the commit fails.

A request has the fields of all versions: OffsetFetch names one group up to v7, and a list from v8
on.

Not here: the commits of transactions.

Invariant: `done` is called exactly once for each call, and only inside a method of this class.
"""

from collections import deque
from collections.abc import Callable, Collection, Iterable, Mapping
from itertools import groupby
from random import Random
from typing import Final, NamedTuple

from tailrace.client.consumer.config import ConsumerConfig
from tailrace.client.consumer.membership.errors import (
    RELOCATED,
    CommitFailedError,
    GroupTimeoutError,
    MemberFencedError,
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
)
from tailrace.client.errors import error_words
from tailrace.client.group_offsets import OffsetAndMetadata
from tailrace.client.nodes import Backoff, Node, NodeError
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
    OffsetCommitResponse,
)
from tailrace.protocol.messages.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchRequestTopics,
    OffsetFetchResponse,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)
from tailrace.values import dataclass

INSTANCE_SINCE: Final = 7
"""First version of OffsetCommit with instance ids."""

EPOCH_COMMIT_SINCE: Final = 9
"""First version of OffsetCommit that takes the epoch of a member of the consumer protocol."""

# Kafka's client does so after a timeout, too, when it commits.
COMMIT_RELOCATED: Final = RELOCATED | {ErrorCode.REQUEST_TIMED_OUT}
"""Error codes of commits and fetches after which the coordinator is looked up again."""

FetchedOffsets = Mapping[TopicPartition, OffsetAndMetadata | None]
"""Committed offsets; None for partitions without."""

CommitDone = Callable[[Exception | None], None]
"""Gets None for a commit that is stored, or the error."""

FetchDone = Callable[[FetchedOffsets | Exception], None]
"""Gets the offset of each partition that was asked for, None for those without, or the error."""

MERGED_MAX: Final = 1_000
"""Most commits in one request, and so most callbacks of one answer."""


class FetchAnswer(NamedTuple):
    """The answer to an OffsetFetch, of any version."""

    code: int
    """0, or the error of the group."""
    codes: Mapping[TopicPartition, int]
    """0 or the error, by partition."""
    offsets: FetchedOffsets
    """The offsets of partitions without an error."""


def commit_request(
    member: GroupIdentity,
    offsets: Mapping[TopicPartition, OffsetAndMetadata],
    *,
    node: Node,
    timeout_ms: int,
    is_consumer_protocol: bool,
) -> GroupRequest:
    """An OffsetCommit of these offsets."""
    # A request names each topic once.
    topics = groupby(sorted(offsets), key=lambda each: each.topic)
    body = OffsetCommitRequest(
        group_id=member.group_id,
        generation_id_or_member_epoch=member.generation,
        member_id=member.member_id,
        group_instance_id=member.instance_id,
        topics=tuple(
            OffsetCommitRequestTopic(
                name=name,
                partitions=tuple(
                    OffsetCommitRequestPartition(
                        partition_index=each.partition,
                        committed_offset=offsets[each].offset,
                        committed_leader_epoch=offsets[each].leader_epoch,
                        committed_metadata=offsets[each].metadata,
                    )
                    for each in partitions
                ),
            )
            for name, partitions in topics
        ),
    )
    since = 0 if member.instance_id is None else INSTANCE_SINCE
    return GroupRequest(
        body,
        timeout_ms=timeout_ms,
        node=node,
        # The coordinator refuses older versions of such a member with UNSUPPORTED_VERSION.
        first_version=EPOCH_COMMIT_SINCE if is_consumer_protocol else since,
    )


def commit_codes(answer: OffsetCommitResponse) -> dict[TopicPartition, int]:
    """The error codes of an answer, by partition."""
    return {
        TopicPartition(topic.name, each.partition_index): each.error_code
        for topic in answer.topics
        for each in topic.partitions
    }


def fetch_request(
    member: GroupIdentity,
    partitions: Iterable[TopicPartition],
    *,
    node: Node,
    timeout_ms: int,
    names_member: bool,
) -> GroupRequest:
    """An OffsetFetch of stable offsets: brokers before Kafka 2.5 answer with others too."""
    topics = [
        (name, tuple(each.partition for each in group))
        for name, group in groupby(sorted(partitions), key=lambda each: each.topic)
    ]
    # A consumer that is no member asks without an epoch, and is not checked for one.
    is_named = names_member and member.generation >= 0
    group = OffsetFetchRequestGroup(
        group_id=member.group_id,
        member_id=member.member_id if is_named else None,
        member_epoch=member.generation if is_named else -1,
        topics=tuple(
            OffsetFetchRequestTopics(name=name, partition_indexes=numbers)
            for name, numbers in topics
        ),
    )
    body = OffsetFetchRequest(
        group_id=member.group_id,
        topics=tuple(
            OffsetFetchRequestTopic(name=name, partition_indexes=numbers)
            for name, numbers in topics
        ),
        groups=(group,),
        # Offsets of an open transaction may still change (KIP-447).
        require_stable=True,
    )
    return GroupRequest(body, timeout_ms=timeout_ms, node=node)


def read_fetch(answer: OffsetFetchResponse, group_id: str) -> FetchAnswer:
    """The codes and offsets of an answer; UNKNOWN_SERVER_ERROR if it is about other groups."""
    topics: Iterable[OffsetFetchResponseTopic | OffsetFetchResponseTopics]
    if answer.groups:
        group = next((each for each in answer.groups if each.group_id == group_id), None)
        if group is None:
            return FetchAnswer(ErrorCode.UNKNOWN_SERVER_ERROR, {}, {})
        code, topics = group.error_code, group.topics
    else:
        code, topics = answer.error_code, answer.topics
    codes: dict[TopicPartition, int] = {}
    offsets: dict[TopicPartition, OffsetAndMetadata | None] = {}
    for topic in topics:
        for each in topic.partitions:
            partition = TopicPartition(topic.name, each.partition_index)
            codes[partition] = each.error_code
            offsets[partition] = None
            if each.committed_offset >= 0:
                # Anything below -1 would be a negative epoch in a later request.
                epoch = max(each.committed_leader_epoch, -1)
                offsets[partition] = OffsetAndMetadata(each.committed_offset, epoch, each.metadata)
    return FetchAnswer(code, codes, offsets)


class NoMembership:
    """A `Committer` for a consumer that assigns its partitions itself: it is no member."""

    names_member_in_fetch = False
    grants: Mapping[TopicPartition, int] = {}

    def __init__(self, group_id: str) -> None:
        self.identity = GroupIdentity(group_id)

    def commit_fault(self) -> Exception | None:
        return None

    def commit_refused(self, code: int, sent: GroupIdentity, now: float) -> Exception | None:
        """The error of a commit to a group that has members; None for other codes."""
        del now
        if code not in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.ILLEGAL_GENERATION}:
            return None
        return CommitFailedError(
            f"group {sent.group_id!r}: nothing was committed, because the group has members; a "
            "consumer that assigns its partitions itself needs a group.id of its own"
        )


@dataclass(slots=True, kw_only=True, eq=False)
class _Pending:
    """A call that has no outcome yet."""

    deadline: float | None
    """When it fails; None: after the first try."""
    failures: int = 0
    retry_at: float = -NEVER
    error: Exception | None = None
    """Why the last try failed."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Commit(_Pending):
    offsets: Mapping[TopicPartition, OffsetAndMetadata]
    done: CommitDone
    is_before_revocation: bool
    identity: GroupIdentity
    """The member at the time of the call."""
    grants: Mapping[TopicPartition, int | None]
    """The numbers under which it owned the partitions then."""


@dataclass(slots=True, kw_only=True, eq=False)
class _Fetch(_Pending):
    partitions: frozenset[TopicPartition]
    done: list[FetchDone]
    request: GroupRequest | None = None
    """The request in flight; each fetch has its own."""


class Commits:
    """The commits and fetches of offsets of one consumer; a `RequestSource`."""

    def __init__(
        self,
        config: ConsumerConfig,
        coordinator: GroupCoordinator,
        membership: Committer,
        *,
        chance: Random,
    ) -> None:
        self.membership = membership
        """Exchanged when a consumer begins or ends to assign partitions itself."""
        self._group_id = config.group
        self._timeout_ms = config.request_timeout_ms
        self._coordinator = coordinator
        self._backoff = Backoff(config.retry_backoff_ms, config.retry_backoff_max_ms, chance)
        self._waiting: deque[_Commit] = deque()
        self._merged: list[_Commit] = []
        """The commits in the request in flight."""
        self._request: GroupRequest | None = None
        """The OffsetCommit in flight."""
        self._sent = GroupIdentity(config.group)
        """The member that it names."""
        self._fetches: list[_Fetch] = []

    @property
    def is_idle(self) -> bool:
        """Whether every commit has its outcome; nobody needs what is fetched at the end."""
        return not self._waiting and not self._merged

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
        self._waiting.append(
            _Commit(
                offsets=dict(offsets),
                done=done,
                deadline=deadline,
                is_before_revocation=is_before_revocation,
                identity=membership.identity,
                grants={each: membership.grants.get(each) for each in offsets},
            )
        )
        self._finish_front()

    def fetch(
        self, partitions: Collection[TopicPartition], *, done: FetchDone, deadline: float
    ) -> None:
        """Ask for committed offsets; `done` gets one for each partition, or the error."""
        wanted = frozenset(partitions)
        if not wanted:
            done({})
            return
        # The same question twice at a time is sent once.
        same = next((each for each in self._fetches if each.partitions == wanted), None)
        if same is None:
            self._fetches.append(_Fetch(partitions=wanted, done=[done], deadline=deadline))
        else:
            same.done.append(done)
            # Each caller has a deadline of its own, and gives up by itself.
            same.deadline = max(same.deadline or deadline, deadline)

    def next_request(self, now: float) -> GroupRequest | None:
        """OffsetCommit, OffsetFetch, or the look-up of the coordinator, if one is due."""
        coordinator = self._coordinator
        self._check_commits(now)
        self._check_fetches(now)
        # No look-up would succeed now, so the calls need not wait for their deadlines.
        if coordinator.error is not None:
            self.close(coordinator.error)
            # It ends a membership, and only the calls of a consumer that is no member.
            if isinstance(self.membership, NoMembership):
                coordinator.forgive(now)
        self._finish_front()
        if coordinator.node is None:
            return coordinator.next_request(now) if self._needs_coordinator else None
        if self._request is None and self._waiting and self._waiting[0].retry_at <= now:
            return self._next_commit()
        for each in self._fetches:
            if each.request is None and each.retry_at <= now:
                each.request = fetch_request(
                    self.membership.identity,
                    each.partitions,
                    node=coordinator.node,
                    timeout_ms=self._timeout_ms,
                    names_member=self.membership.names_member_in_fetch,
                )
                return each.request
        return None

    def put_back(self, request: GroupRequest, now: float) -> None:
        del now
        if request is self._request:
            self._waiting.extendleft(reversed(self._merged))
            self._request, self._merged = None, []
        elif (fetch := self._fetch_of(request)) is not None:
            fetch.request = None
        else:
            self._coordinator.put_back(request)

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        if isinstance(outcome, RetriableError):
            self._coordinator.mark_unknown(request.node, now, why=str(outcome))
        if request is self._request:
            self._commit_answered(request, outcome, now)
        elif (fetch := self._fetch_of(request)) is not None:
            fetch.request = None
            self._fetch_answered(fetch, outcome, now, node=request.node)
        else:
            self._coordinator.answered(request, outcome, now)

    def next_deadline(self, now: float) -> float:
        del now
        pending = (*self._waiting, *self._merged, *self._fetches)
        due = [each.deadline for each in pending if each.deadline is not None]
        if self._coordinator.node is not None:
            if self._request is None and self._waiting:
                due.append(self._waiting[0].retry_at)
            due += [each.retry_at for each in self._fetches if each.request is None]
        elif self._needs_coordinator:
            due.append(self._coordinator.next_deadline())
        return min(due, default=NEVER)

    def close(self, error: Exception) -> None:
        # Copied before the first callback, which may commit again.
        failed = [*self._merged, *self._waiting]
        self._request, self._merged = None, []
        self._waiting.clear()
        for commit in failed:
            commit.done(error)
        for fetch in list(self._fetches):
            self._finish_fetch(fetch, error)

    @property
    def _needs_coordinator(self) -> bool:
        return bool(self._waiting or self._fetches)

    def _pause(self, call: _Pending, error: Exception, now: float) -> None:
        call.error = error
        call.retry_at = now + self._backoff.pause_s(call.failures)
        call.failures += 1

    def _timed_out(self, call: _Pending, *, what: str) -> GroupTimeoutError:
        why = self._coordinator.trouble if call.error is None else str(call.error)
        return GroupTimeoutError(
            f"group {self._group_id!r}: {what} got no result in time: {why}; raise "
            "default.api.timeout.ms or the timeout of the call, or look at the brokers"
        )

    # -- commits -------------------------------------------------------------------------------

    def _next_commit(self) -> GroupRequest:
        """The OffsetCommit of the commit at the front, and of those that go with it."""
        node = self._coordinator.node
        assert node is not None, "commits wait for the coordinator"
        self._merged = [self._waiting.popleft()]
        # A program may commit without a deadline faster than the coordinator answers.
        while (
            self._merged[0].deadline is None
            and self._waiting
            and self._waiting[0].deadline is None
            and len(self._merged) < MERGED_MAX
        ):
            following = self._waiting.popleft()
            fault = self._fault(following)
            if fault is None and following.offsets:
                self._merged.append(following)
            else:
                following.done(fault)
        offsets: dict[TopicPartition, OffsetAndMetadata] = {}
        for each in self._merged:
            # The later commit of a partition is the one that counts.
            offsets.update(each.offsets)
        self._sent = self.membership.identity
        self._request = commit_request(
            self._sent,
            offsets,
            node=node,
            timeout_ms=self._timeout_ms,
            is_consumer_protocol=self.membership.names_member_in_fetch,
        )
        return self._request

    def _finish_front(self) -> None:
        """Finish commits at the front that have nothing to send, or may not be sent."""
        while self._waiting and self._request is None:
            first = self._waiting[0]
            fault = self._fault(first)
            if first.offsets and fault is None:
                return
            self._waiting.popleft()
            first.done(fault)

    def _fault(self, commit: _Commit) -> Exception | None:
        """Why a commit may not be sent: the member is out, or has lost a partition meanwhile."""
        if not commit.offsets:
            return None
        membership = self.membership
        fault = membership.commit_fault()
        # In the same generation the member still owns what it owned at the call.
        if fault is not None or membership.identity == commit.identity:
            return fault
        for partition, grant in commit.grants.items():
            if grant is None or membership.grants.get(partition) != grant:
                return CommitFailedError(
                    f"group {self._group_id!r}: offset {commit.offsets[partition].offset} of "
                    f"{partition} was not committed: the group has rebalanced since the call, and "
                    "another member may have read on; commit what this consumer reads now"
                )
        return None

    def _check_commits(self, now: float) -> None:
        """Fail commits whose time is up, and retry those whose coordinator was lost."""
        for each in list(self._waiting):
            if each.deadline is not None and each.deadline <= now:
                self._waiting.remove(each)
                each.done(self._timed_out(each, what="OffsetCommit"))
        # The commit may be stored. To store the same offsets again does no harm.
        if self._request is not None and self._request.node != self._coordinator.node:
            lost = RetriableCommitError(
                f"group {self._group_id!r}: the coordinator was lost before it answered"
            )
            merged, self._merged, self._request = self._merged, [], None
            self._settle([(each, lost) for each in merged], now)

    def _commit_answered(
        self, request: GroupRequest, outcome: Message | NodeError, now: float
    ) -> None:
        merged, self._merged, self._request = self._merged, [], None
        if isinstance(outcome, Exception):
            self._settle([(each, outcome) for each in merged], now)
        else:
            assert isinstance(outcome, OffsetCommitResponse)
            codes = commit_codes(outcome)
            # The merged commits share the answer, and each has its own partitions in it.
            verdicts = [(each, self._verdict(each, codes, now)) for each in merged]
            for code in COMMIT_RELOCATED.intersection(codes.values()):
                self._coordinator.mark_unknown(request.node, now, why=error_words(code))
            self._settle(verdicts, now)
        self._finish_front()

    def _settle(self, outcomes: list[tuple[_Commit, Exception | None]], now: float) -> None:
        """Finish commits with their outcomes; those with a deadline are queued to be retried."""
        again = []
        for commit, error in outcomes:
            # After a rebalance the partitions may be others', so only the caller can commit again.
            if not isinstance(error, RetriableError) or isinstance(error, RebalanceInProgressError):
                commit.done(error)
            elif commit.deadline is None:
                commit.done(
                    RetriableCommitError(f"{error}; the commit was not retried: commit again")
                )
            else:
                self._pause(commit, error, now)
                again.append(commit)
        # To the front, before later commits.
        self._waiting.extendleft(reversed(again))

    def _verdict(
        self, commit: _Commit, codes: Mapping[TopicPartition, int], now: float
    ) -> Exception | None:
        """The outcome of a commit by the codes of its partitions; a RetriableError is retried."""
        group_id = self._group_id
        unauthorized = []
        for partition in commit.offsets:
            code = codes.get(partition)
            if code == ErrorCode.NONE:
                continue
            if code == ErrorCode.TOPIC_AUTHORIZATION_FAILED:
                # All such topics in one error, as in Kafka's client.
                unauthorized.append(str(partition))
                continue
            if code is None:
                return RetriableCommitError(
                    f"group {group_id!r}, {partition}: the answer does not say whether the offset "
                    "is committed"
                )
            if code == ErrorCode.STALE_MEMBER_EPOCH and commit.is_before_revocation:
                # A heartbeat has brought a newer epoch meanwhile, and the partitions are still
                # this member's, which the coordinator waits for.
                return RetriableCommitError(f"group {group_id!r}: {error_words(code)}")
            error = self.membership.commit_refused(code, self._sent, now)
            if error is not None:
                return error
            # A topic that was deleted does not come back, and must not hold up the rebalance.
            is_gone = code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION and commit.is_before_revocation
            if is_retriable(code) and not is_gone:
                return RetriableCommitError(f"group {group_id!r}, {partition}: {error_words(code)}")
            return commit_refusal(code, group_id=group_id, partitions=[str(partition)])
        if unauthorized:
            code = ErrorCode.TOPIC_AUTHORIZATION_FAILED
            return commit_refusal(code, group_id=group_id, partitions=unauthorized)
        return None

    # -- fetches -------------------------------------------------------------------------------

    def _fetch_of(self, request: GroupRequest) -> _Fetch | None:
        return next((each for each in self._fetches if each.request is request), None)

    def _check_fetches(self, now: float) -> None:
        """Fail fetches whose time is up, and retry those whose coordinator was lost."""
        for each in list(self._fetches):
            if each.deadline is not None and each.deadline <= now:
                self._finish_fetch(each, self._timed_out(each, what="OffsetFetch"))
            elif each.request is not None and each.request.node != self._coordinator.node:
                each.request = None
                lost = RetriableCommitError("the coordinator was lost before it answered")
                self._pause(each, lost, now)

    def _fetch_answered(
        self, fetch: _Fetch, outcome: Message | NodeError, now: float, *, node: Node | None
    ) -> None:
        if isinstance(outcome, Exception):
            self._fetch_failed(fetch, outcome, now)
            return
        assert isinstance(outcome, OffsetFetchResponse)
        found = read_fetch(outcome, self._group_id)
        codes = {each: found.codes.get(each, ErrorCode.NONE) for each in fetch.partitions}
        if found.code in COMMIT_RELOCATED:
            self._coordinator.mark_unknown(node, now, why=error_words(found.code))
        if found.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH}:
            fenced = MemberFencedError(
                f"group {self._group_id!r}: OffsetFetch: {error_words(found.code)}"
            )
            if self.membership.identity.generation >= 0:
                # The next heartbeat finds out, and the member gets another epoch.
                self._fetch_failed(fetch, fenced, now)
            else:
                self._finish_fetch(fetch, fenced)
        elif found.code != ErrorCode.NONE:
            self._fetch_refused(fetch, {"OffsetFetch": found.code}, now)
        elif any(codes.values()):
            self._fetch_refused(fetch, {str(each): code for each, code in codes.items()}, now)
        else:
            self._finish_fetch(fetch, {each: found.offsets.get(each) for each in fetch.partitions})

    def _fetch_refused(self, fetch: _Fetch, codes: Mapping[str, int], now: float) -> None:
        """Fail a fetch by the worst of its codes, or retry it."""
        group_id = self._group_id
        faults = {about: code for about, code in codes.items() if code != ErrorCode.NONE}
        for code in faults.values():
            # Kafka's consumer does not retry for a partition that does not exist.
            if not is_retriable(code) or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                same = [each for each, other in faults.items() if other == code]
                error = commit_refusal(code, group_id=group_id, partitions=same)
                self._finish_fetch(fetch, error)
                return
        # UNSTABLE_OFFSET_COMMIT, for one: a transaction has offsets that are not decided (KIP-447).
        about, code = next(iter(faults.items()))
        pending = RetriableCommitError(f"group {group_id!r}, {about}: {error_words(code)}")
        self._fetch_failed(fetch, pending, now)

    def _fetch_failed(self, fetch: _Fetch, error: Exception, now: float) -> None:
        if isinstance(error, RetriableError):
            self._pause(fetch, error, now)
        else:
            self._finish_fetch(fetch, error)

    def _finish_fetch(self, fetch: _Fetch, outcome: FetchedOffsets | Exception) -> None:
        self._fetches.remove(fetch)
        for done in fetch.done:
            done(outcome)


class AutoCommit:
    """The time of the next commit; one is under way at a time.

    Before partitions are revoked and at `close`, a consumer commits whether or not it is due, and
    waits; `restart` follows each new assignment.
    """

    def __init__(self, config: ConsumerConfig, now: float) -> None:
        self.is_enabled = config.enable_auto_commit
        self._interval_s = config.auto_commit_interval_ms / 1000
        self._retry_s = config.retry_backoff_ms / 1000
        self._due_at = now + self._interval_s
        self._is_under_way = False

    def is_due(self, now: float) -> bool:
        return self.is_enabled and not self._is_under_way and now >= self._due_at

    def next_deadline(self) -> float:
        return NEVER if not self.is_enabled or self._is_under_way else self._due_at

    def started(self, now: float) -> None:
        """A commit was handed to `Commits`."""
        self._is_under_way = True
        self.restart(now)

    def finished(self, error: Exception | None, now: float) -> None:
        """The commit has its outcome; after a retriable error the next one is due soon."""
        self._is_under_way = False
        if isinstance(error, RetriableError):
            self._due_at = now + self._retry_s

    def restart(self, now: float) -> None:
        self._due_at = now + self._interval_s
