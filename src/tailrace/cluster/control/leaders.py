"""Leaders and in-sync replicas: what follows when brokers come and go, and elections.

    a broker is fenced          it leaves each ISR; others lead
    it starts to shut down      likewise, and it stays registered until it may stop
    it did not stop cleanly     it also leaves each set of eligible leaders (KIP-966)
    it is unfenced              partitions without a leader elect
    a directory fails           it leaves the ISRs of the partitions in it

All are changes of single partitions by `cluster.partition_change`.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from operator import attrgetter, itemgetter
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from tailrace.cluster.control.state import ControlState, Decision, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.features import partition_version
from tailrace.cluster.metadata.image import TopicState
from tailrace.cluster.partition_change import NO_LEADER, Election, Wanted
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import PartitionRecord

NOBODY: Final = -1
ELECTIONS_MAX: Final = 1000
"""Most elections of one look at all partitions; the rest waits for the next, so that the log and
the brokers are not flooded after many brokers have come back."""

PREFERRED, UNCLEAN = 0, 1
"""Kinds of elections in a request (KIP-460)."""


def elections(state: ControlState, name: str) -> Election:
    """Which replicas of a topic may be elected when no one else can lead."""
    unclean = state.topic_config(name).unclean_leader_election_enable
    return Election.UNCLEAN if unclean else Election.ONLINE


def leader_changes(
    state: ControlState,
    partitions: Iterable[tuple[TopicState, "PartitionRecord"]],
    *,
    removed: int = NOBODY,
    added: int = NOBODY,
    unclean: int = NOBODY,
) -> Iterator[RecordToWrite]:
    """The changes of partitions when one broker goes or comes.

    `removed` leaves the ISRs and leads no more; `unclean` did so without a clean stop, and may lack
    records; `added` may lead, though the image still has it as fenced.
    """
    from tailrace.protocol.metadata_records import PartitionChangeRecord

    def is_alive(broker_id: int) -> bool:
        # Not only out of the ISR: an unclean election chooses from outside of it.
        if broker_id in (removed, unclean):
            return False
        return broker_id == added or state.is_active(broker_id)

    lost = frozenset() if unclean == NOBODY else frozenset({unclean})
    version = partition_version(state.image.metadata_version)
    decided: dict[tuple[Election, int], dict[object, Mapping[str, Any]]] = defaultdict(dict)
    for topic, named in groupby(partitions, key=itemgetter(0)):
        insync_min, election = state.insync_min(topic), elections(state, topic.name)
        known = decided[election, insync_min]
        for _, partition in named:
            # Of the ten thousand partitions of a broker most are like another one, and what follows
            # for one follows for the other.
            likeness = _likeness(partition)
            changes = known.get(likeness)
            if changes is None:
                isr = tuple(each for each in partition.isr if each not in (removed, unclean))
                changes = known[likeness] = state.changed_fields(
                    partition,
                    Wanted(isr=isr, election=election, unclean=lost),
                    insync_min=insync_min,
                    is_alive=is_alive,
                )
            if changes:
                record = PartitionChangeRecord(
                    partition_id=partition.partition_id, topic_id=partition.topic_id, **changes
                )
                yield RecordToWrite(record, version)


_likeness: Final = attrgetter(
    "replicas", "isr", "leader", "directories", "eligible_leader_replicas", "last_known_elr",
    "adding_replicas", "removing_replicas", "leader_recovery_state",
)  # fmt: skip
"""All fields of a partition but its names and epochs: those on which changes depend."""


def departure(state: ControlState, broker_id: int) -> Iterator[RecordToWrite]:
    """A broker serves no more: it leaves each ISR, and others lead."""
    in_sync = state.partitions(lambda each: broker_id in each.isr)
    return leader_changes(state, in_sync, removed=broker_id)


def unclean_departure(state: ControlState, broker_id: int) -> Iterator[RecordToWrite]:
    """A broker has stopped without a clean shutdown, and may have lost what it had acknowledged."""
    # A broker is in the ISR or among the eligible ones of a partition, not in both.
    had_all = state.partitions(
        lambda each: broker_id in each.isr or broker_id in (each.eligible_leader_replicas or ())
    )
    return leader_changes(state, had_all, unclean=broker_id)


def unregistered_departure(state: ControlState, broker_id: int) -> Iterator[RecordToWrite]:
    """A broker is to be forgotten."""
    # Eligible ones are looked at too, since one that is gone might be the last; as in Kafka they
    # stay eligible, and lead if the broker ever registers again.
    concerned = state.partitions(
        lambda each: broker_id in each.isr or broker_id in (each.eligible_leader_replicas or ())
    )
    return leader_changes(state, concerned, removed=broker_id)


def arrival(state: ControlState, broker_id: int) -> Iterator[RecordToWrite]:
    """A broker serves from now on: partitions without a leader elect."""
    leaderless = state.partitions(lambda each: each.leader == NO_LEADER)
    return leader_changes(state, leaderless, added=broker_id)


def directory_failure(
    state: ControlState, broker_id: int, directory: UUID
) -> Iterator[RecordToWrite]:
    """A log directory of a broker has failed: it leaves the ISRs of what was in it."""
    lost = state.partitions(lambda each: directory in each.directories)
    return leader_changes(state, lost, removed=broker_id)


def leads_any(state: ControlState, broker_id: int) -> bool:
    """Whether a broker leads a partition."""
    return any(state.partitions(lambda each: each.leader == broker_id))


# -- elections that are asked for, or due ---------------------------------------------------------


def elect_leaders(state: ControlState, request: ElectLeadersRequest) -> Decision:
    """Elect the preferred replica, or one that may lack records, as an operator wants (KIP-460).

    Raises:
        RefusedError: INVALID_REQUEST: there is no such kind of election.
    """
    if request.election_type not in (PREFERRED, UNCLEAN):
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, f"Unknown election type {request.election_type}"
        )
    asked: Iterable[tuple[str, Sequence[int]]]
    if request.topic_partitions is None:
        asked = [(topic.name, tuple(topic.partitions)) for topic in state.image.topics.values()]
    else:
        asked = [(each.topic, each.partitions) for each in request.topic_partitions]
    records: list[RecordToWrite] = []
    results = []
    for name, numbers in asked:
        found = []
        for number in numbers:
            code, message = ErrorCode.NONE, None
            try:
                records.append(_election(state, name, number, kind=request.election_type))
            except RefusedError as error:
                code, message = error.code, error.message
            # Of all partitions only those are named that something was done for.
            if request.topic_partitions is None and code is ErrorCode.ELECTION_NOT_NEEDED:
                continue
            found.append(
                PartitionResult(partition_id=number, error_code=code, error_message=message)
            )
        results.append(ReplicaElectionResult(topic=name, partition_result=tuple(found)))
    return Decision(
        records,
        ElectLeadersResponse(
            throttle_time_ms=0, error_code=ErrorCode.NONE, replica_election_results=tuple(results)
        ),
    )


def _election(state: ControlState, name: str, number: int, *, kind: int) -> RecordToWrite:
    topic = state.image.topic(name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {name}")
    partition = topic.partitions.get(number)
    if partition is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {name}-{number}"
        )
    if kind == PREFERRED:
        is_needed, election = not _has_preferred(partition), Election.PREFERRED
        missing = ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE
    else:
        is_needed, election = partition.leader == NO_LEADER, Election.UNCLEAN
        missing = ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE
    if not is_needed:
        raise RefusedError(ErrorCode.ELECTION_NOT_NEEDED)
    record = state.change(topic, partition, Wanted(election=election))
    if record is None:
        raise RefusedError(missing)
    return record


def balance_leaders(state: ControlState) -> Sequence[RecordToWrite]:
    """Give partitions back to their preferred leaders, up to `ELECTIONS_MAX` of them."""
    # The percentage of leader.imbalance.per.broker.percentage has no effect in KRaft either.
    return _first_elections(
        state, lambda each: not _has_preferred(each), lambda _: Election.PREFERRED
    )


def elect_unclean(state: ControlState) -> Sequence[RecordToWrite]:
    """Elect leaders for partitions without one, where the topic allows a loss of records."""
    return _first_elections(
        state, lambda each: each.leader == NO_LEADER, lambda name: elections(state, name)
    )


def _first_elections(
    state: ControlState,
    has: Callable[["PartitionRecord"], bool],
    election: Callable[[str], Election],
) -> Sequence[RecordToWrite]:
    found: list[RecordToWrite] = []
    for topic, partition in state.partitions(has):
        kind = election(topic.name)
        # A clean election happens as soon as a broker comes; here it would find nobody again.
        if kind is Election.ONLINE:
            continue
        record = state.change(topic, partition, Wanted(election=kind))
        if record is not None:
            found.append(record)
        if len(found) == ELECTIONS_MAX:
            break
    return found


def _has_preferred(partition: "PartitionRecord") -> bool:
    return partition.leader == partition.replicas[0]
