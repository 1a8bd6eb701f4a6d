"""Topics: create, delete, list and describe them, add partitions, delete old records.

The controller makes the changes; any broker of a KRaft cluster forwards to it. What creates or
deletes is sent once: a second request could fail because the first has made the change.

Not here: settings of topics (`configs`), and where their replicas are (`replicas`).
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from uuid import UUID

from tailrace.client.admin.acls import operations_in
from tailrace.client.admin.configs import ConfigEntry
from tailrace.client.admin.items import (
    ItemRequest,
    ask_one,
    by_topic,
    check_kinds,
    entry_error,
    for_each,
    many,
    names,
    of_partitions,
    partition_values_in,
    values_in,
)
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import IncompleteAnswerError, UnsupportedBrokerError, error_for
from tailrace.client.reader import TopicDescription, describe_topic
from tailrace.client.routes import ANY, CONTROLLER, leader
from tailrace.client.short_repr import short_repr
from tailrace.config import settings_texts
from tailrace.errors import TailraceError, kind_of
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)
from tailrace.protocol.messages.delete_topics import (
    DeleteTopicsRequest,
    DeleteTopicsResponse,
    DeleteTopicState,
)
from tailrace.protocol.messages.describe_topic_partitions import (
    Cursor,
    DescribeTopicPartitionsRequest,
    DescribeTopicPartitionsResponse,
    DescribeTopicPartitionsResponsePartition,
    DescribeTopicPartitionsResponseTopic,
    TopicRequest,
)
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
)
from tailrace.values import dataclass

PARTITIONS_MAX = 4_000_000
"""Most topics and partitions in one answer of several pages: twice what Kafka's largest clusters
have had."""

_NO_SUCH_TOPIC = frozenset({ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.UNKNOWN_TOPIC_ID})


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create."""

    name: str
    partition_count: int = -1
    """Its partitions; -1: the broker's `num.partitions`."""
    replication_factor: int = -1
    """Replicas of each partition; -1: the broker's `default.replication.factor`."""
    configs: Mapping[str, object] | None = None
    """Settings of its own, by Kafka's names."""
    replicas: Mapping[int, Sequence[int]] | None = None
    """Brokers of each partition by its number, in place of the two counts."""


@dataclass(frozen=True, slots=True, kw_only=True)
class CreatedTopic:
    """A topic that was created, or would be."""

    topic_id: UUID | None
    """None from a broker before Kafka 2.8, and from a dry run."""
    partition_count: int
    """-1 from a broker before Kafka 2.4."""
    replication_factor: int
    """Likewise."""
    configs: Mapping[str, ConfigEntry] | None
    """Its settings by name; None if the client may not see them."""

    __repr__ = short_repr


@dataclass(frozen=True, slots=True)
class NewPartitions:
    """The partitions that a topic is to have."""

    count: int
    """The number of all, with those that it has."""
    replicas: Sequence[Sequence[int]] | None = None
    """Brokers of each new partition; the controller chooses them by default."""


def create_topics(
    call: Call, topics: Iterable[NewTopic], *, validate_only: bool = False
) -> Steps[Outcomes[str, CreatedTopic]]:
    """Create topics.

    With `validate_only` the topics are checked and nothing is created. Sent once: a topic whose
    answer was lost has an UnknownOutcomeError. A refusal for now (NOT_CONTROLLER, a quota) is
    retried.

        admin.create_topics([NewTopic("flights", 6, configs={"retention.ms": -1})]).results()

    Raises:
        TypeError: `topics` is no list of `NewTopic`.
        ValueError: a name is there twice.
    """
    wanted: dict[str, NewTopic] = {}
    for each in many(topics, what="topics"):
        if not isinstance(each, NewTopic):
            raise TypeError(f"topics has {kind_of(each)}; each has to be a NewTopic")
        if not isinstance(each.name, str):
            raise TypeError(f"the name of a topic is {kind_of(each.name)}; it has to be a str")
        # Kafka refuses both topics of a request that names one twice; here nothing is sent.
        if each.name in wanted:
            raise ValueError(f"topics has {each.name!r} twice")
        wanted[each.name] = each
    # Before anything is sent: a bad setting is an error of the call.
    creatable = {name: _creatable(each) for name, each in wanted.items()}
    request: ItemRequest[str, CreatedTopic, CreateTopicsResponse] = ItemRequest(
        what="topic",
        target=CONTROLLER,
        request=lambda batch: CreateTopicsRequest(
            topics=tuple(creatable[each] for each in batch),
            timeout_ms=call.left_ms,
            validate_only=validate_only,
        ),
        response=CreateTopicsResponse,
        entries=lambda answer, _: ((each.name, each) for each in answer.topics),
        value=lambda _, each: _created(each),
        is_sent_once=not validate_only,
    )
    return (yield from for_each(call, wanted, request))


def delete_topics(call: Call, topics: Iterable[str | UUID]) -> Steps[Outcomes[str | UUID, None]]:
    """Delete topics with all of their records, by name or by id (Kafka 2.8).

    Sent once: a topic whose answer was lost has an UnknownOutcomeError. One that does not exist has
    a RemoteRetriableError with UNKNOWN_TOPIC_OR_PARTITION, or UNKNOWN_TOPIC_ID.

    Raises:
        TypeError: `topics` is no list of names and ids.
    """
    wanted = _names_and_ids(topics)

    def asked(batch: Sequence[str | UUID]) -> DeleteTopicsRequest:
        return DeleteTopicsRequest(
            topics=tuple(
                DeleteTopicState(name=each)
                if isinstance(each, str)
                else DeleteTopicState(topic_id=each)
                for each in batch
            ),
            # Until version 5 the request has names alone.
            topic_names=tuple(each for each in batch if isinstance(each, str)),
            timeout_ms=call.left_ms,
        )

    # Apart, since a broker before Kafka 2.8 takes names and no ids.
    ids = [each for each in wanted if isinstance(each, UUID)]
    found: dict[str | UUID, TailraceError | None] = {}
    for some, version in (([each for each in wanted if isinstance(each, str)], 0), (ids, 6)):
        request: ItemRequest[str | UUID, None, DeleteTopicsResponse] = ItemRequest(
            what="topic",
            target=CONTROLLER,
            request=asked,
            response=DeleteTopicsResponse,
            entries=lambda answer, batch: (
                # From version 6 on the answer has both, and the call knows the topic by one of
                # them. The name is null where the client may not see it.
                (each.name if each.name and each.name in batch else each.topic_id, each)
                for each in answer.responses
            ),
            is_sent_once=True,
            first_version=version,
            final=_NO_SUCH_TOPIC,
        )
        found |= yield from for_each(call, some, request)
    return Outcomes({each: found[each] for each in wanted})


def list_topics(
    call: Call, *, include_internal: bool = True
) -> Steps[tuple[TopicDescription, ...]]:
    """All topics, ordered by name; without `include_internal` not those of Kafka's own state.

    Raises:
        UnreachableBrokerError: no broker can be reached.
        RemoteRetriableError, RemoteFatalError: the broker refuses.
        OperationTimeoutError: no answer within the time limit.
    """
    found = yield from _describe_all(call)
    return tuple(
        each
        for _, each in sorted(found.succeeded.items())
        if include_internal or not each.is_internal
    )


def describe_topics(
    call: Call, topics: Iterable[str | UUID], *, include_authorized_operations: bool = False
) -> Steps[Outcomes[str | UUID, TopicDescription]]:
    """Partitions, leaders and replicas of topics, by name or by id (Kafka 3.8).

    A topic that does not exist has a RemoteRetriableError with UNKNOWN_TOPIC_OR_PARTITION, or
    UNKNOWN_TOPIC_ID. Repeated after a lost connection.

    Raises:
        TypeError: `topics` is no list of names and ids.
    """
    wanted = _names_and_ids(topics)
    by_name = [each for each in wanted if isinstance(each, str)]
    found: dict[str | UUID, TopicDescription | TailraceError] = {}
    if by_name:
        described = yield from _describe_named(
            call, by_name, is_authorized=include_authorized_operations
        )
        found.update({name: described[name] for name in by_name})
    if len(by_name) < len(wanted):
        # No API describes topics by id without a version of Metadata that this client does not
        # speak; so all are asked for.
        failure: TailraceError | None = None
        by_id: dict[UUID | None, TopicDescription] = {}
        try:
            everything = yield from _describe_all(call)
            by_id = {each.topic_id: each for each in everything.succeeded.values()}
        except TailraceError as error:
            failure = error
        for each in wanted:
            if isinstance(each, UUID):
                missing = error_for(ErrorCode.UNKNOWN_TOPIC_ID, about=f"topic {each}")
                assert missing is not None, "the code is an error"
                found[each] = by_id.get(each) or failure or missing
    return Outcomes({each: found[each] for each in wanted})


def create_partitions(
    call: Call, counts: Mapping[str, int | NewPartitions], *, validate_only: bool = False
) -> Steps[Outcomes[str, None]]:
    """Give topics more partitions, so that each has `count` of them.

    Records with a key may go to other partitions from then on. With `validate_only` the counts are
    checked and nothing changes. Sent once: a topic whose answer was lost has an
    UnknownOutcomeError.
    """
    check_kinds(values_in(counts, what="counts"), (int, NewPartitions), what="counts")
    wanted = {
        name: each if isinstance(each, NewPartitions) else NewPartitions(each)
        for name, each in zip(names(counts, what="counts"), counts.values(), strict=True)
    }
    request: ItemRequest[str, None, CreatePartitionsResponse] = ItemRequest(
        what="topic",
        target=CONTROLLER,
        request=lambda batch: CreatePartitionsRequest(
            topics=tuple(_grown(each, wanted[each]) for each in batch),
            timeout_ms=call.left_ms,
            validate_only=validate_only,
        ),
        response=CreatePartitionsResponse,
        entries=lambda answer, _: ((each.name, each) for each in answer.results),
        # A repeated CreatePartitions would be refused although the first one was carried out.
        is_sent_once=not validate_only,
        final=_NO_SUCH_TOPIC,
    )
    return (yield from for_each(call, wanted, request))


def delete_records(
    call: Call, before: Mapping[TopicPartition, int]
) -> Steps[Outcomes[TopicPartition, int]]:
    """Delete the records below an offset in each partition, -1: all; returns the log starts.

    The records are not seen any more; their bytes go with their segments. Repeated after a lost
    connection: a second request deletes nothing more.
    """
    partitions: dict[TopicPartition, int] = partition_values_in(before, what="before", kinds=(int,))
    request: ItemRequest[TopicPartition, int, DeleteRecordsResponse] = ItemRequest(
        what="partition",
        target=leader,
        request=lambda batch: DeleteRecordsRequest(
            topics=tuple(
                DeleteRecordsTopic(
                    name=topic,
                    partitions=tuple(
                        DeleteRecordsPartition(
                            partition_index=number,
                            offset=partitions[TopicPartition(topic, number)],
                        )
                        for number in numbers
                    ),
                )
                for topic, numbers in by_topic(batch).items()
            ),
            timeout_ms=call.left_ms,
        ),
        response=DeleteRecordsResponse,
        entries=lambda answer, _: of_partitions(answer.topics),
        # Kafka's low watermark: the lowest log start of the replicas that live.
        value=lambda _, each: int(each.low_watermark),
    )
    return (yield from for_each(call, partitions, request))


def _creatable(topic: NewTopic) -> CreatableTopic:
    replicas = topic.replicas or {}
    return CreatableTopic(
        name=topic.name,
        # A broker refuses counts beside an assignment.
        num_partitions=-1 if replicas else topic.partition_count,
        replication_factor=-1 if replicas else topic.replication_factor,
        assignments=tuple(
            CreatableReplicaAssignment(partition_index=number, broker_ids=tuple(brokers))
            for number, brokers in replicas.items()
        ),
        configs=tuple(
            CreatableTopicConfig(name=name, value=value)
            for name, value in settings_texts(topic.configs).items()
        ),
    )


def _created(each: CreatableTopicResult) -> CreatedTopic:
    return CreatedTopic(
        topic_id=None if each.topic_id == NO_UUID else each.topic_id,
        partition_count=each.num_partitions,
        replication_factor=each.replication_factor,
        # Null from brokers before Kafka 2.4 (KIP-525), and with a code where the client may not
        # read them.
        configs=None
        if each.configs is None or each.topic_config_error_code
        else {
            config.name: ConfigEntry(
                name=config.name,
                value=config.value,
                source=config.config_source,
                is_read_only=config.read_only,
                is_sensitive=config.is_sensitive,
            )
            for config in each.configs
        },
    )


def _grown(name: str, wanted: NewPartitions) -> CreatePartitionsTopic:
    assignments = None
    if wanted.replicas is not None:
        assignments = tuple(
            CreatePartitionsAssignment(broker_ids=tuple(each)) for each in wanted.replicas
        )
    return CreatePartitionsTopic(name=name, count=wanted.count, assignments=assignments)


def _names_and_ids(topics: object) -> list[str | UUID]:
    found: list[str | UUID] = []
    for each in many(topics, what="topics"):
        if not isinstance(each, str | UUID):
            raise TypeError(f"topics has {kind_of(each)}; each has to be a name or a UUID")
        found.append(each)
    return list(dict.fromkeys(found))


_Page = DescribeTopicPartitionsResponse


def _describe_named(
    call: Call, topics: Sequence[str], *, is_authorized: bool
) -> Steps[Outcomes[str, TopicDescription]]:
    """Topics by name, from whichever of the two APIs the broker has."""
    try:
        found_topics = yield from _pages(call, topics)
    except UnsupportedBrokerError:
        try:
            return (yield from _describe_by_metadata(call, topics, is_authorized=is_authorized))
        except TailraceError as failure:
            return Outcomes(dict.fromkeys(topics, failure))
    except TailraceError as failure:
        return Outcomes(dict.fromkeys(topics, failure))
    found: dict[str, TopicDescription | TailraceError] = {}
    for each in topics:
        topic = found_topics.get(each)
        code = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION if topic is None else topic[0].error_code
        error = error_for(code, about=f"topic {each}")
        if error is not None:
            found[each] = error
        elif topic is not None:
            operations = operations_in(topic[0].topic_authorized_operations)
            found[each] = describe_topic(
                each, *topic, operations=operations if is_authorized else None
            )
    return Outcomes(found)


def _describe_all(call: Call) -> Steps[Outcomes[str, TopicDescription]]:
    try:
        found_topics = yield from _pages(call, ())
    except UnsupportedBrokerError:
        return (yield from _describe_by_metadata(call, None, is_authorized=False))
    return Outcomes(
        {
            name: describe_topic(name, *topic)
            for name, topic in found_topics.items()
            if not topic[0].error_code
        }
    )


_TopicParts = tuple[
    DescribeTopicPartitionsResponseTopic, list[DescribeTopicPartitionsResponsePartition]
]


def _pages(call: Call, topics: Collection[str]) -> Steps[dict[str, _TopicParts]]:
    """The answer of DescribeTopicPartitions about topics, or all, page by page.

    Raises:
        UnsupportedBrokerError: the broker lacks the API.
        IncompleteAnswerError: the pages do not end.
        TailraceError: no page came within the time limit.
    """
    found: dict[str, _TopicParts] = {}
    cursor: Cursor | None = None
    # Pages without end would fill the memory of the client.
    left = PARTITIONS_MAX
    while True:
        page = yield from ask_one(call, _page_request(sorted(topics), cursor))
        left -= 1
        for topic in page.topics:
            left -= 1 + len(topic.partitions)
            name = topic.name or ""
            # A broker may answer with more topics than were asked for.
            if not topics or name in topics:
                _, partitions = found.setdefault(name, (topic, []))
                partitions += topic.partitions
        if left < 0:
            raise IncompleteAnswerError(
                f"DescribeTopicPartitions has named more than {PARTITIONS_MAX} topics and "
                "partitions and does not end; is it a broker of Kafka?"
            )
        after = page.next_cursor
        # A page that does not get on would be asked for without end.
        if after is None or (cursor is not None and _place(after) <= _place(cursor)):
            return found
        cursor = after


def _page_request(topics: Sequence[str], cursor: Cursor | None) -> ItemRequest[str, _Page, _Page]:
    return ItemRequest(
        what="the topics",
        target=ANY,
        request=lambda _: DescribeTopicPartitionsRequest(
            topics=tuple(TopicRequest(name=each) for each in topics), cursor=cursor
        ),
        response=_Page,
        # A page has no error of its own: each of its topics has one.
        special=lambda _, page: page,
    )


def _place(cursor: Cursor) -> tuple[str, int]:
    return cursor.topic_name, cursor.partition_index


def _describe_by_metadata(
    call: Call, topics: Sequence[str] | None, *, is_authorized: bool
) -> Steps[Outcomes[str, TopicDescription]]:
    """Topics from an older broker."""
    asked = MetadataRequest(
        topics=None if topics is None else tuple(MetadataRequestTopic(name=t) for t in topics),
        allow_auto_topic_creation=False,
        include_topic_authorized_operations=is_authorized,
    )

    def described(_: str, answer: MetadataResponse) -> Outcomes[str, TopicDescription]:
        found: dict[str, TopicDescription | TailraceError] = {}
        for topic in answer.topics:
            name = topic.name or ""
            operations = operations_in(topic.topic_authorized_operations)
            found[name] = entry_error(topic, about=f"topic {name}") or describe_topic(
                name, topic, topic.partitions, operations=operations if is_authorized else None
            )
        return Outcomes(found)

    request = ItemRequest(
        what="the topics",
        target=ANY,
        request=lambda _: asked,
        response=MetadataResponse,
        # The topics have errors of their own, and that of the answer came with version 13.
        special=described,
    )
    found = yield from ask_one(call, request)
    if topics is None:
        return Outcomes(found.succeeded)
    # Kafka answers about each topic that was asked for; this is for brokers that do not.
    missing = error_for(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, about="the topic is not in metadata")
    assert missing is not None, "the code is an error"
    return Outcomes({each: found.get(each, missing) for each in topics})
