"""A new target for all members of a consumer group, from an assignor to records.

Only targets that have changed are written, then the epoch that they are for. That of a large group
takes longer than a turn of the event loop may: a third of a second for a thousand members and ten
thousand partitions. So a thread computes it (decision 34), and members are answered with the old
target until then:

    a turn      the group is copied as it is
    a thread    an assignor solves its problem
    turns       the targets are stored, a hundred in each, and then their epoch
"""

import asyncio
import logging
from collections import Counter
from collections.abc import Mapping
from functools import partial
from typing import Final, NamedTuple
from uuid import UUID

from tailrace.coordinator.groups.assignors import ASSIGNORS, AssignedMember, Problem
from tailrace.coordinator.groups.consumer_group import (
    ConsumerGroup,
    ConsumerMember,
    Partitions,
    Subscription,
)
from tailrace.coordinator.groups.consumer_records import target_epoch_record, target_record
from tailrace.coordinator.groups.settings import ConsumerSettings
from tailrace.coordinator.groups.state import Groups
from tailrace.coordinator.groups.topics import Topic, Topics
from tailrace.coordinator.machine import CoordinatorRecord, Decision, Propose
from tailrace.errors import TailraceError
from tailrace.runtime.threads import Threads
from tailrace.values import dataclass, replace

SIZE_MAX: Final = 150
"""Members and partitions, together, that are assigned in one turn of the loop: 30 us for each."""

TARGETS_PER_TURN: Final = 100
"""Targets in one batch, and in one turn of the event loop."""

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True, kw_only=True)
class TargetAssignment:
    """The targets of all members at an epoch."""

    targets: Mapping[str, Partitions]
    records: tuple[CoordinatorRecord, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupUpdate:
    """A group as it will be when the records of a request are replayed."""

    group: ConsumerGroup
    epoch: int
    updated: ConsumerMember
    """The member whose request it is."""
    replaced_id: str | None
    """The member id that the member had before, if it is a static one that has restarted."""

    @property
    def members(self) -> dict[str, ConsumerMember]:
        members = dict(self.group.members)
        if self.replaced_id is not None:
            members.pop(self.replaced_id, None)
        members[self.updated.member_id] = self.updated
        return members


def compute_target(
    update: GroupUpdate, topics: Topics, *, settings: ConsumerSettings, now_ms: int
) -> TargetAssignment:
    """Assign with the assignor that most members ask for, else with the default."""
    group, members = update.group, update.members
    targets = _solved(group, members, topics, settings=settings)
    changed = _changed(group, targets)
    records = [target_record(group.group_id, each, target) for each, target in changed.items()]
    records.append(target_epoch_record(group.group_id, update.epoch, now_ms))
    return TargetAssignment(targets=targets, records=tuple(records))


def posed_problem(
    group: ConsumerGroup, members: Mapping[str, ConsumerMember], topics: Topics
) -> Problem:
    """The problem of an assignor: the members of a group and their topics, as they are now."""
    known: dict[Subscription, frozenset[UUID]] = {}
    # Looked up once each: on a thread a topic may go between two looks, or come again with another
    # id, of which one member would get all partitions and another one those of before.
    found: dict[str, Topic | None] = {}
    for member in members.values():
        if member.subscription not in known:
            names = group.topics_of(member.subscription)
            found |= {each: topics.by_name(each) for each in names if each not in found}
            there = (found[each] for each in names)
            known[member.subscription] = frozenset(each.topic_id for each in there if each)
    counts = {each.topic_id: each.partition_count for each in found.values() if each}
    return Problem(
        members={
            member_id: AssignedMember(
                topic_ids=known[member.subscription],
                target=group.target_of(member),
                instance_id=member.instance_id,
            )
            for member_id, member in members.items()
        },
        partition_counts=counts,
    )


def is_large(update: GroupUpdate, topics: Topics) -> bool:
    """Whether a target for the group takes longer than a turn of the event loop may."""
    size = len(update.group.members)
    # Asked by each heartbeat until the target is there: in a group of thousands of subscriptions
    # their topics take milliseconds.
    if size > SIZE_MAX:
        return True
    for name in update.group.topics_of_all(
        {*update.group.subscriptions, update.updated.subscription}
    ):
        topic = topics.by_name(name)
        size += 0 if topic is None else topic.partition_count
        if size > SIZE_MAX:
            return True
    return False


def topic_ids_of(
    group: ConsumerGroup, subscription: Subscription, topics: Topics
) -> frozenset[UUID]:
    """The ids of those topics of a subscription that exist."""
    found = map(topics.by_name, group.topics_of(subscription))
    return frozenset(each.topic_id for each in found if each is not None)


def preferred_assignor(members: Mapping[str, ConsumerMember], settings: ConsumerSettings) -> str:
    """The assignor that most members ask for; the default if none does."""
    wanted = (each.metadata.server_assignor for each in members.values())
    # A broker with other settings may have accepted one that this one does not have.
    votes = Counter(each for each in wanted if each in settings.assignors)
    return votes.most_common(1)[0][0] if votes else settings.assignors[0]


class Assigning:
    """Computes the targets of the large groups of one shard; each group has one task at most."""

    def __init__(self, groups: Groups, threads: Threads) -> None:
        self._groups = groups
        self._threads = threads
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def ask(self, group_id: str) -> None:
        """Compute a target for a group, unless it is under way."""
        propose = self._groups.propose
        if group_id not in self._tasks and propose is not None:
            task = asyncio.ensure_future(self._assign(group_id, propose))
            self._tasks[group_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(group_id, None))

    def stop(self) -> None:
        """Drop what is under way."""
        for task in tuple(self._tasks.values()):
            task.cancel()

    async def _assign(self, group_id: str, propose: Propose) -> None:
        try:
            # A decision of its own, which changes nothing: the request that has asked is replayed
            # by then.
            await propose(lambda _: Decision(reply=None))
            group = self._groups.consumer(group_id)
            if group is None or group.epoch <= group.target_epoch:
                return
            posed = _Posed(group, group.epoch, frozenset(group.members))
            settings, topics = self._groups.consumer_settings(group_id), self._groups.topics
            as_it_is = replace(  # It must not change while a thread reads it.
                group,
                members=dict(group.members),
                static_members=dict(group.static_members),
                target=dict(group.target),
                regexes=dict(group.regexes),
            )
            changed = await self._threads.run(
                lambda: _changed(
                    as_it_is, _solved(as_it_is, as_it_is.members, topics, settings=settings)
                )
            )
            ids = list(changed)
            for start in range(0, max(len(ids), 1), TARGETS_PER_TURN):
                part = {each: changed[each] for each in ids[start : start + TARGETS_PER_TURN]}
                is_last = start + TARGETS_PER_TURN >= len(ids)
                await propose(partial(self._store, posed, part, is_last=is_last))
                await asyncio.sleep(0)
        except TailraceError as error:
            # The next heartbeat asks again.
            logger.warning("target_not_stored group=%s reason=%s", group_id, error)

    def _store(
        self,
        posed: "_Posed",
        targets: Mapping[str, Partitions],
        now_ms: int,
        *,
        is_last: bool,
    ) -> Decision[None]:
        group, group_id = posed.group, posed.group.group_id
        is_there = self._groups.by_id.get(group_id) is group
        # A static member that restarts has another id, at the same epoch.
        is_same = group.epoch == posed.epoch and group.members.keys() == posed.members
        if not (is_there and is_same):
            # The next heartbeat asks again. Some targets may be stored without their epoch then,
            # which is as if members had no target yet: nobody is given a partition that another
            # has (`reconciliation`).
            return Decision(reply=None)
        records = [target_record(group_id, each, target) for each, target in targets.items()]
        if is_last:
            records.append(target_epoch_record(group_id, posed.epoch, now_ms))
        return Decision(reply=None, records=tuple(records))


class _Posed(NamedTuple):
    """A group as it was when its problem was posed."""

    group: ConsumerGroup
    epoch: int
    members: frozenset[str]


def _solved(
    group: ConsumerGroup,
    members: Mapping[str, ConsumerMember],
    topics: Topics,
    *,
    settings: ConsumerSettings,
) -> Mapping[str, Partitions]:
    """The target of each of these members, by the assignor that most of them ask for."""
    problem = posed_problem(group, members, topics)
    return ASSIGNORS[preferred_assignor(members, settings)](problem)


def _changed(group: ConsumerGroup, targets: Mapping[str, Partitions]) -> dict[str, Partitions]:
    """The targets that are to be stored, because the group has others."""
    return {each: target for each, target in targets.items() if group.target.get(each) != target}
