"""`plan_migration`: where each replica of the old brokers goes, and what prevents it. No I/O.

    old 1 2 3, new 4 5 6       flights-0 [1 2 3] -> [4 5 6]
                               flights-1 [2 3 1] -> [5 6 4]     the same order: leaders stay spread

With as many new brokers as old ones each old one has a twin, in its rack if there is one. With
another number each replica goes to the new broker that fits best. Replicas on brokers that are in
neither list stay, and so does each replica's place in the list, of which the first is preferred.

Invariant: the plan depends on the survey alone. A partition without a replica on an old broker is
done, so that a later run continues where an earlier one has ended.
"""

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Final

from tailrace.client.migration.survey import Survey, target_of
from tailrace.client.reader import PartitionDescription
from tailrace.model import TopicPartition
from tailrace.values import dataclass

NAMED_MAX: Final = 5
"""Most partitions that a sentence names; what is wrong with the first is wrong with the others."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Order:
    """A move that somebody wants."""

    source: tuple[int, ...]
    """The brokers that are to have nothing at the end."""
    target: tuple[int, ...]
    """The brokers that get it."""
    throttle: int | None = None
    """Bytes a second that each broker sends, and that each gets; None: no limit."""
    partitions_max: int = 20
    """Most partitions that move at the same time."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A partition that changes its brokers."""

    partition: TopicPartition
    replicas: tuple[int, ...]
    """The brokers that have it now."""
    target: tuple[int, ...]
    """The brokers that are to have it; the first is the preferred leader."""
    size: int
    """Bytes of one replica."""

    @property
    def added(self) -> tuple[int, ...]:
        """The brokers that copy it."""
        return tuple(each for each in self.target if each not in self.replicas)

    @property
    def copied_bytes(self) -> int:
        """Bytes that go over the network."""
        return self.size * len(self.added)


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """The moves of an order, as the cluster is now."""

    current: tuple[Move, ...]
    """Moves that an earlier run of this order has begun."""
    moves: tuple[Move, ...]
    """Moves to begin: topics by name, Kafka's own topics last."""
    faults: tuple[str, ...]
    """Why they cannot begin."""
    notes: tuple[str, ...]
    """Facts that are worth knowing before."""

    @property
    def all(self) -> tuple[Move, ...]:
        """All moves."""
        return (*self.current, *self.moves)


def plan_migration(survey: Survey, order: Order) -> Plan:
    """The moves that an order needs."""
    current, foreign = [], []
    for partition, moved in sorted(survey.moving.items()):
        # What no `--from` loses and no `--to` gets was begun by somebody else.
        is_ours = (
            not set(target_of(moved)) & set(order.source)
            and set(moved.adding) <= set(order.target)
            and set(moved.removing) <= set(order.source)
        )
        if not is_ours:
            foreign.append(partition)
            continue
        target = target_of(moved)
        old = tuple(each for each in moved.replicas if each not in moved.adding)
        move = Move(partition=partition, replicas=old, target=target, size=survey.size(partition))
        current.append(move)
    placement = _Placement(survey, order)
    moves, unplaced, leaderless = [], [], []
    for partition, state in sorted(
        survey.partitions.items(), key=lambda each: (each[0].topic in survey.internal, each[0])
    ):
        if partition in survey.moving or not set(state.replicas) & set(order.source):
            continue
        replicas = placement.place(state)
        if replicas is None:
            unplaced.append(partition)
        elif state.leader < 0:
            leaderless.append(partition)
        else:
            move = Move(
                partition=partition,
                replicas=state.replicas,
                target=replicas,
                size=survey.size(partition),
            )
            moves.append(move)
    faults = [*_broker_faults(survey, order)]
    if foreign:
        faults.append(
            f"another reassignment is under way, of {named(foreign)}: wait for its end, or end it "
            "with kafka-reassign-partitions --cancel"
        )
    if unplaced:
        faults.append(
            f"{_brokers(order.target)} cannot take all replicas of {named(unplaced)}: a broker has "
            "one replica of a partition at most, so add brokers to --to"
        )
    if leaderless:
        faults.append(
            f"no broker leads {named(leaderless)}, so there is nothing to copy from: start the "
            "brokers of their replicas"
        )
    everything = (*current, *moves)
    faults += _room_faults(survey, everything)
    return Plan(
        current=tuple(current),
        moves=tuple(moves),
        faults=tuple(faults),
        notes=tuple(_notes(survey, order, everything)),
    )


class _Placement:
    """Chooses brokers, so that racks are kept and replicas and leaders spread."""

    def __init__(self, survey: Survey, order: Order) -> None:
        self._order = order
        self._racks = {each.id: each.rack for each in survey.brokers.values()}
        self._twins = _twins(order, self._racks)
        self._replicas: Counter[int] = Counter()
        self._leaders: Counter[int] = Counter()
        # Those that an earlier run has placed count too, or a second run would begin with the same
        # broker again.
        for partition, state in survey.partitions.items():
            moved = survey.moving.get(partition)
            self._count(state.replicas if moved is None else target_of(moved))

    def _count(self, replicas: Sequence[int]) -> None:
        self._replicas.update(replicas)
        self._leaders.update(replicas[:1])

    def place(self, state: PartitionDescription) -> tuple[int, ...] | None:
        """The brokers that are to have a partition; None if the new ones are too few."""
        found = list(state.replicas)
        for index, broker in enumerate(state.replicas):
            if broker not in self._order.source:
                continue
            others = found[:index] + found[index + 1 :]
            free = [each for each in self._order.target if each not in others]
            if not free:
                return None
            # Racks of old brokers do not count: those replicas move too.
            racks = {self._racks.get(each) for each in others if each not in self._order.source}
            fits = partial(self._fit, broker, racks=racks, is_preferred=index == 0)
            found[index] = min(free, key=fits)
        self._count(found)
        return tuple(found)

    def _fit(
        self, old: int, new: int, *, racks: Collection[str | None], is_preferred: bool
    ) -> tuple[bool, bool, bool, int, int]:
        """The order in which new brokers fit in the place of an old one."""
        rack = self._racks.get(new)
        return (
            self._twins.get(old) != new,
            rack != self._racks.get(old),
            rack in racks,
            (self._leaders if is_preferred else self._replicas)[new],
            new,
        )


def _twins(order: Order, racks: Mapping[int, str | None]) -> dict[int, int]:
    """The new broker of each old one, if their number is the same."""
    if len(order.source) != len(order.target):
        return {}
    free = sorted(order.target)
    found = {}
    # Those with a broker in their rack choose first: others would take it from them.
    for in_rack in (True, False):
        for each in sorted(order.source):
            fits = [new for new in free if not in_rack or racks.get(new) == racks.get(each)]
            if each not in found and fits:
                found[each] = fits[0]
                free.remove(fits[0])
    return found


def _broker_faults(survey: Survey, order: Order) -> Iterator[str]:
    for each in order.target:
        broker = survey.brokers.get(each)
        if broker is None:
            yield f"broker {each} of --to is not registered: start it, with the same controllers"
        elif broker.is_fenced:
            yield f"broker {each} of --to is fenced: start it, or see its log"
        elif each not in survey.room:
            yield f"broker {each} of --to does not answer: {survey.silent.get(each, 'no reason')}"
        elif survey.room[each] == 0:
            yield (
                f"broker {each} of --to has no room in any log directory that is in service and "
                "not cordoned"
            )


def _needed(survey: Survey, moves: Iterable[Move]) -> list[tuple[int, int]]:
    """Bytes that each new broker would get, by its id."""
    needed: Counter[int] = Counter()
    for move in moves:
        for each in move.added:
            # What a move under way has copied is not needed again.
            there = survey.sizes.get(each, {}).get(move.partition, 0)
            needed[each] += max(move.size - there, 0)
    return sorted(needed.items())


def _room_faults(survey: Survey, moves: Iterable[Move]) -> Iterator[str]:
    for each, size in _needed(survey, moves):
        room = survey.room_apart.get(each)
        if room is not None and size > room:
            yield (
                f"broker {each} has room for {sized(room)} and would get {sized(size)}: give it "
                "larger or more disks"
            )


def _room_notes(survey: Survey, moves: Iterable[Move]) -> Iterator[str]:
    """Brokers that have room only if their directories have volumes of their own."""
    for each, size in _needed(survey, moves):
        room, apart = survey.room.get(each), survey.room_apart.get(each)
        if room is not None and apart is not None and room < size <= apart:
            yield (
                f"broker {each} would get {sized(size)} and has room for {sized(apart)} if each of "
                f"its log directories has a disk of its own, else for {sized(room)}: they have the "
                "same sizes"
            )


def _notes(survey: Survey, order: Order, moves: Collection[Move]) -> Iterator[str]:
    racks = {each.id: each.rack for each in survey.brokers.values()}
    for each in order.source:
        # A mistyped id would not be noticed otherwise.
        if each not in survey.brokers:
            yield f"broker {each} of --from is not registered"
        elif survey.brokers[each].is_fenced and moves:
            yield f"broker {each} of --from is fenced: what only it has cannot be copied"
        if each in survey.voters:
            yield (
                f"broker {each} of --from is a controller too: do not stop it before another one "
                "is a voter in its place"
            )
    # Only where the plan is worse than what is there: a cluster may have no racks.
    close = [
        each.partition
        for each in moves
        if len({*map(racks.get, each.target)}) < len({*map(racks.get, each.replicas)})
    ]
    if close:
        yield f"the replicas of {named(close)} will share racks that they did not share before"
    lagging = [
        name
        for name in (each.partition for each in moves)
        if name in survey.partitions and name not in survey.moving
        if set(survey.partitions[name].replicas) - set(survey.partitions[name].isr)
    ]
    if lagging:
        yield f"replicas of {named(lagging)} are out of sync already"
    lacking: dict[tuple[str, ...], list[int]] = {}
    for each in order.target:
        lacking.setdefault(survey.missing_apis(each, order.source), []).append(each)
    for apis, brokers in lacking.items():
        # Most likely all new brokers are of one kind, and their list is long.
        if apis and moves:
            yield f"not served by {_brokers(brokers)}, and by those of --from: {', '.join(apis)}"
    unknown = [each for each in order.target if each in survey.room and survey.room[each] is None]
    if unknown and moves:
        yield f"{_brokers(unknown)} cannot tell how much room there is"
    yield from _room_notes(survey, moves)


def named(partitions: Collection[TopicPartition]) -> str:
    """The partitions in a sentence."""
    names = ", ".join(map(str, sorted(partitions)[:NAMED_MAX]))
    rest = len(partitions) - NAMED_MAX
    return f"{names} and {rest} more" if rest > 0 else names


def _brokers(numbers: Sequence[int]) -> str:
    listed = ", ".join(map(str, numbers))
    return f"broker {listed}" if len(numbers) == 1 else f"brokers {listed}"


def sized(size_bytes: float) -> str:
    """Bytes for people: `1.5 GB`, in powers of ten as `--throttle` takes them."""
    for exponent, unit in ((12, "TB"), (9, "GB"), (6, "MB"), (3, "kB")):
        if size_bytes >= 10**exponent:
            return f"{size_bytes / 10**exponent:.1f} {unit}"
    return f"{int(size_bytes)} B"
