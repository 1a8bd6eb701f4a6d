"""`Routes`: which broker gets a request: the controller, a leader, a coordinator.

What the cache lacks is asked for by steps (`steps`), so that readers, `Admin` and `AsyncAdmin` find
their brokers by the same code.

    any        -> whichever broker the runner can reach
    controller -> Metadata
    broker n   -> Metadata
    leader     -> Metadata of the topic
    coordinator-> FindCoordinator, all keys in one request (KIP-699) or, of old brokers, one by one

Not here: retries. A caller forgets a target that turned out wrong, and finds it again.
"""

# Beside `ClusterMetadata`, because the two ask for different reasons. That asks by itself, for the
# topics of interest that it keeps fresh, one request at a time; here each operation asks within its
# own time limit, several at once, for what it needs this once. Nor could epochs order the answers:
# `Admin` and most readers ask in Metadata 8, whose epochs are not reliable. So only the rules for
# addresses are shared; an answer with an old leader costs an operation one more attempt.

from collections.abc import Collection, Iterable, Sequence
from enum import Enum
from typing import NamedTuple

from tailrace.client.calls import Ask, Call, Reply
from tailrace.client.cluster_metadata import is_address, usable_nodes
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import UnsupportedBrokerError, error_for
from tailrace.client.nodes import Node
from tailrace.errors import TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.coordinator_keys import CoordinatorKeyType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)


class TargetKind(Enum):
    """Kinds of brokers that requests go to."""

    ANY = "any broker"
    CONTROLLER = "the controller"
    BROKER = "a broker by its id"
    GROUP = "the coordinator of a group"
    TRANSACTION = "the coordinator of a transactional id"
    LEADER = "the leader of a partition"


class Target(NamedTuple):
    """The broker that a request is for."""

    kind: TargetKind
    name: str = ""
    """The topic, group or transactional id."""
    number: int = -1
    """The broker, or the partition."""


ANY = Target(TargetKind.ANY)
CONTROLLER = Target(TargetKind.CONTROLLER)

_KEY_TYPES = {
    TargetKind.GROUP: CoordinatorKeyType.GROUP,
    TargetKind.TRANSACTION: CoordinatorKeyType.TRANSACTION,
}

Found = Node | TailraceError | None
"""The broker of a target, or why there is none; None: any broker."""


def broker(number: int) -> Target:
    """A broker by its id."""
    return Target(TargetKind.BROKER, number=number)


def leader(partition: TopicPartition) -> Target:
    """The leader of a partition."""
    return Target(TargetKind.LEADER, *partition)


def group_coordinator(group: str) -> Target:
    """The coordinator of a group."""
    return Target(TargetKind.GROUP, group)


def transaction_coordinator(transactional_id: str) -> Target:
    """The coordinator of a transactional id."""
    return Target(TargetKind.TRANSACTION, transactional_id)


class Routes:
    """The brokers that answers have named; not for more than one thread at a time."""

    def __init__(self, bootstrap: Sequence[Node]) -> None:
        self.nodes: dict[int, Node] = {}
        """The living brokers by id, as far as answers have named them."""
        self._bootstrap = tuple(bootstrap)
        self._controller = -1
        self._found: dict[Target, Node] = {}
        """Leaders and coordinators."""
        self._leaderless: set[Target] = set()
        """Partitions that exist and had no leader when they were asked for."""
        self._topic_errors: dict[str, TailraceError] = {}
        """Errors of topics in the newest metadata."""

    @property
    def candidates(self) -> list[Node]:
        """The brokers of the bootstrap list, and those that answers have named."""
        return [*dict.fromkeys((*self._bootstrap, *self.nodes.values()))]

    def learn(self, answer: MetadataResponse) -> None:
        """Take brokers, controller and leaders from an answer to Metadata."""
        self.nodes = {number: self._listed(each) for number, each in usable_nodes(answer).items()}
        self._controller = answer.controller_id
        for topic in answer.topics:
            for each in topic.partitions:
                target = Target(TargetKind.LEADER, topic.name or "", each.partition_index)
                # A leader without an address is one that is starting or stopping.
                if each.leader_id in self.nodes:
                    self._found[target] = self.nodes[each.leader_id]
                    self._leaderless.discard(target)
                else:
                    self._found.pop(target, None)
                    self._leaderless.add(target)

    def known(self, target: Target) -> Node | None:
        """The cached broker of a target."""
        match target.kind:
            case TargetKind.CONTROLLER:
                return self.nodes.get(self._controller)
            case TargetKind.BROKER:
                return self.nodes.get(target.number)
        return self._found.get(target)

    def forget(self, targets: Iterable[Target]) -> None:
        """Forget the brokers of these targets, so that they are asked for again."""
        for each in targets:
            if each.kind is TargetKind.CONTROLLER:
                self._controller = -1
            elif each.kind is TargetKind.BROKER:
                self.nodes.pop(each.number, None)
            else:
                self._found.pop(each, None)

    def forget_all(self) -> None:
        """Forget every leader and coordinator."""
        self._found.clear()
        self._controller = -1

    def find(self, call: Call, targets: Collection[Target]) -> Steps[dict[Target, Found]]:
        """The broker of each target, or the error of its lookup."""
        by_metadata = [
            each
            for each in targets
            if each.kind in (TargetKind.CONTROLLER, TargetKind.BROKER, TargetKind.LEADER)
        ]
        found: dict[Target, Found] = {each: None for each in targets if each == ANY}
        error = None
        if any(self.known(each) is None for each in by_metadata):
            # Only what is not known: the answer about a topic with 10,000 partitions has 500 KB.
            topics = {
                each.name
                for each in by_metadata
                if each.kind is TargetKind.LEADER and self.known(each) is None
            }
            error = yield from self.refresh(call, topics)
            if isinstance(error, UnsupportedBrokerError) and len(topics) > 1:
                # One of the names may be longer than a request can carry.
                error = None
                for topic in sorted(topics):
                    alone = yield from self.refresh(call, {topic})
                    if alone is not None:
                        self._topic_errors[topic] = alone
        for each in by_metadata:
            found[each] = self.known(each) or error or self._absent(each)
        for kind in _KEY_TYPES:
            wanted = [each for each in targets if each.kind is kind]
            missing = [each for each in wanted if self.known(each) is None]
            errors = (yield from self._find_coordinators(call, missing)) if missing else {}
            for each in wanted:
                found[each] = self.known(each) or errors[each]
        return found

    def refresh(self, call: Call, topics: Collection[str] = ()) -> Steps[TailraceError | None]:
        """Ask for the brokers, and the leaders of these topics; returns the error, if any."""
        request = MetadataRequest(
            topics=tuple(MetadataRequestTopic(name=each) for each in sorted(topics)),
            allow_auto_topic_creation=False,
        )
        (reply,) = yield from call.send((Ask(None, request, call.deadline),))
        if isinstance(reply.outcome, TailraceError):
            return reply.outcome
        answer = reply.answer(MetadataResponse)
        error = error_for(answer.error_code, about=f"{reply.address} was asked for metadata")
        if error is not None:
            return error
        self.learn(answer)
        for topic in answer.topics:
            about = f"topic {topic.name!r} at {reply.address}"
            error = error_for(topic.error_code, about=about)
            if error is None:
                self._topic_errors.pop(topic.name or "", None)
            # An answer may be about more than was asked for.
            elif topic.name in topics:
                self._topic_errors[topic.name or ""] = error
        return None

    def _absent(self, target: Target) -> TailraceError:
        """The error of a target that the newest metadata does not have."""
        if target.kind is TargetKind.CONTROLLER:
            code, about = ErrorCode.NOT_CONTROLLER, "no broker is the controller"
        elif target.kind is TargetKind.BROKER:
            # Retriable: the broker may be starting.
            code = ErrorCode.REPLICA_NOT_AVAILABLE
            alive = ", ".join(map(str, sorted(self.nodes))) or "none"
            about = f"broker {target.number} is not in the cluster, which has {alive}"
        else:
            error = self._topic_errors.get(target.name)
            if error is not None:
                return error
            partition = TopicPartition(target.name, target.number)
            code, about = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(partition)
            if target in self._leaderless:
                # The partition exists, so this is worth more attempts than an unknown one.
                code = ErrorCode.LEADER_NOT_AVAILABLE
        error = error_for(code, about=about)
        assert error is not None, "these codes are errors"
        return error

    def _find_coordinators(
        self, call: Call, targets: Sequence[Target]
    ) -> Steps[dict[Target, TailraceError]]:
        """Learn the coordinators of targets of one kind; returns the errors."""
        (reply,) = yield from call.send((_asking(call, targets),))
        if isinstance(reply.outcome, UnsupportedBrokerError) and len(targets) > 1:
            # One of the names may be longer than a request can carry.
            found: dict[Target, TailraceError] = {}
            for each in targets:
                found |= yield from self._find_coordinators(call, [each])
            return found
        if not isinstance(reply.outcome, TailraceError) and len(targets) > 1:
            answer = reply.answer(FindCoordinatorResponse)
            if not answer.coordinators:
                # Until version 3 a request has one key: the answer is about the first.
                errors = self._learn_coordinators(reply, targets[:1])
                replies = yield from call.send(tuple(_asking(call, [each]) for each in targets[1:]))
                for each, one in zip(targets[1:], replies, strict=True):
                    errors |= self._learn_coordinators(one, [each])
                return errors
        return self._learn_coordinators(reply, targets)

    def _learn_coordinators(
        self, reply: Reply, targets: Sequence[Target]
    ) -> dict[Target, TailraceError]:
        if isinstance(reply.outcome, TailraceError):
            return dict.fromkeys(targets, reply.outcome)
        answer = reply.answer(FindCoordinatorResponse)
        named: dict[str, Coordinator | FindCoordinatorResponse] = {
            each.key: each for each in answer.coordinators
        }
        if not named and len(targets) == 1:
            named = {targets[0].name: answer}
        errors: dict[Target, TailraceError] = {}
        for each in targets:
            about = (
                f"{reply.address} was asked for the coordinator of "
                f"{_KEY_TYPES[each.kind].name.lower()} {each.name!r}"
            )
            one = named.get(each.name)
            node = Node(-1, "", -1) if one is None else Node(one.node_id, one.host, one.port)
            # A broker that leaves a key out, or gives no address that one could connect to, is
            # asked again, as one that has no coordinator yet.
            code = 0 if one is None else one.error_code
            if not code and not is_address(node):
                code = ErrorCode.COORDINATOR_NOT_AVAILABLE
            error = error_for(code, about=about)
            if error is not None:
                errors[each] = error
            else:
                self._found[each] = self._listed(node)
        return errors

    def _listed(self, node: Node) -> Node:
        """The same broker by its id in the bootstrap list, if that has its address."""
        # So it keeps the connection that was just used.
        same = (each for each in self._bootstrap if each[1:] == node[1:])
        return next(same, node)


def _asking(call: Call, targets: Sequence[Target]) -> Ask:
    request = FindCoordinatorRequest(
        key=targets[0].name,
        key_type=_KEY_TYPES[targets[0].kind],
        coordinator_keys=tuple(each.name for each in targets),
    )
    return Ask(None, request, call.deadline)
