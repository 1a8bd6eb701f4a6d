"""CreateTopics, CreatePartitions and DeleteTopics: each topic is made or refused by itself.

    Topic, Config ..., Partition 0 ..., next Topic ...     in one batch: all of a topic or nothing

Replicas that serve are in sync from the beginning, since all logs are empty; the first one leads.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from typing import Final
from uuid import UUID

from tailrace.cluster.config_changes import ConfigChange, plan_configs
from tailrace.cluster.control.configs import config_records, effective_configs
from tailrace.cluster.control.placement import UsableBroker, place
from tailrace.cluster.control.state import ControlState, Decision, RefusedError, Take, take_any
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.features import partition_version
from tailrace.cluster.metadata.image import ConfigResource, TopicState
from tailrace.cluster.partition_change import RECOVERED
from tailrace.cluster.records import remove_topic_record
from tailrace.cluster.topic_rules import (
    PARTITIONS_MAX,
    InvalidReplicationError,
    InvalidTopicNameError,
    TakenNames,
    TopicExistsError,
    check_topic_name,
)
from tailrace.errors import ConfigError
from tailrace.model import METADATA_TOPIC
from tailrace.protocol.config_resources import ConfigOperation, ResourceType
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_topics import (
    DeletableTopicResult,
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.runtime.ids import random_uuid

_DEFAULT: Final = -1
_NO_ID: Final = UUID(int=0)
_BY_ID_SINCE: Final = 6
"""First version of DeleteTopics that can name topics by id (KIP-516)."""
_DISABLED_SINCE: Final = 3
"""First version of DeleteTopics that has an error of its own for it."""


def create_topics(
    state: ControlState, request: CreateTopicsRequest, *, take: Take = take_any
) -> Decision:
    """Create topics; `take` counts their partitions, also of a dry run, as in Kafka.

    Raises:
        RefusedError: POLICY_VIOLATION: more than `PARTITIONS_MAX` partitions together.
    """
    if sum(_partition_count(state, each) for each in request.topics) > PARTITIONS_MAX:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    counts = Counter(each.name for each in request.topics)
    names = TakenNames()
    records: list[RecordToWrite] = []
    results: dict[str, CreatableTopicResult] = {}
    for wanted in request.topics:
        try:
            if counts[wanted.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            if wanted.name == METADATA_TOPIC:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    f"Creation of internal topic {METADATA_TOPIC} is prohibited.",
                )
            check_topic_name(wanted.name)
            names.check_is_free(wanted.name, state.image.topic_ids)
            topic_records, results[wanted.name] = _creation(state, wanted, take)
            records += topic_records
            # Those of one request are held against each other too, which Kafka forgets.
            names.add(wanted.name)
        except RefusedError as error:
            results[wanted.name] = _refused(wanted, error.code, error.message)
        except InvalidTopicNameError as error:
            code = ErrorCode.INVALID_TOPIC_EXCEPTION
            results[wanted.name] = _refused(wanted, code, str(error))
        except TopicExistsError as error:
            results[wanted.name] = _refused(wanted, ErrorCode.TOPIC_ALREADY_EXISTS, str(error))
        except ConfigError as error:
            results[wanted.name] = _refused(wanted, ErrorCode.INVALID_CONFIG, str(error))
    answer = CreateTopicsResponse(
        throttle_time_ms=0, topics=tuple(results[name] for name in counts)
    )
    return Decision([] if request.validate_only else records, answer)


def _partition_count(state: ControlState, wanted: CreatableTopic) -> int:
    if wanted.assignments:
        return len(wanted.assignments)
    if wanted.num_partitions == _DEFAULT:
        return state.defaults.partition_count
    return max(wanted.num_partitions, 0)


def _creation(
    state: ControlState, wanted: CreatableTopic, take: Take
) -> tuple[list[RecordToWrite], CreatableTopicResult]:
    """The records that make a topic, and the answer."""
    from tailrace.protocol.metadata_records import TopicRecord

    configs = _configs(state, wanted)
    assignments = _manual(state, wanted) if wanted.assignments else _placed(state, wanted)
    # After all that may refuse it, which costs the client nothing.
    take(len(assignments))
    topic_id = random_uuid(state.chance)
    owner = ConfigResource(ResourceType.TOPIC, wanted.name)
    records = [
        RecordToWrite(TopicRecord(name=wanted.name, topic_id=topic_id), 0),
        # Before the partitions: a broker makes their logs with these settings.
        *config_records(state, owner, configs, planned=configs),
        *_partition_records(state, topic_id, assignments),
    ]
    result = CreatableTopicResult(
        name=wanted.name,
        topic_id=topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(assignments),
        replication_factor=len(assignments[0]),
        configs=effective_configs(state, configs),
    )
    return records, result


def _configs(state: ControlState, wanted: CreatableTopic) -> dict[str, str]:
    nulls = [each.name for each in wanted.configs if each.value is None]
    if nulls:
        raise RefusedError(
            ErrorCode.INVALID_CONFIG,
            f"Null value not supported for topic configs: {','.join(nulls)}",
        )
    changes = [
        ConfigChange(name=each.name, operation=ConfigOperation.SET, value=each.value or "")
        for each in wanted.configs
    ]
    return plan_configs({}, changes, state.default_configs)


def _manual(state: ControlState, wanted: CreatableTopic) -> list[tuple[int, ...]]:
    """The replicas that the request names."""
    if wanted.replication_factor != _DEFAULT:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to "
            "-1.",
        )
    if wanted.num_partitions != _DEFAULT:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    found: dict[int, tuple[int, ...]] = {}
    factor: int | None = None
    for each in wanted.assignments:
        number = each.partition_index
        if number in found:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {number}",
            )
        check_assignment(state, each.broker_ids, factor=factor)
        factor = len(each.broker_ids)
        _check_serves(state, number, each.broker_ids)
        found[number] = each.broker_ids
    if sorted(found) != list(range(len(found))):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    return [found[number] for number in range(len(found))]


def check_assignment(
    state: ControlState, broker_ids: Sequence[int], *, factor: int | None = None
) -> None:
    """Check replicas that a request names: registered, each once, as many as `factor`.

    Raises:
        RefusedError: INVALID_REPLICA_ASSIGNMENT.
    """
    if not broker_ids:
        message = "The manual partition assignment includes an empty replica list."
        raise RefusedError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, message)
    counts = Counter(broker_ids)
    for broker_id in sorted(counts):
        if broker_id not in state.image.brokers:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes broker {broker_id}, but no such broker "
                "is registered.",
            )
        if counts[broker_id] > 1:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"The manual partition assignment includes the broker {broker_id} more than once.",
            )
    if factor is not None and len(broker_ids) != factor:
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"The manual partition assignment includes a partition with {len(broker_ids)} "
            "replica(s), but this is not consistent with previous partitions, which have "
            f"{factor} replica(s).",
        )


def _check_serves(state: ControlState, number: int, broker_ids: Sequence[int]) -> None:
    if not any(map(state.is_active, broker_ids)):
        raise RefusedError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "All brokers specified in the manual partition assignment for partition "
            f"{number} are fenced or in controlled shutdown.",
        )


def _placed(state: ControlState, wanted: CreatableTopic) -> list[tuple[int, ...]]:
    """The replicas that the controller chooses."""
    factor, count = wanted.replication_factor, wanted.num_partitions
    if factor < _DEFAULT or factor == 0:
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            "Replication factor must be larger than 0, or -1 to use the default value.",
        )
    if count < _DEFAULT or count == 0:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            "Number of partitions was set to an invalid non-positive value.",
        )
    factor = state.defaults.replication_factor if factor == _DEFAULT else factor
    count = state.defaults.partition_count if count == _DEFAULT else count
    return _place(state, count, factor)


def _place(state: ControlState, count: int, factor: int) -> list[tuple[int, ...]]:
    prefix = f"Unable to replicate the partition {factor} time(s): "
    try:
        found = place(
            _usable(state),
            partition_count=count,
            replication_factor=factor,
            chance=state.chance,
        )
    except InvalidReplicationError as error:
        raise RefusedError(ErrorCode.INVALID_REPLICATION_FACTOR, f"{prefix}{error}") from None
    # One in a controlled shutdown is not fenced yet, and must not be the only one.
    if not all(any(map(state.is_active, each)) for each in found):
        raise RefusedError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"{prefix}All brokers are currently fenced or in controlled shutdown.",
        )
    return found


def _usable(state: ControlState) -> Iterator[UsableBroker]:
    """The brokers that may get new replicas."""
    for broker_id, broker in state.image.brokers.items():
        has_room = not broker.log_dirs or set(broker.log_dirs) - set(broker.cordoned_log_dirs or ())
        if has_room and not state.heartbeats.is_shutting_down(broker_id):
            yield UsableBroker(broker_id, broker.rack, broker.fenced)


def _partition_records(
    state: ControlState, topic_id: UUID, assignments: Sequence[Sequence[int]], *, first: int = 0
) -> Iterator[RecordToWrite]:
    from tailrace.protocol.metadata_records import PartitionRecord

    version = partition_version(state.image.metadata_version)
    for number, replicas in enumerate(assignments, first):
        isr = tuple(filter(state.is_active, replicas))
        record = PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=tuple(replicas),
            isr=isr,
            leader=isr[0],
            leader_recovery_state=RECOVERED,
            leader_epoch=0,
            partition_epoch=0,
            directories=(
                tuple(map(state.default_directory, replicas)) if state.names_directories else ()
            ),
        )
        yield RecordToWrite(record, version)


def _refused(wanted: CreatableTopic, code: ErrorCode, message: str | None) -> CreatableTopicResult:
    return CreatableTopicResult(name=wanted.name, error_code=code, error_message=message)


# -- partitions -----------------------------------------------------------------------------------


def create_partitions(
    state: ControlState, request: CreatePartitionsRequest, *, take: Take = take_any
) -> Decision:
    """Add partitions to topics (KIP-195), which `take` counts.

    Raises:
        RefusedError: POLICY_VIOLATION: more than `PARTITIONS_MAX` partitions together.
    """
    if sum(_added_count(state, each) for each in request.topics) > PARTITIONS_MAX:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    counts = Counter(each.name for each in request.topics)
    records: list[RecordToWrite] = []
    results: dict[str, CreatePartitionsTopicResult] = {}
    for wanted in request.topics:
        code, message = ErrorCode.NONE, None
        try:
            if counts[wanted.name] > 1:
                raise RefusedError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            records += _growth(state, wanted, take)
        except RefusedError as error:
            code, message = error.code, error.message
        results[wanted.name] = CreatePartitionsTopicResult(
            name=wanted.name, error_code=code, error_message=message
        )
    answer = CreatePartitionsResponse(throttle_time_ms=0, results=tuple(results.values()))
    return Decision([] if request.validate_only else records, answer)


def _added_count(state: ControlState, wanted: CreatePartitionsTopic) -> int:
    topic = state.image.topic(wanted.name)
    # One that is refused by itself adds none.
    if topic is None or wanted.count > PARTITIONS_MAX:
        return 0
    return max(wanted.count - len(topic.partitions), 0)


def _growth(
    state: ControlState, wanted: CreatePartitionsTopic, take: Take
) -> Sequence[RecordToWrite]:
    topic = state.image.topic(wanted.name)
    if topic is None:
        raise RefusedError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    first = len(topic.partitions)
    if wanted.count == first:
        raise RefusedError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {first} partition(s).")
    if wanted.count < first:
        raise RefusedError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {wanted.name} currently has {first} partition(s); {wanted.count} would not "
            "be an increase.",
        )
    # Kafka has this limit for the records of a request alone.
    if wanted.count > PARTITIONS_MAX:
        raise RefusedError(
            ErrorCode.POLICY_VIOLATION, "Excessively large number of partitions per request."
        )
    factor, added = len(topic.partitions[0].replicas), wanted.count - first
    if wanted.assignments is None:
        assignments: Sequence[Sequence[int]] = _place(state, added, factor)
    else:
        if len(wanted.assignments) != added:
            raise RefusedError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Attempted to add {added} additional partition(s), but only "
                f"{len(wanted.assignments)} assignment(s) were specified.",
            )
        assignments = [each.broker_ids for each in wanted.assignments]
        for number, each in enumerate(assignments, first):
            check_assignment(state, each, factor=factor)
            _check_serves(state, number, each)
    take(added)
    return [*_partition_records(state, topic.topic_id, assignments, first=first)]


# -- deletion -------------------------------------------------------------------------------------


def delete_topics(
    state: ControlState, request: DeleteTopicsRequest, *, version: int, take: Take = take_any
) -> Decision:
    """Delete topics, by name or id; one that is named twice is refused, and answered once.

    `take` counts their partitions.

    Raises:
        RefusedError: TOPIC_DELETION_DISABLED, or before version 3 INVALID_REQUEST:
            `delete.topic.enable` is false.
    """
    if not state.can_delete_topics:
        raise RefusedError(deletion_refusal(version))
    wanted = request.topics
    if version < _BY_ID_SINCE:
        wanted = tuple(DeleteTopicState(name=name, topic_id=_NO_ID) for name in request.topic_names)
    counts = Counter(wanted)
    found = {each: _find(state, each) for each in counts}
    by_id = {each.topic_id for each in counts if each.name is None}
    named = {
        topic.topic_id for each, topic in found.items() if topic and each.name and counts[each] == 1
    }
    records: list[RecordToWrite] = []
    responses = []
    for each, known in found.items():
        if each.name is None and each.topic_id in named and counts[each] == 1:
            continue  # Answered under its name.
        code, message = ErrorCode.NONE, None
        name, topic_id = each.name, each.topic_id
        try:
            topic = _deletable(each, known, count=counts[each])
            name, topic_id = topic.name, topic.topic_id
            if each.name is not None and topic_id in by_id:
                raise RefusedError(
                    ErrorCode.INVALID_REQUEST,
                    "The provided topic name maps to an ID that was already supplied.",
                )
            take(len(topic.partitions))
            records.append(remove_topic_record(topic_id))
        except RefusedError as error:
            code, message = error.code, error.message
        responses.append(
            DeletableTopicResult(
                name=name, topic_id=topic_id, error_code=code, error_message=message
            )
        )
    answer = DeleteTopicsResponse(throttle_time_ms=0, responses=tuple(responses))
    return Decision(records, answer)


def deletion_refusal(version: int) -> ErrorCode:
    """The error of DeleteTopics where `delete.topic.enable` is false, as in Kafka."""
    if version < _DISABLED_SINCE:
        return ErrorCode.INVALID_REQUEST
    return ErrorCode.TOPIC_DELETION_DISABLED


def _find(state: ControlState, wanted: DeleteTopicState) -> TopicState | None:
    if wanted.name is None:
        return state.image.topics.get(wanted.topic_id)
    return state.image.topic(wanted.name) if wanted.topic_id == _NO_ID else None


def _deletable(wanted: DeleteTopicState, topic: TopicState | None, *, count: int) -> TopicState:
    by_name = wanted.name is not None
    if by_name and wanted.topic_id != _NO_ID:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST, "You may not specify both topic name and topic id."
        )
    if not by_name and wanted.topic_id == _NO_ID:
        raise RefusedError(ErrorCode.INVALID_REQUEST, "Neither topic name nor id were specified.")
    if count > 1:
        raise RefusedError(
            ErrorCode.INVALID_REQUEST,
            "Duplicate topic name." if by_name else "Duplicate topic id.",
        )
    if topic is None:
        raise RefusedError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if by_name else ErrorCode.UNKNOWN_TOPIC_ID
        )
    return topic
