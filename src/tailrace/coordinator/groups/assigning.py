"""Targets of large groups, computed on a worker thread while the group goes on.

A target for a thousand members and ten thousand partitions takes a third of a second. Members are
answered with the old target meanwhile, and get the new one with a later heartbeat:

    a turn      the group is copied as it is
    a thread    an assignor solves its problem
    turns       the targets are stored, a hundred in each, and then their epoch

If the group epoch grows in between, the result is dropped, and the next heartbeat begins anew. Some
targets may be stored without their epoch then, which is as if members had no target yet: nobody is
given a partition that another has (`reconciliation`).
"""

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial
from typing import Final, NamedTuple

from tailrace.coordinator.groups.assignors import ASSIGNORS
from tailrace.coordinator.groups.consumer_group import ConsumerGroup, Partitions
from tailrace.coordinator.groups.consumer_groups import ConsumerGroups
from tailrace.coordinator.groups.consumer_records import target_epoch_record, target_record
from tailrace.coordinator.groups.consumer_settings import ConsumerSettings
from tailrace.coordinator.groups.target_assignment import posed_problem, preferred_assignor
from tailrace.coordinator.groups.topics import Topics
from tailrace.coordinator.machine import Decision, Propose
from tailrace.errors import TailraceError
from tailrace.runtime.threads import Threads
from tailrace.values import replace

TARGETS_PER_TURN: Final = 100
"""Targets in one batch, and in one turn of the event loop."""

logger = logging.getLogger(__name__)


class Assigning:
    """Computes the targets of the large groups of one shard; each group has one task at most."""

    def __init__(
        self,
        groups: ConsumerGroups,
        topics: Topics,
        threads: Threads,
        *,
        settings: Callable[[str], ConsumerSettings],
    ) -> None:
        self._groups = groups
        self._topics = topics
        self._threads = threads
        self._settings = settings
        self._propose: Propose | None = None
        self._tasks: dict[str, asyncio.Task[None]] = {}

    def start(self, propose: Propose) -> None:
        """Run decisions with `propose` from now on."""
        self._propose = propose

    def ask(self, group_id: str) -> None:
        """Compute a target for a group, unless it is under way."""
        if group_id not in self._tasks and self._propose is not None:
            task = asyncio.ensure_future(self._assign(group_id, self._propose))
            self._tasks[group_id] = task
            task.add_done_callback(lambda _: self._tasks.pop(group_id, None))

    def stop(self) -> None:
        """Begin nothing any more, and drop what is under way."""
        self._propose = None
        for task in tuple(self._tasks.values()):
            task.cancel()

    async def _assign(self, group_id: str, propose: Propose) -> None:
        try:
            # The request that has asked is replayed by then.
            await propose(lambda _: Decision(reply=None))
            group = self._groups.by_id.get(group_id)
            if group is None or group.epoch <= group.target_epoch:
                return
            solved = _Solved(group, group.epoch, frozenset(group.members))
            as_it_is, settings = _copied(group), self._settings(group_id)
            changed = await self._threads.run(lambda: _solve(as_it_is, self._topics, settings))
            ids = list(changed)
            for start in range(0, max(len(ids), 1), TARGETS_PER_TURN):
                part = {each: changed[each] for each in ids[start : start + TARGETS_PER_TURN]}
                is_last = start + TARGETS_PER_TURN >= len(ids)
                await propose(partial(self._store, solved, part, is_last=is_last))
                await asyncio.sleep(0)
        except TailraceError as error:
            # The next heartbeat asks again.
            logger.warning("target_not_stored group=%s reason=%s", group_id, error)

    def _store(
        self,
        solved: "_Solved",
        targets: Mapping[str, Partitions],
        now_ms: int,
        *,
        is_last: bool,
    ) -> Decision[None]:
        group, group_id = solved.group, solved.group.group_id
        is_there = self._groups.by_id.get(group_id) is group
        # A static member that restarts has another id, at the same epoch.
        is_same = group.epoch == solved.epoch and group.members.keys() == solved.members
        if not (is_there and is_same):
            return Decision(reply=None)
        records = [target_record(group_id, each, target) for each, target in targets.items()]
        if is_last:
            records.append(target_epoch_record(group_id, solved.epoch, now_ms))
        return Decision(reply=None, records=tuple(records))


class _Solved(NamedTuple):
    """A group as it was when its problem was posed."""

    group: ConsumerGroup
    epoch: int
    members: frozenset[str]


def _copied(group: ConsumerGroup) -> ConsumerGroup:
    """A copy, which does not change while a thread reads it."""
    return replace(
        group,
        members=dict(group.members),
        static_members=dict(group.static_members),
        target=dict(group.target),
        regexes=dict(group.regexes),
    )


def _solve(
    group: ConsumerGroup, topics: Topics, settings: ConsumerSettings
) -> dict[str, Partitions]:
    """The targets that are to be stored: those that have changed."""
    problem = posed_problem(group, group.members, topics)
    targets = ASSIGNORS[preferred_assignor(group.members, settings)](problem)
    return {each: target for each, target in targets.items() if group.target.get(each) != target}
