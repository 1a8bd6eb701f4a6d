"""`Watch`: what a cluster says about itself at one moment, asked with a few requests.

    any broker    Metadata, DescribeCluster, ListPartitionReassignments
    each broker   ListGroups, then DescribeGroups and OffsetFetch of its groups, ListOffsets of the
                  partitions that it leads, DescribeLogDirs; once DescribeConfigs

The number of requests depends on the number of brokers alone. Brokers are asked at the same time,
and committed offsets before the ends of logs, so that no lag is below zero by the order.

Invariant: a snapshot ends within some seconds. What a broker does not tell in time is missing in
it, and the broker is silent; from then on it is waited for a short time only.

Not here: rates, which are of two snapshots (`tables`), and metrics of brokers (`metrics`).
"""

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Final

from tailrace.cli.on_cluster import ANSWER_LIMIT_MS
from tailrace.cli.top.metrics import Scrape, Scraper, listener_url
from tailrace.client.admin.cluster import BrokerNode, ClusterDescription, describe_cluster
from tailrace.client.admin.configs import ConfigResource, describe_configs
from tailrace.client.admin.group_offsets import list_offsets_of_groups
from tailrace.client.admin.groups import GroupListing, describe_groups, list_groups
from tailrace.client.admin.items import ItemRequest, ask_one, entry_error
from tailrace.client.admin.offsets import list_offsets
from tailrace.client.admin.replicas import (
    LogDirectory,
    describe_log_dirs,
    list_partition_reassignments,
)
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps, at_once
from tailrace.client.errors import (
    OperationTimeoutError,
    UnreachableBrokerError,
    UnsupportedBrokerError,
)
from tailrace.client.reader import ClusterReader, TopicDescription, describe_topic
from tailrace.client.routes import ANY
from tailrace.errors import TailraceError
from tailrace.model import SpecialTimestamp, TopicPartition
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.metadata import MetadataRequest, MetadataResponse
from tailrace.values import dataclass, field

SILENT_LIMIT_MS: Final = 500
"""Longest wait for a broker that was silent the last time: the others are not to be old for it."""

_HTTP_LISTENER: Final = "tailrace.http.listener"
_NOTES_MAX: Final = 8


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupState:
    """A group, and the offsets that it has committed."""

    listing: GroupListing
    coordinator: int
    """The id of the broker that keeps it."""
    at: float
    """When its offsets were asked for, on the clock of the snapshot."""
    members: int | None = None
    """None: not known, as of groups whose members are no consumers."""
    owners: Mapping[TopicPartition, str] = field(default_factory=dict)
    """The member that reads a partition: its client id and address."""
    committed: Mapping[TopicPartition, int] | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Snapshot:
    """A cluster at one moment; values that no broker has sent are missing."""

    at: float
    """When it was begun, in seconds of a monotonic clock."""
    took_s: float
    cluster_id: str | None
    brokers: Mapping[int, BrokerNode]
    """Also those that are fenced, where a broker names them."""
    silent: Mapping[int, str]
    """Brokers that do not answer, with the reasons."""
    topics: Mapping[str, TopicDescription]
    ends_at: Mapping[int, float]
    """When each broker was asked for the ends of the logs that it leads."""
    ends: Mapping[TopicPartition, int]
    """The offset after the last record that consumers may read."""
    directories: Mapping[int, Mapping[str, LogDirectory]]
    """Log directories by broker and path."""
    moving: frozenset[TopicPartition]
    """Partitions whose replicas are moved to other brokers."""
    groups: Mapping[str, GroupState]
    scrapes: Mapping[int, Scrape]
    """Metrics of brokers, from their pages for Prometheus."""
    notes: tuple[str, ...]
    """Questions that were refused, with the reasons; silent brokers are not among them."""


@dataclass(slots=True, kw_only=True)
class _Taken:
    """A snapshot that is being taken."""

    cluster: ClusterDescription | None = None
    silent: dict[int, str] = field(default_factory=dict)
    topics: dict[str, TopicDescription] = field(default_factory=dict)
    ends_at: dict[int, float] = field(default_factory=dict)
    ends: dict[TopicPartition, int] = field(default_factory=dict)
    directories: dict[int, Mapping[str, LogDirectory]] = field(default_factory=dict)
    moving: frozenset[TopicPartition] = frozenset()
    groups: dict[str, GroupState] = field(default_factory=dict)
    # In order and each once.
    notes: dict[str, None] = field(default_factory=dict)

    def note(self, what: str, error: TailraceError) -> None:
        """Remember that something is missing."""
        if len(self.notes) < _NOTES_MAX:
            self.notes[f"{what}: {error}"] = None

    @contextmanager
    def noting(self, what: str) -> Iterator[None]:
        """Do without what a broker refuses; a broker that is silent is the caller's."""
        try:
            yield
        except (UnreachableBrokerError, OperationTimeoutError):
            raise
        except TailraceError as error:
            self.note(what, error)


class Watch:
    """Takes snapshots of a cluster; for one thread."""

    def __init__(
        self, cluster: ClusterReader, *, metrics: str | None, clock: Callable[[], float]
    ) -> None:
        """`metrics` is the URL of a broker's page, with `{host}` or `{id}` for those of each.

        Without it the brokers are asked for `tailrace.http.listener`.
        """
        self._cluster = cluster
        self._metrics = metrics
        self.clock = clock
        self._silent: frozenset[int] = frozenset()
        self._has_silent_controller = False
        self._pages: dict[BrokerNode, str | None] = {}
        """The address of a broker's page, where it has said whether it has one."""
        self._scraper = Scraper(clock)

    def take(self, *, metrics_s: float = 0) -> Snapshot:
        """A new snapshot, with the metrics that have been read so far, or come in `metrics_s`.

        Raises:
            TailraceError: no broker answers, or it does not name the topics.
        """
        began, taken = self.clock(), _Taken()
        call = self._cluster.call(limit_ms=ANSWER_LIMIT_MS, retries=1)
        self._run(_take_topics(taken, call), _take_cluster(taken, call), self._take_moves(taken))
        assert taken.cluster is not None, "taken, or an error"
        brokers = {each.id: each for each in taken.cluster.brokers}
        self._pages = {each: self._pages[each] for each in brokers.values() if each in self._pages}
        asked = [each for each in brokers.values() if not each.is_fenced]
        for each in brokers.values():
            if each.is_fenced:
                taken.silent[each.id] = "it is fenced, that is registered and not in service"
        # Who waits for pages takes two snapshots, and the rates need a page of each, however long
        # it takes: some exporters need seconds for their first one.
        self._scraper.begin(self._targets(asked), all_due=metrics_s > 0)
        led: dict[int, dict[TopicPartition, int]] = {}
        for topic in taken.topics.values():
            for part in topic.partitions:
                name = TopicPartition(topic.name, part.partition)
                led.setdefault(part.leader, {})[name] = SpecialTimestamp.LATEST
        self._run(*(self._take_broker(taken, each, led.get(each.id, {})) for each in asked))
        self._silent = frozenset(taken.silent)
        # Once more for those whose page is known only now.
        self._scraper.begin(self._targets(asked))
        self._scraper.wait(metrics_s)
        for number, reason in self._scraper.failures.items():
            if number in brokers and number not in taken.silent:
                taken.notes[f"metrics of broker {number}: {reason}"] = None
        return Snapshot(
            at=began,
            took_s=self.clock() - began,
            cluster_id=taken.cluster.cluster_id,
            brokers=dict(sorted(brokers.items())),
            silent=dict(sorted(taken.silent.items())),
            topics=taken.topics,
            ends_at=taken.ends_at,
            ends=taken.ends,
            directories=taken.directories,
            moving=taken.moving,
            groups=taken.groups,
            scrapes={
                number: each for number, each in self._scraper.found.items() if number in brokers
            },
            notes=tuple(taken.notes),
        )

    def _run(self, *calls: Steps[None]) -> None:
        self._cluster.run(at_once(deque(calls), self._cluster.clock))

    def _targets(self, brokers: list[BrokerNode]) -> dict[int, str]:
        """The pages that are known, by broker."""
        if self._metrics is not None:
            return {
                each.id: self._metrics.replace("{host}", _in_url(each.host)).replace(
                    "{id}", str(each.id)
                )
                for each in brokers
            }
        return {each.id: url for each in brokers if (url := self._pages.get(each))}

    def _take_moves(self, taken: _Taken) -> Steps[None]:
        limit_ms = SILENT_LIMIT_MS if self._has_silent_controller else ANSWER_LIMIT_MS
        call = self._cluster.call(limit_ms=limit_ms, retries=0)
        try:
            with taken.noting("moves of partitions"):
                taken.moving = frozenset((yield from list_partition_reassignments(call)))
            self._has_silent_controller = False
        except (UnreachableBrokerError, OperationTimeoutError) as error:
            # Brokers forward it to the controller, which may be no broker.
            self._has_silent_controller = True
            taken.note("moves of partitions", error)

    def _take_broker(
        self, taken: _Taken, broker: BrokerNode, led: Mapping[TopicPartition, int]
    ) -> Steps[None]:
        """Ask one broker; `led` are the questions about the logs that it leads."""
        number, was_silent = broker.id, broker.id in self._silent
        limit_ms = SILENT_LIMIT_MS if was_silent else ANSWER_LIMIT_MS
        call = self._cluster.call(limit_ms=limit_ms, retries=0)
        try:
            with taken.noting(f"groups of broker {number}"):
                listed = yield from list_groups(call, brokers=[number])
                # It answers, so it has the time that the others have.
                call = self._cluster.call(limit_ms=ANSWER_LIMIT_MS, retries=1)
                yield from self._take_groups(taken, call, listed, number=number)
            taken.ends_at[number] = self.clock()
            yield from _take_ends(taken, call, led)
            with taken.noting(f"log directories of broker {number}"):
                found = yield from describe_log_dirs(call, [number])
                taken.directories[number] = found.result(number)
            if self._metrics is None and broker not in self._pages:
                self._pages[broker] = yield from _page_of(call, broker)
        except (UnreachableBrokerError, OperationTimeoutError) as error:
            taken.silent[number] = str(error.__cause__ or error)
            # It may come back with other settings.
            self._pages.pop(broker, None)

    def _take_groups(
        self, taken: _Taken, call: Call, listed: list[GroupListing], *, number: int
    ) -> Steps[None]:
        names = [each.group for each in listed]
        described = (yield from describe_groups(call, names)).succeeded
        at = self.clock()
        offsets = yield from list_offsets_of_groups(call, names)
        for each in listed:
            found, own = described.get(each.group), offsets[each.group]
            committed = None
            if isinstance(own, TailraceError):
                taken.note(f"group {each.group}", own)
            else:
                committed = {name: one.offset for name, one in own.succeeded.items()}
            taken.groups[each.group] = GroupState(
                listing=each,
                coordinator=number,
                at=at,
                members=None if found is None else len(found.members),
                owners={}
                if found is None
                else {
                    partition: f"{member.client_id} {member.host}"
                    for member in found.members
                    for partition in member.partitions
                },
                committed=committed,
            )


def _take_ends(taken: _Taken, call: Call, led: Mapping[TopicPartition, int]) -> Steps[None]:
    found = yield from list_offsets(call, led)
    for partition, each in found.items():
        if not isinstance(each, TailraceError):
            taken.ends[partition] = each.offset
        elif isinstance(each, UnreachableBrokerError | OperationTimeoutError):
            raise each
        else:
            taken.note("ends of logs", each)


def _take_topics(taken: _Taken, call: Call) -> Steps[None]:
    # One request, whatever the number of topics; DescribeTopicPartitions has pages.
    request: ItemRequest[str, MetadataResponse, MetadataResponse] = ItemRequest(
        what="the topics",
        target=ANY,
        request=lambda _: MetadataRequest(topics=None, allow_auto_topic_creation=False),
        response=MetadataResponse,
        value=lambda _, answer: answer,
    )
    answer = yield from ask_one(call, request)
    # So that no other operation has to ask for the leaders.
    call.routes.learn(answer)
    for topic in answer.topics:
        error = entry_error(topic, about=f"topic {topic.name}")
        # Some of its partitions have no leader, which is seen there.
        if error is not None and topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
            taken.note("topics", error)
        elif topic.name is not None:
            taken.topics[topic.name] = describe_topic(topic.name, topic, topic.partitions)


def _take_cluster(taken: _Taken, call: Call) -> Steps[None]:
    try:
        taken.cluster = yield from describe_cluster(call, include_fenced_brokers=True)
    except UnsupportedBrokerError:
        taken.cluster = yield from describe_cluster(call)


def _page_of(call: Call, broker: BrokerNode) -> Steps[str | None]:
    """The address of a broker's page; None: it has none, or none for others."""
    resource = ConfigResource(ResourceType.BROKER, str(broker.id))
    outcomes = yield from describe_configs(call, [resource], names=[_HTTP_LISTENER])
    found = outcomes[resource]
    # A user who may not see settings is nobody to bother with it.
    if isinstance(found, TailraceError):
        return None
    entry = found.get(_HTTP_LISTENER)
    return listener_url(entry.value or "", broker.host) if entry is not None else None


def _in_url(host: str) -> str:
    return f"[{host}]" if ":" in host else host
