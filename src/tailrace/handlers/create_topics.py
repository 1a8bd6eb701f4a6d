"""CreateTopics (19): create topics.

Versions: 2 to 7.
Behaviour: each topic is created or refused on its own. -1 partitions and -1 replicas mean the
    broker's defaults. Settings are Kafka's topic settings; unknown ones, values out of range and
    null are INVALID_CONFIG with every fault in the message. A name given twice, too many settings,
    and the name __cluster_metadata are INVALID_REQUEST. A request for more than 10,000 partitions
    is POLICY_VIOLATION for each of its topics.
After a crash: a topic that was answered has all of its partitions and settings; else it has them,
    or does not exist.
Version notes: from v5 the response has the effective settings.
Not done: replica assignments other than this one broker (INVALID_REPLICA_ASSIGNMENT); policies.
"""

import asyncio
from collections import Counter
from functools import partial
from itertools import islice
from typing import Final

from tailrace.cluster.image import Topic
from tailrace.cluster.topic_rules import PARTITIONS_MAX
from tailrace.errors import ConfigError, TailraceError
from tailrace.handlers.assignments import assignment_fault
from tailrace.handlers.configs import check_count, topic_entries
from tailrace.handlers.services import Services, error_code, error_message
from tailrace.handlers.topics import create_topic
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicConfigs,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.runtime.slices import Slices

TOPICS_AT_ONCE: Final = 16
"""Most topics of a request that are created beside each other."""


async def handle_create_topics(
    services: Services, _: RequestHeader, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create the requested topics; refused ones get an error code."""
    counts: Counter[str] = Counter()
    slices = Slices()
    partition_count, default = 0, services.controller.defaults.partition_count
    for topic in request.topics:
        counts[topic.name] += 1
        count = len(topic.assignments) or topic.num_partitions
        partition_count += default if count == -1 else max(count, 0)
        await slices.turn()

    async def created(topic: CreatableTopic) -> CreatableTopicResult:
        if partition_count > PARTITIONS_MAX:
            message = f"the request has {partition_count} partitions, {PARTITIONS_MAX} are allowed"
            return _refused(topic.name, ErrorCode.POLICY_VIOLATION, message)
        if counts[topic.name] > 1:
            message = "the request names the topic twice"
            return _refused(topic.name, ErrorCode.INVALID_REQUEST, message)
        create = partial(_create, services, topic, is_dry_run=request.validate_only)
        return await services.changes.make(topic.name, create)

    rest, results = iter(request.topics), []
    while part := list(islice(rest, TOPICS_AT_ONCE)):
        # Beside each other, since their syncs are made together.
        results += await asyncio.gather(*map(created, part))
        await slices.turn()
    return CreateTopicsResponse(topics=tuple(results))


async def _create(
    services: Services, wanted: CreatableTopic, *, is_dry_run: bool
) -> CreatableTopicResult:
    count, replication = wanted.num_partitions, wanted.replication_factor
    if wanted.assignments:
        fault = _assignment_fault(services, wanted)
        if fault is not None:
            return _refused(wanted.name, *fault)
        count, replication = len(wanted.assignments), -1
    try:
        check_count(len(wanted.configs))
        configs = _configs(wanted)
        topic = services.controller.plan_topic(
            wanted.name,
            partition_count=count,
            replication_factor=replication,
            configs=configs,
        )
        if not is_dry_run:
            await create_topic(
                services.changes, services.controller, services.replicas, topic=topic
            )
    except TailraceError as error:
        return _refused(wanted.name, error_code(error), error_message(error))
    return CreatableTopicResult(
        name=topic.name,
        topic_id=topic.topic_id,
        error_code=ErrorCode.NONE,
        error_message=None,
        num_partitions=len(topic.partitions),
        replication_factor=1,
        configs=_effective(services, topic),
    )


def _configs(wanted: CreatableTopic) -> dict[str, str]:
    """The settings of a topic.

    Raises:
        ConfigError: some have no value.
    """
    configs = {each.name: each.value for each in wanted.configs if each.value is not None}
    faults = [f"{each.name}: has no value" for each in wanted.configs if each.value is None]
    if faults:
        raise ConfigError(faults)
    return configs


def _assignment_fault(services: Services, wanted: CreatableTopic) -> tuple[ErrorCode, str] | None:
    if wanted.num_partitions != -1 or wanted.replication_factor != -1:
        return ErrorCode.INVALID_REQUEST, "give either assignments or counts, not both"
    numbers = sorted(assignment.partition_index for assignment in wanted.assignments)
    for expected, number in enumerate(numbers):
        if number != expected:
            message = f"the partitions must be 0, 1, 2, …; there is {number} instead of {expected}"
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, message
    for assignment in wanted.assignments:
        fault = assignment_fault(services, assignment.partition_index, assignment.broker_ids)
        if fault is not None:
            return ErrorCode.INVALID_REPLICA_ASSIGNMENT, fault
    return None


def _effective(services: Services, topic: Topic) -> tuple[CreatableTopicConfigs, ...]:
    return tuple(
        CreatableTopicConfigs(
            name=entry.setting.name, value=entry.value.text, config_source=entry.value.source
        )
        for entry in topic_entries(services, topic)
    )


def _refused(name: str, code: ErrorCode, message: str) -> CreatableTopicResult:
    return CreatableTopicResult(name=name, error_code=code, error_message=message)
