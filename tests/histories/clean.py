"""Random histories of a broker that does nothing wrong, and of clients that come and go.

    play(Random(7))     operations of producers, transactions, transformers and groups, to the end

Producers have several sends on their way, of which some are acknowledged, some are written and not
acknowledged, and some are neither. Transactions are committed, aborted and left behind. Consumers
of groups poll, commit, lose their partitions, and begin again where their group has committed.
"""

import math
from collections import deque
from dataclasses import dataclass, field, replace
from random import Random
from typing import Final

from tests.histories.history import (
    Action,
    Assign,
    Commit,
    EndTransaction,
    Operation,
    Outcome,
    Poll,
    ReadToEnd,
    Record,
    See,
    Send,
    Source,
)

PARTITIONS: Final = ("events-0", "events-1")
RESULTS: Final = "results-0"
_GROUPS: Final = {"plain": False, "committed": True}
"""Isolation of the consumers of each group: whether they read committed records only."""
_STEPS: Final = 300


@dataclass(slots=True)
class _Entry:
    """An offset of a log: a record, or a marker, which no reader returns."""

    value: str | None
    transaction: str | None = None
    is_open: bool = False
    is_aborted: bool = False


@dataclass(slots=True)
class _Member:
    """A consumer and where it stands; each of its lives is a process of its own."""

    process: str
    group: str
    is_committed: bool
    positions: dict[str, int] = field(default_factory=dict)


@dataclass(slots=True)
class _World:
    """Topics, groups and clients, with the history that is made."""

    chance: Random
    logs: dict[str, list[_Entry]]
    committed: dict[tuple[str, str], int] = field(default_factory=dict)
    history: list[Operation] = field(default_factory=list)
    pending: dict[str, deque[int]] = field(default_factory=dict)
    """Sends of each producer that are on their way, as places in the history."""
    now_s: float = 0.0
    counts: dict[str, int] = field(default_factory=dict)

    def tick(self) -> float:
        self.now_s += 1
        return self.now_s

    def number(self, name: str) -> int:
        self.counts[name] = self.counts.get(name, 0) + 1
        return self.counts[name]

    def begin(self, process: str, action: Action) -> int:
        """Begin an operation; returns its place in the history."""
        self.history.append(
            Operation(
                process=process,
                number=self.number(process),
                action=action,
                outcome=Outcome.INFO,
                start_s=self.tick(),
            )
        )
        return len(self.history) - 1

    def end(self, place: int, outcome: Outcome, action: Action | None = None) -> None:
        """End an operation, with more of its action if that is known now."""
        begun = self.history[place]
        end_s = math.inf if outcome is Outcome.INFO else self.tick()
        self.history[place] = replace(
            begun, outcome=outcome, end_s=end_s, action=action or begun.action
        )

    def note(self, process: str, action: Action) -> None:
        """Begin and end an operation."""
        self.end(self.begin(process, action), Outcome.OK)

    def append(self, send: Send) -> int:
        """Write a record; returns its offset."""
        log = self.logs[send.partition]
        log.append(_Entry(send.value, send.transaction, is_open=send.transaction is not None))
        return len(log) - 1

    # Producers without transactions

    def send(self, process: str) -> None:
        value = f"{process}:{self.number('value')}"
        send = Send(partition=self.chance.choice(PARTITIONS), value=value)
        self.pending.setdefault(process, deque()).append(self.begin(process, send))

    def settle(self, process: str) -> None:
        """Decide the oldest send of a producer."""
        if not self.pending.get(process):
            return
        place = self.pending[process].popleft()
        send = self.history[place].action
        assert isinstance(send, Send)
        match self.chance.choice(["acknowledged"] * 6 + ["written", "not written", "refused"]):
            case "acknowledged":
                offset = self.append(send)
                self.end(place, Outcome.OK, replace(send, offset=offset))
            case "written":
                self.append(send)
            case "refused":
                self.end(place, Outcome.FAIL)
            case _:
                pass

    # Transactions

    def transact(self, process: str, *, source: _Member | None = None) -> None:
        """Begin, send and end a transaction, while consumers go on; of a transformer, with it."""
        name = f"{process}#{self.number(process)}"
        sends = self._sends(process, name, source)
        for send in sends:
            place = self.begin(process, send)
            offset = self.append(send)
            self.end(place, Outcome.OK, replace(send, offset=offset))
            self.consume()
        commit = None
        if source is not None:
            commit = Commit(group=source.group, offsets=dict(source.positions), transaction=name)
            self.note(process, commit)
        fate = self.chance.choice(["commit"] * 4 + ["abort", "unknown commit", "unknown", "left"])
        place = -1
        if fate != "left":
            is_commit = fate != "abort"
            place = self.begin(process, EndTransaction(transaction=name, is_commit=is_commit))
            self.consume()
        is_committed = fate in {"commit", "unknown commit"}
        self._mark(name, is_committed=is_committed)
        if is_committed and commit is not None:
            for partition, offset in commit.offsets.items():
                self.committed[commit.group, partition] = offset
        if fate in {"commit", "abort"}:
            self.end(place, Outcome.OK)
        elif source is not None:
            # It died: the next life begins at what is committed.
            source.process = f"{source.group}.{self.number(source.group)}"
            source.positions = {}
        if source is not None and fate != "commit":
            self.assign(source)

    def _sends(self, process: str, name: str, source: _Member | None) -> list[Send]:
        if source is None:
            return [
                Send(
                    partition=self.chance.choice(PARTITIONS),
                    value=f"{process}:{self.number('value')}",
                    transaction=name,
                )
                for _ in range(self.chance.randrange(1, 4))
            ]
        return [
            Send(
                partition=RESULTS,
                value=f"{process}:{self.number('value')}",
                transaction=name,
                source=Source(source.group, record.partition, record.offset),
            )
            for record in self.poll(source)
        ]

    def _mark(self, name: str, *, is_committed: bool) -> None:
        """Write the markers of a transaction."""
        for log in self.logs.values():
            entries = [each for each in log if each.transaction == name]
            for each in entries:
                each.is_open, each.is_aborted = False, not is_committed
            if entries:
                log.append(_Entry(None))

    # Consumers

    def poll(self, member: _Member) -> list[Record]:
        """Poll once; returns the records."""
        records = []
        for partition in sorted(member.positions):
            log = self.logs[partition]
            left = self.chance.randrange(5)
            while left and member.positions[partition] < len(log):
                entry = log[member.positions[partition]]
                if entry.is_open and member.is_committed:
                    break
                is_shown = not (entry.is_aborted and member.is_committed)
                if entry.value is not None and is_shown:
                    records.append(Record(partition, member.positions[partition], entry.value))
                    left -= 1
                member.positions[partition] += 1
        if records:
            poll = Poll(records=tuple(records), is_committed=member.is_committed)
            self.note(member.process, poll)
        return records

    def commit(self, member: _Member) -> None:
        """Commit the positions of a consumer, with an outcome or without."""
        if member.positions:
            commit = Commit(group=member.group, offsets=dict(member.positions))
            place = self.begin(member.process, commit)
            fate = self.chance.choice(["ok"] * 4 + ["written", "not written", "refused"])
            if fate in {"ok", "written"}:
                for partition, offset in member.positions.items():
                    self.committed[member.group, partition] = offset
            if fate in {"ok", "refused"}:
                self.end(place, Outcome.OK if fate == "ok" else Outcome.FAIL)

    def assign(self, member: _Member, partitions: tuple[str, ...] = PARTITIONS) -> None:
        """Give a consumer these partitions, from where its group has committed."""
        removed = tuple(member.positions)
        self.note(member.process, Assign(added=partitions, removed=removed, group=member.group))
        member.positions = {
            each: self.committed.get((member.group, each), 0) for each in partitions
        }

    def rebalance(self, group: str) -> None:
        """Distribute the partitions of a group anew; some of its members are other processes."""
        members = [each for each in self.members if each.group == group]
        targets: dict[int, list[str]] = {index: [] for index in range(len(members))}
        for partition in PARTITIONS:
            targets[self.chance.randrange(len(members))].append(partition)
        for index, member in enumerate(members):
            if self.chance.random() < 0.3:
                member.process = f"{group}.{self.number(group)}"
                member.positions = {}
            self.assign(member, tuple(targets[index]))

    members: list[_Member] = field(default_factory=list)

    def consume(self) -> None:
        """Let some consumer do something."""
        member = self.chance.choice(self.members)
        match self.chance.randrange(12):
            case 0:
                self.rebalance(member.group)
            case 1 | 2 | 3:
                self.commit(member)
            case _:
                self.poll(member)

    def see(self) -> None:
        """Ask for a high watermark."""
        partition = self.chance.choice(PARTITIONS)
        place = self.begin("watcher", See(partition=partition))
        if self.chance.random() < 0.9:
            watermark = len(self.logs[partition])
            self.end(place, Outcome.OK, See(partition=partition, watermark=watermark))

    def read_to_end(self, *, is_committed: bool) -> None:
        """Read all of it by a process that does nothing else."""
        name = f"end.{is_committed}"
        partitions = (*PARTITIONS, RESULTS)
        reader = _Member(process=name, group="", is_committed=is_committed)
        self.note(name, Assign(added=partitions))
        reader.positions = dict.fromkeys(partitions, 0)
        place = self.begin(name, ReadToEnd(partitions=partitions, is_committed=is_committed))
        while any(reader.positions[each] < len(self.logs[each]) for each in partitions):
            self.poll(reader)
        self.end(place, Outcome.OK)


def play(chance: Random) -> list[Operation]:
    """A history without anomalies, of some hundred operations."""
    world = _World(chance, {name: [] for name in (*PARTITIONS, RESULTS)})
    for group, is_committed in _GROUPS.items():
        for index in range(2):
            world.members.append(_Member(f"{group}-{index}", group, is_committed))
        world.rebalance(group)
    transformer = _Member("transformer", "transformer", is_committed=True)
    world.assign(transformer)
    for _ in range(_STEPS):
        match chance.randrange(10):
            case 0 | 1:
                world.send(chance.choice(("a", "b")))
            case 2 | 3:
                world.settle(chance.choice(("a", "b")))
            case 4:
                world.transact(chance.choice(("t", "u")))
            case 5:
                world.transact(transformer.process, source=transformer)
            case 6:
                world.see()
            case _:
                world.consume()
    for is_committed in (False, True):
        world.read_to_end(is_committed=is_committed)
    return world.history
