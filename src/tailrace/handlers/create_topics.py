"""CreateTopics (19): create topics.

Versions: 2 to 7.
Behaviour: each topic is created or refused on its own. -1 partitions and -1 replicas mean the
    broker's defaults. Settings are Kafka's topic settings; unknown ones, values out of range and
    null are INVALID_CONFIG with every fault in the message. A name given twice, too many settings,
    and the name __cluster_metadata are INVALID_REQUEST. A request for more than 10,000 partitions
    is POLICY_VIOLATION for each of its topics.
    The answer comes when the topics are in the metadata log. Their logs are made then, and requests
    for a partition wait for its log. (With Kafka they get an error meanwhile, and are sent again.)
After a crash: a topic that was answered has all of its partitions and settings; else it has them,
    or does not exist.
Version notes: from v5 the response has the effective settings; from v6 on a topic above the quota
    of its client is refused (THROTTLING_QUOTA_EXCEEDED), and below it is created and the client
    delayed (KIP-599).
Not done: replica assignments other than this one node (INVALID_REPLICA_ASSIGNMENT), except by
    the controllers of a cluster; policies.
"""

from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from functools import partial
from typing import Final

from tailrace.cluster.image import Topic
from tailrace.cluster.topic_rules import PARTITIONS_MAX, folded_name
from tailrace.errors import ConfigError, TailraceError
from tailrace.handlers.configs import check_count, topic_entries
from tailrace.handlers.services import Services, error_code, error_message
from tailrace.handlers.topics import assignment_fault, create_topics
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
from tailrace.security.quotas import Mutations

PARTITIONS_AT_ONCE: Final = 1000
"""Most partitions of the topics that are saved together."""


async def handle_create_topics(
    services: Services, header: RequestHeader, request: CreateTopicsRequest
) -> CreateTopicsResponse:
    """Create the requested topics; refused ones get an error code."""
    counts: Counter[str] = Counter()
    slices, partition_count = Slices(), 0
    for topic in request.topics:
        counts[topic.name] += 1
        # Added up over the request: many topics below the limit would take as long as one above it.
        partition_count += _partition_count(services, topic)
        await slices.turn()
    results: dict[str, CreatableTopicResult] = {}
    wanted: list[CreatableTopic] = []
    for topic in request.topics:
        if partition_count > PARTITIONS_MAX:
            message = f"the request has {partition_count} partitions, {PARTITIONS_MAX} are allowed"
            results[topic.name] = _refused(topic.name, ErrorCode.POLICY_VIOLATION, message)
        elif counts[topic.name] > 1:
            message = "the request names the topic twice"
            results[topic.name] = _refused(topic.name, ErrorCode.INVALID_REQUEST, message)
        else:
            wanted.append(topic)
        await slices.turn()
    mutations = services.quotas.mutations(header)
    for part in _parts(services, wanted):
        create = partial(
            _create, services, part, mutations=mutations, is_dry_run=request.validate_only
        )
        # One batch, one sync and one image for the part (decision 55), not one of each for every
        # topic.
        made = await services.changes.make_together([topic.name for topic in part], create)
        results |= {result.name: result for result in made}
        await slices.turn()
    # In the order of the request, though refused topics were known first.
    answer = CreateTopicsResponse(topics=tuple(results[topic.name] for topic in request.topics))
    return mutations.settle(answer)


def _partition_count(services: Services, wanted: CreatableTopic) -> int:
    count = len(wanted.assignments) or wanted.num_partitions
    return services.cluster.defaults.partition_count if count == -1 else max(count, 0)


def _parts(
    services: Services, topics: Iterable[CreatableTopic]
) -> Iterator[Sequence[CreatableTopic]]:
    """The topics in parts that are saved together; names that collide are in different parts."""
    part: dict[str, CreatableTopic] = {}
    partition_count = 0
    for topic in topics:
        folded, count = folded_name(topic.name), _partition_count(services, topic)
        if part and (folded in part or partition_count + count > PARTITIONS_AT_ONCE):
            yield [*part.values()]
            part, partition_count = {}, 0
        part[folded] = topic
        partition_count += count
    if part:
        yield [*part.values()]


async def _create(
    services: Services,
    part: Sequence[CreatableTopic],
    *,
    mutations: Mutations,
    is_dry_run: bool,
) -> list[CreatableTopicResult]:
    planned: list[Topic] = []
    results: list[CreatableTopicResult] = []
    slices = Slices()
    for wanted in part:
        try:
            plan = _plan(services, wanted)
            if not mutations.take(len(plan.partitions)):
                code = ErrorCode.THROTTLING_QUOTA_EXCEEDED
                raise _RefusedError(code, code.message)
            planned.append(plan)
        except _RefusedError as error:
            results.append(_refused(wanted.name, error.code, str(error)))
        except TailraceError as error:
            results.append(_refused(wanted.name, error_code(error), error_message(error)))
        await slices.turn()
    try:
        if planned and not is_dry_run:
            await create_topics(
                services.changes, services.own_controller, services.replicas, topics=planned
            )
    except TailraceError as error:
        # They were written together, so none of them exists now.
        code, message = error_code(error), error_message(error)
        return [*results, *(_refused(topic.name, code, message) for topic in planned)]
    effective: dict[tuple[tuple[str, str], ...], tuple[CreatableTopicConfigs, ...]] = {}
    for topic in planned:
        # Topics of one request mostly have the same settings, and each answer has some thirty
        # entries.
        own = tuple(topic.configs.items())
        if own not in effective:
            effective[own] = _effective(services, topic)
        results.append(
            CreatableTopicResult(
                name=topic.name,
                topic_id=topic.topic_id,
                error_code=ErrorCode.NONE,
                error_message=None,
                num_partitions=len(topic.partitions),
                replication_factor=1,
                configs=effective[own],
            )
        )
        await slices.turn()
    return results


class _RefusedError(Exception):
    """A topic that cannot be created, with Kafka's error."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        self.code = code
        super().__init__(message)


def _plan(services: Services, wanted: CreatableTopic) -> Topic:
    """The topic that is wanted.

    Raises:
        _RefusedError: its assignments are not possible here.
        TailraceError: as `Controller.plan_topic`.
    """
    count, replication = wanted.num_partitions, wanted.replication_factor
    if wanted.assignments:
        fault = _assignment_fault(services, wanted)
        if fault is not None:
            raise _RefusedError(*fault)
        count, replication = len(wanted.assignments), -1
    check_count(len(wanted.configs))
    return services.own_controller.plan_topic(
        wanted.name,
        partition_count=count,
        replication_factor=replication,
        configs=_configs(wanted),
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
    # The lists of brokers give both counts already, and could contradict them.
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
