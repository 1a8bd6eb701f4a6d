"""CreatePartitions (37): add partitions to topics (KIP-195).

Versions: 0 to 3.
Behaviour: each topic grows to the requested count or is refused on its own. When the response is
    sent, clients can produce to the new partitions and fetch from them. As many partitions as there
    are, or fewer, are INVALID_PARTITIONS; more than 10,000 are POLICY_VIOLATION; assignments that
    are not one for each new partition, or not to this broker, are INVALID_REPLICA_ASSIGNMENT; a
    topic that is named twice is INVALID_REQUEST. Internal topics grow too, but groups and
    transactions keep their partitions until a restart, and then lose their state, as in Kafka.
After a crash: a topic whose increase was answered has all of its partitions; else it has none of
    the new ones, or all.
Version notes: from v3 on what exceeds the quota of its client is refused
    (THROTTLING_QUOTA_EXCEEDED), and below it is done and the client delayed (KIP-599).
Not done: policies.
"""

from collections import Counter
from functools import partial

from tailrace.cluster.image import Topic
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code, error_message
from tailrace.handlers.topics import add_partitions, assignment_fault
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from tailrace.runtime.slices import Slices
from tailrace.security.quotas import Mutations


async def handle_create_partitions(
    services: Services, header: RequestHeader, request: CreatePartitionsRequest
) -> CreatePartitionsResponse:
    """Grow the requested topics; refused ones get an error code."""
    counts: Counter[str] = Counter()
    slices = Slices()
    for topic in request.topics:
        # Counted before the first change: else the first mention would grow the topic, and only the
        # second be refused.
        counts[topic.name] += 1
        await slices.turn()
    results: dict[str, CreatePartitionsTopicResult] = {}
    mutations = services.quotas.mutations(header)
    for topic in request.topics:
        if counts[topic.name] > 1:
            message = "the request names the topic twice"
            results[topic.name] = _result(topic, ErrorCode.INVALID_REQUEST, message)
        else:
            # In the queue of the topic's changes, so that two requests do not plan from the same
            # count.
            grow = partial(
                _grow, services, topic, mutations=mutations, is_dry_run=request.validate_only
            )
            results[topic.name] = await services.changes.make(topic.name, grow)
        await slices.turn()
    return mutations.settle(CreatePartitionsResponse(results=tuple(results.values())))


async def _grow(
    services: Services,
    wanted: CreatePartitionsTopic,
    *,
    mutations: Mutations,
    is_dry_run: bool,
) -> CreatePartitionsTopicResult:
    topic = services.cluster.image.topics.get(wanted.name)
    if topic is None:
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        return _result(wanted, code, f"there is no topic {wanted.name}")
    try:
        # Before the assignments are checked: a count that does not grow has no partitions to
        # assign.
        planned = services.own_controller.plan_partitions(topic, wanted.count)
        fault = _assignment_fault(services, topic, wanted)
        if fault is not None:
            return _result(wanted, ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault)
        if not mutations.take(wanted.count - topic.partition_count):
            code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
            return _result(wanted, code, code.message)
        if not is_dry_run:
            await add_partitions(
                services.changes,
                services.own_controller,
                services.replicas,
                topic=planned,
                first_number=topic.partition_count,
            )
    except TailraceError as error:
        return _result(wanted, error_code(error), error_message(error))
    return _result(wanted, ErrorCode.NONE, None)


def _assignment_fault(
    services: Services, topic: Topic, wanted: CreatePartitionsTopic
) -> str | None:
    if wanted.assignments is None:
        return None
    # A request assigns the new partitions only; those that are there keep their replicas (KIP-195).
    added = range(topic.partition_count, wanted.count)
    if len(wanted.assignments) != len(added):
        return f"{len(added)} partitions are added, and {len(wanted.assignments)} are assigned"
    faults = (
        assignment_fault(services, number, assignment.broker_ids)
        for number, assignment in zip(added, wanted.assignments, strict=True)
    )
    return next(filter(None, faults), None)


def _result(
    wanted: CreatePartitionsTopic, code: ErrorCode, message: str | None
) -> CreatePartitionsTopicResult:
    return CreatePartitionsTopicResult(name=wanted.name, error_code=code, error_message=message)
