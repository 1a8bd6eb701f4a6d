"""The interface between a consumer's engine and its membership in a group.

The engine passes times and answers in, and takes requests and steps out:

    membership.polled(now)                          # the user has called poll
    while (step := membership.next_step()) is not None:
        ...                                         # on the user's thread: commit, hooks, positions
        membership.step_done(step, now)
    request = membership.next_request(now)          # then `answered` or `put_back`
    membership.answered(request, answer, now)
    wait_until(membership.next_deadline(now))

Not here: how a member joins (`classic`, `consumer_protocol`), and how offsets are committed
(`commits`). The settings are those of `ConsumerConfig`.

Invariant: `assignment` changes only in `step_done`, so that hooks see the partitions that the
consumer really reads.
"""

from collections import deque
from collections.abc import Collection, Mapping
from enum import Enum
from typing import NamedTuple, Protocol
from uuid import UUID

from tailrace.client.nodes import Node, NodeError
from tailrace.model import TopicPartition
from tailrace.protocol.fields import Message
from tailrace.values import dataclass

NEVER = float("inf")
"""A time that does not come."""


class GroupIdentity(NamedTuple):
    """The name of a group and of this member in it, for OffsetCommit and TxnOffsetCommit."""

    group_id: str
    member_id: str = ""
    """Empty for a consumer that is no member, as one that only assigns partitions itself."""
    generation: int = -1
    """Generation of a classic group, epoch of a member of the consumer protocol; -1: no member."""
    instance_id: str | None = None
    """The instance id of a static member (KIP-345)."""


class TopicShape(NamedTuple):
    """The partitions of a topic, from the cluster's metadata."""

    topic_id: UUID
    racks: tuple[frozenset[str], ...]
    """Racks of the replicas, by partition; an empty set if they are not known."""

    @property
    def partition_count(self) -> int:
        return len(self.racks)


class MetadataWish(NamedTuple):
    """Topics that a membership needs to know beyond those that the consumer subscribes to."""

    names: frozenset[str] = frozenset()
    """Topics of the group, of which the leader assigns the partitions."""
    ids: frozenset[UUID] = frozenset()
    """Topics that the coordinator has assigned by an id that `topics_changed` has not named."""
    is_urgent: bool = False
    """Whether the group waits for it; the engine asks at once then, and not with the next refresh.
    An answered refresh is passed to `topics_changed`, also if it brought nothing new."""


class StepKind(Enum):
    """The kinds of steps of a rebalance on the user's thread."""

    REVOKE = "revoke"
    """Partitions go to others: stop fetching, commit, call the hook, drop the positions."""
    ASSIGN = "assign"
    """Partitions came: call the hook, then fetch the committed offsets."""
    LOSE = "lose"
    """Partitions are gone, and others may read them already: call the hook, commit nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class RebalanceStep:
    """A part of a rebalance for the user's thread; `step_done` must follow."""

    kind: StepKind
    partitions: tuple[TopicPartition, ...]
    """In order; may be empty for ASSIGN: the hook is called for every rebalance."""


@dataclass(slots=True, eq=False)
class GroupRequest:
    """A request that is to be sent now; `answered` or `put_back` must follow, exactly once."""

    body: Message
    """It has the fields of all versions; the connection's version decides which are sent."""
    timeout_ms: int
    """Milliseconds to wait for the answer: more for JoinGroup, which is answered late."""
    node: Node | None = None
    """The coordinator, with an id of its own, so that it has a connection of its own; None for any
    node."""
    first_version: int = 0
    """The lowest version that has the needed fields; with an older one the outcome is an
    `UnsupportedVersionError`."""


class Steps:
    """The steps that are left, and the present assignment.

    Steps are handed out in order, and the assignment changes only when one is done.
    """

    def __init__(self) -> None:
        self.assignment: frozenset[TopicPartition] = frozenset()
        """The partitions that the consumer reads."""
        self.grants: dict[TopicPartition, int] = {}
        """The same partitions, each with the number of the step that assigned it."""
        self._grant_count = 0
        # A rebalance is often two steps, revoke and assign, which wait for two hooks.
        self._waiting: deque[RebalanceStep] = deque()
        self._is_handed_out = False

    @property
    def is_empty(self) -> bool:
        return not self._waiting

    def add(self, kind: StepKind, partitions: Collection[TopicPartition]) -> None:
        self._waiting.append(RebalanceStep(kind, tuple(sorted(partitions))))

    def next(self) -> RebalanceStep | None:
        """The first step, which stays until it is done."""
        if not self._waiting:
            return None
        self._is_handed_out = True
        return self._waiting[0]

    def done(self, step: RebalanceStep) -> None:
        """Remove the first step, and change the assignment by it."""
        assert self._waiting, "no step is left"
        # Hooks run one after the other; a second thread in `poll` would be refused before.
        assert self._waiting[0] is step, "steps are done in order"
        self._waiting.popleft()
        self._is_handed_out = False
        if step.kind is StepKind.ASSIGN:
            # A partition that comes back has another number, so an old commit can be recognized.
            self._grant_count += 1
            self.grants.update(dict.fromkeys(step.partitions, self._grant_count))
        else:
            for each in step.partitions:
                self.grants.pop(each, None)
        self.assignment = frozenset(self.grants)

    def drop(self) -> None:
        """Drop the steps that the user's thread has not taken yet: they are no longer true."""
        # The one that it has taken may be in its hook right now, and will be done.
        kept = [self._waiting[0]] if self._is_handed_out else []
        self._waiting = deque(kept)


class RequestSource(Protocol):
    """A state machine that sends requests."""

    def next_request(self, now: float) -> GroupRequest | None:
        """The request to send now, or None; `answered` or `put_back` must follow."""
        ...

    def put_back(self, request: GroupRequest, now: float) -> None:
        """The request could not be sent now, because no connection is ready yet."""
        ...

    def answered(self, request: GroupRequest, outcome: Message | NodeError, now: float) -> None:
        """Handle the answer to a request, or the error that came instead.

        A connection to `request.node` that failed before the request was sent is an outcome too.
        """
        ...

    def next_deadline(self, now: float) -> float:
        """The time by which `next_request` has to be called again; `NEVER` if only events matter.

        Never too late, but it may be too early.
        """
        ...


class Committer(Protocol):
    """Commits and fetches offsets: a member of a group, or a consumer outside of it."""

    @property
    def identity(self) -> GroupIdentity:
        """The present identity, for commits."""
        ...

    @property
    def grants(self) -> Mapping[TopicPartition, int]:
        """The assigned partitions, each with a number.

        The number is another one if the partition was given up in between and came back.
        """
        ...

    @property
    def names_member_in_fetch(self) -> bool:
        """Whether OffsetFetch names the member and its epoch; for `Commits`."""
        ...

    def commit_fault(self) -> Exception | None:
        """Why nothing can be committed now; None if it can."""
        ...

    def commit_refused(self, code: int, sent: GroupIdentity, now: float) -> Exception | None:
        """The error of a commit that was sent as `sent` and refused because of the member.

        The member acts upon it. None if the code says nothing about the member.
        """
        ...


class Membership(RequestSource, Committer, Protocol):
    """The membership of one consumer in one group."""

    @property
    def assignment(self) -> frozenset[TopicPartition]:
        """The partitions that the consumer reads: assigned, and not revoked yet."""
        ...

    @property
    def error(self) -> Exception | None:
        """Why the membership has ended for good; None while it lasts. `poll` raises it."""
        ...

    @property
    def is_left(self) -> bool:
        """Whether the consumer is no member, and nothing waits to be sent to the coordinator."""
        ...

    @property
    def is_settled(self) -> bool:
        """Whether the member has its assignment, and no rebalance of its own is under way."""
        ...

    @property
    def wish(self) -> MetadataWish:
        """Topics of which it needs the metadata."""
        ...

    def subscribe(self, topics: frozenset[str] | None, pattern: str | None, now: float) -> None:
        """Subscribe to topics, or to a pattern in RE2 syntax that the broker resolves.

        (None, None) is nothing, which leaves the group. A pattern that the client resolves is a set
        of topics here.
        """
        ...

    def topics_changed(
        self, topics: Mapping[str, TopicShape], missing: frozenset[str], now: float
    ) -> None:
        """Note the topics of the newest metadata, all that are known.

        `missing` has the names that were asked for and do not exist, or may not be seen; without
        it a leader would wait for them.
        """
        ...

    def polled(self, now: float) -> None:
        """Note that the user has called poll: `max.poll.interval.ms` counts from here."""
        ...

    def request_rejoin(self, reason: str, now: float) -> None:
        """Rebalance although nothing has changed (`enforceRebalance`)."""
        ...

    def next_step(self) -> RebalanceStep | None:
        """The next step of a rebalance; the same one until `step_done` is called with it."""
        ...

    def step_done(self, step: RebalanceStep, now: float) -> None:
        """The step is done: hooks have run, offsets are committed, positions are dropped."""
        ...

    def leave(self, reason: str, now: float) -> None:
        """Leave the group, as `close` and `subscribe(None, None)` do.

        If there is an assignment, a step to revoke or lose it comes first. Then requests come out
        of `next_request` until `is_left`. Nothing is retried.
        """
        ...
