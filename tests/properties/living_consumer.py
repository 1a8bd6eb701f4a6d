"""A consumer around our own membership and commits, on a coordinator in virtual time.

It polls, does the steps of rebalances, reads what it owns, and commits as a consumer does. Requests
and answers go through the bytes of the protocol.
"""

import asyncio
import random
from dataclasses import dataclass, field, replace
from typing import Any

from tailrace.client.consumer.config import parse_consumer_config
from tailrace.client.consumer.membership import (
    AutoCommit,
    ClassicMembership,
    Commits,
    ConsumerMembership,
    GroupCoordinator,
    GroupRequest,
    Membership,
    OffsetAndMetadata,
    RebalanceStep,
    RequestSource,
    StepKind,
    TopicShape,
)
from tailrace.client.nodes import DisconnectedError
from tailrace.coordinator.errors import CoordinatorNotAvailableError
from tailrace.coordinator.groups.commits import Commit, Committer, MemberAtEpoch, OffsetToCommit
from tailrace.coordinator.machine import Client
from tailrace.errors import TailraceError
from tailrace.handlers.groups import unavailable_code
from tailrace.handlers.services import error_code
from tailrace.model import TopicPartition
from tailrace.protocol.apis import api_of
from tailrace.protocol.codec import decode, encode
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID, Message
from tailrace.protocol.messages.consumer_group_heartbeat import (
    ConsumerGroupHeartbeatRequest,
    ConsumerGroupHeartbeatResponse,
)
from tailrace.protocol.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)
from tailrace.protocol.messages.heartbeat import HeartbeatRequest, HeartbeatResponse
from tailrace.protocol.messages.join_group import JoinGroupRequest, JoinGroupResponse
from tailrace.protocol.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse
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
from tailrace.protocol.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from tests.properties.shaky_broker import LostError, ShakyBroker
from tests.unit.coordinator.groups.stage import GROUP
from tests.unit.coordinator.groups_consumer.mixed_stage import MixedBroker

VERSIONS_MAX = {OffsetCommitRequest: 9, OffsetFetchRequest: 9}
"""The versions that our client speaks, where the broker speaks newer ones."""

POLL_S = 1.0
"""Time between two polls."""


class ShakyMixedBroker(ShakyBroker, MixedBroker):
    """A broker of both protocols behind a network that loses things."""

    async def ask(self, body: Message) -> Message:
        """The answer to a request of our client.

        Raises:
            LostError: the request or its answer was lost.
        """
        api = api_of(type(body))
        version = min(api.last_version, VERSIONS_MAX.get(type(body), api.last_version))
        received = _through_bytes(body, version)
        answer: Message
        try:
            answer = await self._answer(received, version)
        except CoordinatorNotAvailableError as error:
            answer = _refusal(received, unavailable_code(error))
        except TailraceError as error:
            answer = _refusal(received, error_code(error))
        told: Message = _through_bytes(answer, version)
        return told

    async def _answer(self, body: Any, version: int) -> Any:
        client = Client("client", "127.0.0.1", version)
        run: Any = self.run
        match body:
            case FindCoordinatorRequest():
                return FindCoordinatorResponse(
                    coordinators=(Coordinator(key=GROUP, node_id=1, host="broker", port=9092),)
                )
            case JoinGroupRequest():
                return await run(lambda machine, now: machine.join(client, body, now))
            case SyncGroupRequest():
                return await run(lambda machine, now: machine.sync(body, now))
            case HeartbeatRequest():
                return await run(lambda machine, now: machine.heartbeat(body, now))
            case LeaveGroupRequest():
                return await run(lambda machine, now: machine.leave(body, now))
            case ConsumerGroupHeartbeatRequest():
                return await run(lambda machine, now: machine.consumer_heartbeat(client, body, now))
            case OffsetCommitRequest():
                return await self._commit(body, version)
            case OffsetFetchRequest():
                return await self._fetch(body)
        raise AssertionError(f"{type(body).__name__} is no request of a member")

    async def _commit(self, body: OffsetCommitRequest, version: int) -> Message:
        offsets = [
            OffsetToCommit(
                TopicPartition(topic.name, each.partition_index),
                known.topic_id if (known := self.topics.by_name(topic.name)) else NO_UUID,
                each.committed_offset,
                each.committed_leader_epoch,
                each.committed_metadata or "",
            )
            for topic in body.topics
            for each in topic.partitions
        ]
        committer = Committer(
            body.generation_id_or_member_epoch, body.member_id, body.group_instance_id
        )
        commit = Commit(GROUP, committer, offsets, version)
        codes = await self.run(lambda machine, now: machine.commit(commit, now))
        return _commit_answer(body, iter(codes))

    async def _fetch(self, body: OffsetFetchRequest) -> Message:
        [asked] = body.groups
        fetcher = MemberAtEpoch(asked.member_id, asked.member_epoch)
        topics = []
        for topic in asked.topics or ():
            wanted = [TopicPartition(topic.name, each) for each in topic.partition_indexes]
            run: Any = self.run
            found = await run(
                lambda machine, _, wanted=wanted: machine.fetch_offsets(
                    GROUP, wanted, fetcher=fetcher, is_stable=body.require_stable
                )
            )
            if isinstance(found, ErrorCode):
                return _refusal(body, found)
            partitions = [
                OffsetFetchResponsePartitions(
                    partition_index=each.partition.partition,
                    committed_offset=-1 if each.committed is None else each.committed.offset,
                    metadata="",
                    error_code=each.code,
                )
                for each in found
            ]
            topics.append(OffsetFetchResponseTopics(name=topic.name, partitions=tuple(partitions)))
        group = OffsetFetchResponseGroup(group_id=GROUP, topics=tuple(topics))
        return OffsetFetchResponse(groups=(group,))


def _through_bytes(message: Any, version: int) -> Any:
    out = bytearray()
    encode(message, version, out)
    decoded, end = decode(type(message), version, memoryview(bytes(out)))
    assert end == len(out)
    return decoded


def _commit_answer(body: OffsetCommitRequest, codes: Any) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=tuple(
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=tuple(
                    OffsetCommitResponsePartition(
                        partition_index=each.partition_index, error_code=next(codes)
                    )
                    for each in topic.partitions
                ),
            )
            for topic in body.topics
        )
    )


def _refusal(body: Message, code: ErrorCode) -> Message:
    match body:
        case JoinGroupRequest():
            return JoinGroupResponse(error_code=code, member_id=body.member_id, protocol_name="")
        case SyncGroupRequest():
            return SyncGroupResponse(error_code=code)
        case HeartbeatRequest():
            # Kafka answers 0 while the group is loaded.
            is_loading = code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            return HeartbeatResponse(error_code=0 if is_loading else code)
        case LeaveGroupRequest():
            return LeaveGroupResponse(error_code=code)
        case ConsumerGroupHeartbeatRequest():
            return ConsumerGroupHeartbeatResponse(error_code=code)
        case OffsetCommitRequest():
            count = sum(len(topic.partitions) for topic in body.topics)
            return _commit_answer(body, iter([code] * count))
        case OffsetFetchRequest():
            group = OffsetFetchResponseGroup(group_id=GROUP, error_code=code)
            return OffsetFetchResponse(groups=(group,))
    raise AssertionError(f"{type(body).__name__} cannot be refused")


@dataclass
class Kind:
    """The way in which a consumer takes part."""

    assignors: tuple[str, ...] | None
    """Under the classic protocol; None: under the consumer protocol."""
    topics: frozenset[str]
    pattern: str | None = None
    instance_id: str | None = None


@dataclass
class Witness:
    """Commits that were acknowledged, by partition."""

    acknowledged: dict[TopicPartition, int] = field(default_factory=dict)


class LivingConsumer:
    """A consumer that lives until it is stopped, or fenced by another."""

    def __init__(
        self, broker: ShakyMixedBroker, witness: Witness, kind: Kind, *, seed: int
    ) -> None:
        self.kind = kind
        self._broker = broker
        self._witness = witness
        self._chance = random.Random(seed)
        self._loop = asyncio.get_running_loop()
        settings: dict[str, object] = {
            "bootstrap.servers": "broker:9092",
            "group.id": GROUP,
            "group.instance.id": kind.instance_id or "",
            "max.poll.interval.ms": 20_000,
            "group.protocol": "consumer" if kind.assignors is None else "classic",
        }
        if kind.assignors is not None:
            settings["session.timeout.ms"] = 10_000
            settings["partition.assignment.strategy"] = ",".join(kind.assignors)
        config = parse_consumer_config(settings)
        coordinator = GroupCoordinator(config, chance=self._chance)
        make = ConsumerMembership if kind.assignors is None else ClassicMembership
        self.membership: Membership = make(config, coordinator, chance=self._chance)
        self._commits = Commits(config, coordinator, self.membership, chance=self._chance)
        self._auto_commit = AutoCommit(config, self._loop.time())
        self.positions: dict[TopicPartition, int] = {}
        self._requests: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self.busy_until = 0.0
        """A slow handler keeps the user from polling until then."""
        self._step: RebalanceStep | None = None
        self._task = asyncio.ensure_future(self._live())

    @property
    def is_running(self) -> bool:
        """Whether it is neither stopped nor fenced."""
        return not self._task.done()

    async def crash(self) -> None:
        """Stop without a word."""
        tasks = [self._task, *self._requests]
        for each in tasks:
            each.cancel()
        outcomes: list[Any] = await asyncio.gather(*tasks, return_exceptions=True)
        for outcome in outcomes:
            if isinstance(outcome, Exception):
                raise outcome

    async def leave(self) -> None:
        """Close: give up the partitions, commit them, and tell the broker once."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        self.membership.leave("the consumer is being closed", self._now)
        deadline = self._now + 5
        while not self.membership.is_left and self._now < deadline:
            self._take_steps()
            self._send_requests()
            await self._wait(deadline)
        await self.crash()

    @property
    def _now(self) -> float:
        return self._loop.time()

    async def _live(self) -> None:
        kind = self.kind
        topics = None if kind.pattern else kind.topics
        self.membership.subscribe(topics, kind.pattern, self._now)
        poll_at = self._now
        while self.membership.error is None:
            self._see_topics()
            if self._now >= max(poll_at, self.busy_until):
                poll_at = self._now + POLL_S
                self.membership.polled(self._now)
                self._take_steps()
                self._read()
            self._send_requests()
            await self._wait(max(poll_at, self.busy_until))

    async def _wait(self, until: float) -> None:
        deadlines = (each.next_deadline(self._now) for each in (self.membership, self._commits))
        # At least a moment: what could not be sent now is tried again.
        seconds = max(min(until, *deadlines) - self._now, 0.05)
        self._changed.clear()
        try:
            async with asyncio.timeout(seconds):
                await self._changed.wait()
        except TimeoutError:
            return

    def _see_topics(self) -> None:
        wish = self.membership.wish
        known = {name: self._broker.topics.by_name(name) for name in self._broker.topics.names()}
        wanted = self.kind.topics | wish.names
        found = {
            name: TopicShape(each.topic_id, (frozenset[str](),) * each.partition_count)
            for name, each in known.items()
            if each is not None and (name in wanted or each.topic_id in wish.ids)
        }
        self.membership.topics_changed(found, wanted - found.keys(), self._now)

    def _take_steps(self) -> None:
        """Do steps until one has to wait for its commit."""
        while self._step is None and (step := self.membership.next_step()) is not None:
            self._step = step
            partitions = step.partitions
            if step.kind is StepKind.REVOKE and any(each in self.positions for each in partitions):
                self._commit(partitions, deadline=self._now + 5, is_before_revocation=True)
                return
            self._finish_step()

    def _finish_step(self) -> None:
        step, self._step = self._step, None
        assert step is not None
        if step.kind is StepKind.ASSIGN:
            self._auto_commit.restart(self._now)
        else:
            for each in step.partitions:
                self.positions.pop(each, None)
        self.membership.step_done(step, self._now)
        if step.kind is StepKind.ASSIGN and step.partitions:
            self._fetch_positions(step.partitions)

    def _fetch_positions(self, partitions: tuple[TopicPartition, ...]) -> None:
        grants = {each: self.membership.grants.get(each) for each in partitions}
        identity = self.membership.identity

        def done(found: Any) -> None:
            if isinstance(found, Exception):
                left = [each for each in partitions if self.membership.grants.get(each)]
                if left and self.is_running:
                    self._loop.call_later(1, self._fetch_positions, tuple(left))
                return
            for each, committed in found.items():
                if self.membership.grants.get(each) != grants[each]:
                    continue
                offset = 0 if committed is None else committed.offset
                if self.membership.identity == identity:
                    assert offset >= self._witness.acknowledged.get(each, 0)
                self.positions[each] = offset

        self._commits.fetch(partitions, done=done, deadline=self._now + 10)
        self._changed.set()

    def _read(self) -> None:
        for each in self.positions:
            self.positions[each] += 1
        if self._auto_commit.is_due(self._now):
            self._auto_commit.started(self._now)
            self._commit(tuple(self.positions), deadline=None, is_before_revocation=False)
        elif self._chance.random() < 0.2 and self.positions:
            each = self._chance.choice(sorted(self.positions))
            self._commit((each,), deadline=self._now + 8, is_before_revocation=False)

    def _commit(
        self,
        partitions: tuple[TopicPartition, ...],
        *,
        deadline: float | None,
        is_before_revocation: bool,
    ) -> None:
        offsets = {
            each: OffsetAndMetadata(self.positions[each])
            for each in partitions
            if each in self.positions
        }

        def done(error: Exception | None) -> None:
            if error is None:
                for each, committed in offsets.items():
                    known = self._witness.acknowledged.get(each, 0)
                    self._witness.acknowledged[each] = max(known, committed.offset)
            if deadline is None:
                self._auto_commit.finished(error, self._now)
            if is_before_revocation:
                self._finish_step()
                self._take_steps()

        self._commits.commit(
            offsets, done=done, deadline=deadline, is_before_revocation=is_before_revocation
        )

    def _send_requests(self) -> None:
        for source in (self.membership, self._commits):
            while (request := source.next_request(self._now)) is not None:
                if self._chance.random() < 0.1:
                    source.put_back(request, self._now)
                    break
                task = asyncio.ensure_future(self._send(source, request))
                self._requests.add(task)
                task.add_done_callback(self._requests.discard)

    async def _send(self, source: RequestSource, request: GroupRequest) -> None:
        try:
            async with asyncio.timeout(request.timeout_ms / 1000):
                outcome: Any = await self._broker.ask(request.body)
        except (LostError, TimeoutError):
            outcome = DisconnectedError("the connection broke")
        source.answered(request, outcome, self._now)
        self._changed.set()


def static(kind: Kind, name: str) -> Kind:
    """The same consumer as a static member."""
    return replace(kind, instance_id=name)
