"""`Migration`: moves partitions batch by batch, and ends the registrations of the old brokers.

    plan -> throttles, reassign a batch -> wait until it is moved, in sync and led -> plan again
                                                                          nothing left: retire

Each batch begins with a new plan, so that topics which were created, deleted or enlarged meanwhile
are taken as they are. `is_stopping` is looked at between polls: a batch that is under way is
finished first. A caller that cannot wait drops the steps: the controllers finish the batch alone,
and the next run finds it.

What lasts (a broker is away, no controller answers) is reported once, and waited for. After
`STALL_LIMIT_S` in which nothing has moved it is an error.
"""

from collections import deque
from collections.abc import Callable, Sequence
from contextlib import suppress
from enum import Enum
from typing import Concatenate, Final, ParamSpec, TypeVar

from tailrace.client.admin.cluster import BrokerNode, unregister_broker
from tailrace.client.admin.replicas import (
    alter_partition_reassignments,
    describe_log_dirs,
    elect_leaders,
    list_partition_reassignments,
)
from tailrace.client.admin.topics import describe_topics, list_topics
from tailrace.client.calls import Call
from tailrace.client.drive.steps import CallUser, Steps
from tailrace.client.errors import (
    RemoteFatalError,
    RemoteRetriableError,
    UnsupportedBrokerError,
)
from tailrace.client.migration.plan import Move, Order, Plan, named, plan_migration, sized
from tailrace.client.migration.survey import (
    Survey,
    do,
    known_brokers,
    replica_sizes,
    survey_cluster,
)
from tailrace.client.migration.throttles import clear_throttles, set_throttles, unthrottle_topics
from tailrace.client.reader import PartitionDescription
from tailrace.errors import FatalError, RetriableError, TailraceError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.values import dataclass

P = ParamSpec("P")
T = TypeVar("T")

POLL_S: Final = 1.0
"""Between two looks; a poll asks the controller and the new brokers about one batch."""
NOTICE_S: Final = 30.0
"""Time without progress after which it is worth a sentence: a killed broker's session has ended."""
STALL_LIMIT_S: Final = 600.0
"""Time without progress after which somebody has to act."""
RATE_WINDOW_S: Final = 60.0
"""Time over which the rate is taken; a throttle is uneven over some seconds."""
CHECK_S: Final = 30.0
"""Between two looks whether an old broker that is to stop has got partitions again."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchBegun:
    """Partitions move from now on."""

    moves: tuple[Move, ...]
    is_continued: bool
    """Whether an earlier run has begun it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Progress:
    """The state of all batches of a run."""

    partitions: int
    """The number that has moved, in this run."""
    partitions_total: int
    """The number of the whole run."""
    bytes: int
    """Bytes that were copied to the new brokers."""
    bytes_total: int
    rate: float
    """Bytes a second, in the last minute."""

    @property
    def left_s(self) -> float | None:
        """Seconds that the rest takes at this rate; None if nobody can say."""
        if self.bytes >= self.bytes_total:
            return 0.0
        return (self.bytes_total - self.bytes) / self.rate if self.rate > 0 else None


@dataclass(frozen=True, slots=True, kw_only=True)
class BatchMoved:
    """The partitions of a batch are on the new brokers, in sync, and led by the preferred ones."""

    moves: tuple[Move, ...]
    seconds: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Waiting:
    """Nothing moves at the moment."""

    reason: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """The run ends when the batch has moved."""

    partitions: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Emptied:
    """These old brokers have no partition any more, and can be stopped."""

    brokers: tuple[BrokerNode, ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Unregistered:
    """The registration of an old broker, which had stopped, was ended."""

    broker: int


Event = BatchBegun | Progress | BatchMoved | Waiting | Stopping | Emptied | Unregistered


class Ending(Enum):
    """Ends of a run."""

    DONE = "done"
    STOPPED = "stopped"


class StalledError(FatalError):
    """Nothing has moved for `STALL_LIMIT_S`; the message says why, and what to do."""


class RevertedError(FatalError):
    """Somebody else has ended the move of a partition."""


class _StopError(Exception):
    """The run was asked to stop while no batch is under way."""


class Migration:
    """One run."""

    def __init__(
        self,
        call: Call,
        order: Order,
        *,
        report: Callable[[Event], None],
        is_stopping: Callable[[], bool],
    ) -> None:
        self._call = call
        self._order = order
        self._report = report
        self._is_stopping = is_stopping
        self._must_finish = True
        """Whether a request to stop waits for what is under way, or may be: an earlier run's."""
        self._throttled: set[str] = set()
        """Topics that this run has throttled."""
        self._stalled_at: float | None = None
        """Since when nothing moves."""
        self._reason = ""
        """The reason that was reported for that."""
        self._done = 0
        self._done_bytes = 0
        self._samples: deque[tuple[float, int]] = deque()
        """Times, and the bytes that were copied until then."""

    def run(self, *, retires: bool) -> Steps[Ending]:
        """Move all partitions; with `retires`, end the registrations of the old brokers too.

        Raises:
            StalledError, RevertedError: somebody has to act.
            TailraceError: a broker refuses.
        """
        try:
            if self._order.throttle is None:
                # A run that was interrupted may have had one, which is not wanted any more.
                yield from self._clear()
            while True:
                yield from self._move_all()
                # A topic that was created meanwhile may have replicas on the old brokers.
                if not retires or (yield from self._retire()):
                    return Ending.DONE
        except _StopError:
            self._must_finish = True
            yield from self._clear()
            return Ending.STOPPED
        except TailraceError:
            # A batch that is under way keeps its throttle, or it would take the whole network.
            if not self._must_finish:
                self._must_finish = True
                with suppress(TailraceError):
                    yield from self._clear()
            raise

    # -- batches ------------------------------------------------------------------------------

    def _move_all(self) -> Steps[None]:
        while True:
            survey, plan = yield from self._planned()
            if not plan.current:
                self._check_stop()
            batch = plan.current or plan.moves[: self._order.partitions_max]
            if not batch:
                break
            self._must_finish = True
            yield from self._move(batch, survey, plan)
            self._must_finish = False
        yield from self._clear()

    def _planned(self) -> Steps[tuple[Survey, Plan]]:
        while True:
            survey = yield from self._patiently(
                survey_cluster, source=self._order.source, target=self._order.target
            )
            plan = plan_migration(survey, self._order)
            # Those of an interrupted run need their throttle while a new broker is waited for, too.
            self._must_finish = bool(plan.current)
            if not plan.faults:
                return survey, plan
            yield from self._wait("; ".join(plan.faults))

    def _move(self, batch: tuple[Move, ...], survey: Survey, plan: Plan) -> Steps[None]:
        began = self._call.clock()
        topics = {each.partition.topic for each in batch}
        if self._order.throttle is not None:
            alive = [each.id for each in survey.brokers.values() if not each.is_fenced]
            try:
                # Before the first byte moves.
                yield from do(
                    self._call, set_throttles, batch, rate=self._order.throttle, brokers=alive
                )
            except RetriableError as error:
                # A broker has died since the survey; the next plan knows it.
                yield from self._wait(str(error))
                return
            # After the new ones: while a topic is throttled, a later run removes the rates too.
            yield from self._patiently(unthrottle_topics, sorted(self._throttled - topics))
            self._throttled = topics
        if batch is not plan.current:
            batch = yield from self._begin(batch)
            if not batch:
                return
        yield from self._tell(BatchBegun(moves=batch, is_continued=batch is plan.current))
        yield from self._watch(batch, plan)
        yield from self._settle(batch)
        self._done += len(batch)
        self._done_bytes += sum(each.copied_bytes for each in batch)
        yield from self._tell(BatchMoved(moves=batch, seconds=self._call.clock() - began))

    def _begin(self, batch: Sequence[Move]) -> Steps[tuple[Move, ...]]:
        """Have the controllers begin a batch; returns what they have taken.

        What they refuse is planned again.
        """
        targets = {each.partition: each.target for each in batch}
        outcomes = yield from self._patiently(
            alter_partition_reassignments, targets, allow_replication_factor_change=False
        )
        if any(isinstance(each, UnsupportedBrokerError) for each in outcomes.errors.values()):
            # Before Kafka 4.1 nobody can ask for that (KIP-860).
            outcomes = yield from self._patiently(alter_partition_reassignments, targets)
        taken = tuple(each for each in batch if each.partition in outcomes.succeeded)
        refused = [each for each in outcomes.errors.values() if not _is_gone(each)]
        if refused and not taken:
            # A new broker has been fenced just now, no controller is active, or the plan was made
            # of metadata that was older than the controllers'.
            if not all(isinstance(each, RetriableError) or _is_bad(each) for each in refused):
                raise refused[0]
            yield from self._wait(str(refused[0]))
        return taken

    def _watch(self, batch: Sequence[Move], plan: Plan) -> Steps[None]:
        """Return when nothing of a batch moves any more."""
        began = changed_at = self._call.clock()
        last, is_told = (-1, -1), False
        while True:
            moving = yield from self._patiently(
                list_partition_reassignments, [each.partition for each in batch]
            )
            left = [each for each in batch if each.partition in moving]
            sizes = yield from self._copied(left)
            copied = sum(each.copied_bytes for each in batch if each.partition not in moving)
            # More than was there at first comes from producers.
            copied += sum(min(size, move.size) for move in left for size in sizes[move.partition])
            yield from self._show(plan, done=len(batch) - len(left), size=copied)
            if not left:
                self._advanced()
                return
            if self._is_stopping() and not is_told:
                is_told = True
                yield from self._tell(Stopping(partitions=len(left)))
            now = self._call.clock()
            mark = len(left), sum(map(sum, sizes.values()))
            if mark != last:
                last, changed_at = mark, now
                self._stalled_at = None
            if now - changed_at >= NOTICE_S:
                yield from self._wait((yield from self._why(left)))
                continue
            late = [
                each.partition
                for each in left
                if sizes[each.partition] and min(sizes[each.partition]) > each.size
            ]
            if late and self._order.throttle is not None and now - began >= NOTICE_S:
                # They have more than there was at the beginning, and still are not in sync.
                yield from self._note(
                    f"{named(late)} cannot catch up with what producers send at "
                    f"{sized(self._order.throttle)}/s: interrupt twice, and run again with a "
                    "larger --throttle"
                )
            yield from self._call.pause(POLL_S)

    def _copied(self, moves: Sequence[Move]) -> Steps[dict[TopicPartition, list[int]]]:
        """Bytes of these partitions on each of the brokers that copy them."""
        brokers = {each for move in moves for each in move.added}
        known = (yield from self._patiently(known_brokers)) if brokers else {}
        alive = [each for each in brokers if each in known and not known[each].is_fenced]
        found = yield from do(
            self._call, describe_log_dirs, alive, partitions=[each.partition for each in moves]
        )
        # One that does not answer is a reason to wait, and not to end.
        sizes = {number: replica_sizes(each) for number, each in found.succeeded.items()}
        return {
            move.partition: [sizes.get(each, {}).get(move.partition, 0) for each in move.added]
            for move in moves
        }

    def _why(self, moves: Sequence[Move]) -> Steps[str]:
        """Why nothing is copied, and what to do."""
        brokers = yield from self._patiently(known_brokers)
        wanted = sorted({each for move in moves for each in move.target})
        away = [each for each in wanted if each not in brokers or brokers[each].is_fenced]
        if away:
            return (
                f"broker {', '.join(map(str, away))} is away, and {len(moves)} partitions wait for "
                "it: start it, or put them back with --cancel"
            )
        states = yield from self._states(moves)
        leaderless = [name for name, each in states.items() if each.leader < 0]
        if leaderless:
            return f"no broker leads {named(leaderless)}: start the brokers of their replicas"
        late = sorted({
            each
            for move in moves
            for each in move.target
            if move.partition in states and each not in states[move.partition].isr
        })  # fmt: skip
        names = named([each.partition for each in moves])
        if self._order.throttle is not None:
            # What replicas in sync get counts for the rate of a leader too.
            return (
                f"nothing of {names} is copied at {sized(self._order.throttle)}/s, most likely "
                "because producers send more: interrupt twice, and run again with a larger "
                "--throttle"
            )
        return (
            f"nothing of {names} is copied: see the log of broker "
            f"{', '.join(map(str, late)) or 'its leader'}"
        )

    def _settle(self, batch: Sequence[Move]) -> Steps[None]:
        """Return when moved partitions are in sync, and led by their preferred replicas."""
        while True:
            states = yield from self._states(batch)
            left = [
                each
                for each in batch
                if each.partition in states and not _is_settled(each, states[each.partition])
            ]
            if not left:
                self._advanced()
                return
            away = [
                each.partition
                for each in left
                if states[each.partition].leader != each.target[0]
                and each.target[0] in states[each.partition].isr
            ]
            # Most are led already: the controllers elect the first in the list that is in sync when
            # the old leader goes. Who leads by now is shown by the next look.
            yield from self._patiently(elect_leaders, away)
            reverted = [each for each in left if _is_reverted(each, states[each.partition])]
            if reverted and self._is_stalled(10 * POLL_S):
                # Longer than a broker takes to hear of it.
                raise RevertedError(
                    f"{named([each.partition for each in reverted])} do not move, and are not "
                    "where they were to go: somebody else has ended that, or has created the topic "
                    "again. Run the same command to begin with them again"
                )
            late = sorted({
                each
                for move in left
                for each in move.target
                if each not in states[move.partition].isr
            })  # fmt: skip
            names = named([each.partition for each in left])
            yield from self._wait(
                f"broker {', '.join(map(str, late))} is not in sync in {names}: start it, or see "
                "its log"
                if late
                else f"{names} are not led by their preferred replicas: see the log of the "
                "controllers",
                after_s=NOTICE_S,
            )

    def _states(self, moves: Sequence[Move]) -> Steps[dict[TopicPartition, PartitionDescription]]:
        """The partitions of these moves that exist."""
        topics = sorted({each.partition.topic for each in moves})
        found = yield from self._patiently(describe_topics, topics)
        for error in found.errors.values():
            if not _is_gone(error):
                raise error
        wanted = {each.partition for each in moves}
        return {
            name: each
            for topic in found.succeeded.values()
            for each in topic.partitions
            if (name := TopicPartition(topic.name, each.partition)) in wanted
        }

    def _clear(self) -> Steps[None]:
        """Remove the throttles of this run, and of one that was interrupted."""
        topics = yield from self._patiently(list_topics)
        brokers = yield from self._patiently(known_brokers)
        yield from self._patiently(
            clear_throttles,
            [each.name for each in topics],
            brokers=[each.id for each in brokers.values() if not each.is_fenced],
            moved={*self._order.source, *self._order.target},
        )
        self._throttled = set()

    # -- the old brokers ----------------------------------------------------------------------

    def _retire(self) -> Steps[bool]:
        """End the registrations of old brokers that have stopped.

        Returns when all are gone, or False when one has partitions again.
        """
        seen: set[int] = set()
        shown: tuple[BrokerNode, ...] = ()
        checked_at = self._call.clock()
        while True:
            known = yield from self._patiently(known_brokers)
            old = {each: known[each] for each in self._order.source if each in known}
            running = tuple(each for each in old.values() if not each.is_fenced)
            seen |= old.keys()
            # Before Kafka 4.0 a broker that is gone is one that is not named any more.
            stopped = sorted(seen - {each.id for each in running})
            if stopped or self._call.clock() - checked_at >= CHECK_S:
                checked_at = self._call.clock()
                if (yield from self._has_partitions()):
                    return False
            for each in stopped:
                yield from self._unregister(each)
                seen.discard(each)
            if not running and not stopped:
                return True
            if running and running != shown:
                shown = running
                yield from self._tell(Emptied(brokers=running))
            self._check_stop()
            yield from self._call.pause(POLL_S)

    def _has_partitions(self) -> Steps[bool]:
        topics = yield from self._patiently(list_topics)
        return any(
            set(each.replicas) & set(self._order.source)
            for topic in topics
            for each in topic.partitions
        )

    def _unregister(self, number: int) -> Steps[None]:
        try:
            yield from self._patiently(unregister_broker, number)
        except RemoteFatalError as error:
            # An earlier answer was lost.
            if error.code != ErrorCode.BROKER_ID_NOT_REGISTERED:
                raise
        yield from self._tell(Unregistered(broker=number))

    # -- waits --------------------------------------------------------------------------------

    def _patiently(
        self,
        operation: Callable[Concatenate[Call, P], Steps[T]],
        *arguments: P.args,
        **options: P.kwargs,
    ) -> Steps[T]:
        """The result of an operation, which is repeated while its error may pass."""
        while True:
            try:
                return (yield from do(self._call, operation, *arguments, **options))
            except RetriableError as error:
                yield from self._wait(str(error))

    def _wait(self, reason: str, *, after_s: float = 0.0) -> Steps[None]:
        """Wait for one poll; the reason is reported if the wait is longer than `after_s`."""
        if not self._must_finish:
            self._check_stop()
        if self._is_stalled(STALL_LIMIT_S):
            raise StalledError(
                f"nothing has moved for {STALL_LIMIT_S / 60:.0f} minutes: {reason}. Then run the "
                "same command again; partitions that move now continue meanwhile"
            )
        if self._is_stalled(after_s):
            yield from self._note(reason)
        yield from self._call.pause(POLL_S)

    def _is_stalled(self, seconds: float) -> bool:
        """Whether nothing has moved for so long; the first question begins the time."""
        if self._stalled_at is None:
            self._stalled_at = self._call.clock()
        return self._call.clock() - self._stalled_at >= seconds

    def _note(self, reason: str) -> Steps[None]:
        if reason != self._reason:
            self._reason = reason
            yield from self._tell(Waiting(reason=reason))

    def _advanced(self) -> None:
        self._stalled_at = None
        self._reason = ""

    def _check_stop(self) -> None:
        if self._is_stopping():
            raise _StopError

    def _show(self, plan: Plan, *, done: int, size: int) -> Steps[None]:
        now, copied = self._call.clock(), self._done_bytes + size
        self._samples.append((now, copied))
        while now - self._samples[0][0] > RATE_WINDOW_S:
            self._samples.popleft()
        began, before = self._samples[0]
        yield from self._tell(
            Progress(
                partitions=self._done + done,
                partitions_total=self._done + len(plan.all),
                bytes=copied,
                bytes_total=self._done_bytes + sum(each.copied_bytes for each in plan.all),
                rate=(copied - before) / (now - began) if now > began else 0.0,
            )
        )

    def _tell(self, event: Event) -> Steps[None]:
        yield CallUser(self._report, (event,))


def migrate(
    call: Call,
    order: Order,
    *,
    report: Callable[[Event], None],
    is_stopping: Callable[[], bool] = lambda: False,
    retires: bool = True,
) -> Steps[Ending]:
    """Move everything from the old brokers to the new ones; see `Migration.run`."""
    migration = Migration(call, order, report=report, is_stopping=is_stopping)
    return (yield from migration.run(retires=retires))


def cancel_migration(call: Call, order: Order) -> Steps[tuple[Move, ...]]:
    """Put back the partitions that are under way by this order, and remove the throttles.

    Returns those partitions. Others that have moved stay where they are.

    Raises:
        TailraceError: a broker refuses, or the old replicas are not in sync any more.
    """
    survey = yield from survey_cluster(call, source=order.source, target=order.target)
    current = plan_migration(survey, order).current
    outcomes = yield from do(
        call, alter_partition_reassignments, {each.partition: None for each in current}
    )
    for error in outcomes.errors.values():
        # It has ended, or was deleted, in this moment.
        if not _is_gone(error) and not _is_over(error):
            raise error
    yield from do(
        call,
        clear_throttles,
        {each.topic for each in survey.partitions},
        brokers=[each.id for each in survey.brokers.values() if not each.is_fenced],
        moved={*order.source, *order.target},
    )
    return current


def _is_gone(error: TailraceError) -> bool:
    """Whether a topic or a partition does not exist any more."""
    return (
        isinstance(error, RemoteRetriableError)
        and error.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )


def _is_over(error: TailraceError) -> bool:
    codes = (RemoteRetriableError, RemoteFatalError)
    return isinstance(error, codes) and error.code == ErrorCode.NO_REASSIGNMENT_IN_PROGRESS


def _is_bad(error: TailraceError) -> bool:
    return isinstance(error, RemoteFatalError) and error.code in (
        ErrorCode.INVALID_REPLICA_ASSIGNMENT,
        ErrorCode.INVALID_REPLICATION_FACTOR,
    )


def _is_settled(move: Move, state: PartitionDescription) -> bool:
    wanted = set(move.target)
    return (
        set(state.replicas) == wanted
        and set(state.isr) == wanted
        and state.leader == state.replicas[0]
    )


def _is_reverted(move: Move, state: PartitionDescription) -> bool:
    return set(state.replicas) != set(move.target)
