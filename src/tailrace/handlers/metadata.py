"""Metadata (3): brokers, topics, and the leaders of partitions.

Versions: 0 to 13.
Behaviour:
  - A requested topic that does not exist is created if both the broker
    (`auto.create.topics.enable`) and the request (v4) allow it, and is in the response.
  - A node that is its own controller lists a partition that it does not have (a topic adopted from
    the folders of one broker of several) without a leader. So is one whose log directory has
    failed, with this broker as its offline replica, as in Kafka: clients retry until the directory
    is back.
  - A broker of a cluster answers from its image: the brokers that are alive, and any of them as the
    controller. A leader that is not registered is LEADER_NOT_AVAILABLE; replicas on brokers that
    are fenced, or in directories that have failed, are offline. A topic that has to be created is
    UNKNOWN_TOPIC_OR_PARTITION until the controller has done so.
  - Brokers have the addresses of the listener on which the request has come; those that have not
    advertised it are not there, and what they lead is LISTENER_NOT_FOUND.
Version notes: in v0 an empty list means all topics, from v1 null does; v10 returns topic ids, and
    v12 accepts them (UNKNOWN_TOPIC_ID); in v10 and v11 an id, or no name, is INVALID_REQUEST for
    each topic of the request. From v8 on a request may ask for the operations that it
    may do: all, without an authorizer. v0 leaves out replicas that are not alive
    (REPLICA_NOT_AVAILABLE), and up to v5 a leader without this listener is LEADER_NOT_AVAILABLE,
    not LISTENER_NOT_FOUND.
"""

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Final

from tailrace.cluster.image import Topic
from tailrace.cluster.topic_rules import (
    InvalidTopicNameError,
    ReservedTopicError,
    TopicExistsError,
    check_topic_name,
)
from tailrace.handlers.services import (
    CLUSTER_OPERATIONS,
    NO_OPERATIONS,
    TOPIC_OPERATIONS,
    Services,
    error_code,
)
from tailrace.handlers.topics import create_for_client
from tailrace.handlers.views import View, view_of
from tailrace.protocol.answers import PARTS_INLINE_MAX, LongAnswer
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import NO_UUID
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponseTopic,
)
from tailrace.runtime.slices import Slices, each_in_slices

# KIP-516 put the field into v10, and brokers look topics up by it from v12 on.
UNREADY_FOR_IDS: Final = (10, 11)
"""The versions with a field for the id of a topic that may not be used."""

LOOKUPS_MAX: Final = 10_000
"""Most topics of a request that are looked up in one step: some 2 ms."""


def handle_metadata(
    services: Services, header: RequestHeader, request: MetadataRequest
) -> Awaitable[MetadataResponse] | LongAnswer:
    """The cluster, with the topics that were asked for."""
    # v0 has no null for a list, so an empty one means all.
    wants_all = request.topics is None or (header.api_version == 0 and not request.topics)
    describe = _describe_by_name if header.api_version in UNREADY_FOR_IDS else _describe_cluster
    make = partial(describe, services, header, request, wants_all=wants_all)
    if wants_all:
        return LongAnswer(make) if are_many(services.cluster.image.topics.values()) else make()
    wanted = request.topics or ()
    # Counting the partitions of this many topics would itself take too long on the loop.
    if len(wanted) > LOOKUPS_MAX:
        return LongAnswer(make, waits_for_device=True)  # One of them may have to be made.
    found = [services.find_topic(each.name or "", each.topic_id) for each in wanted]
    if len(found) <= PARTS_INLINE_MAX and not are_many(filter(None, found)):
        return make()
    return LongAnswer(make, waits_for_device=None in found)


def _is_by_id(wanted: MetadataRequestTopic) -> bool:
    return wanted.name is None or wanted.topic_id != NO_UUID


async def _describe_by_name(
    services: Services, header: RequestHeader, request: MetadataRequest, *, wants_all: bool
) -> MetadataResponse:
    """Describe the cluster, unless the request names a topic by id."""
    slices = Slices()
    for wanted in request.topics or ():
        if _is_by_id(wanted):
            break
        await slices.turn()
    else:
        return await _describe_cluster(services, header, request, wants_all=wants_all)

    def refuse(wanted: MetadataRequestTopic) -> MetadataResponseTopic:
        # Before v12 no topic of an answer is without a name.
        name = wanted.name or ""
        return MetadataResponseTopic(
            error_code=ErrorCode.INVALID_REQUEST, name=name, topic_id=wanted.topic_id
        )

    topics = await each_in_slices(request.topics or (), refuse, slices)
    # As in Kafka, whose error for a whole request names no brokers.
    return MetadataResponse(
        cluster_id=services.cluster_id,
        controller_id=services.cluster.controller_id(services.listener),
        topics=tuple(topics),
    )


def are_many(topics: Iterable[Topic]) -> bool:
    """Whether topics and their partitions are more than may be encoded on the loop."""
    count = 0
    for topic in topics:
        count += 1 + topic.partition_count
        if count > PARTS_INLINE_MAX:
            return True
    return False


async def _describe_cluster(
    services: Services, header: RequestHeader, request: MetadataRequest, *, wants_all: bool
) -> MetadataResponse:
    slices = Slices()
    view = view_of(services, version=header.api_version)
    if wants_all:
        known = services.cluster.image.topics.values()
        topics = [await _describe(view, request, topic, slices=slices) for topic in known]
    else:
        # Requests up to v3 have no such field, and cannot forbid it.
        may_create = request.allow_auto_topic_creation and services.auto_create_topics
        # Like Kafka, answer a topic that is named twice only once: it may have many partitions.
        distinct: dict[MetadataRequestTopic, None] = {}
        await each_in_slices(request.topics or (), distinct.setdefault, slices)
        topics = [
            await _find_or_create(
                services,
                view,
                request,
                header=header,
                wanted=wanted,
                slices=slices,
                may_create=may_create,
            )
            for wanted in distinct
        ]
    return MetadataResponse(
        brokers=tuple(
            MetadataResponseBroker(
                node_id=each.node_id, host=each.host, port=each.port, rack=each.rack
            )
            for each in view.nodes
            if not each.is_fenced
        ),
        cluster_id=services.cluster_id,
        controller_id=view.controller_id,
        topics=tuple(topics),
        cluster_authorized_operations=(
            # Only v8 to v10 have the field; DescribeCluster has it since (KIP-700).
            CLUSTER_OPERATIONS if request.include_cluster_authorized_operations else NO_OPERATIONS
        ),
    )


async def _find_or_create(
    services: Services,
    view: View,
    request: MetadataRequest,
    *,
    header: RequestHeader,
    wanted: MetadataRequestTopic,
    slices: Slices,
    may_create: bool,
) -> MetadataResponseTopic:
    await slices.turn()
    topic = view.find_topic(wanted.name or "", wanted.topic_id)
    if topic is not None:
        return await _describe(view, request, topic, slices=slices)
    # Not created: the id of a deleted topic must not bring the topic back.
    if wanted.topic_id != NO_UUID or wanted.name is None:
        return MetadataResponseTopic(
            error_code=ErrorCode.UNKNOWN_TOPIC_ID, name=wanted.name, topic_id=wanted.topic_id
        )
    try:
        # Also if nothing is created. Not whether it is like the name of another topic, which the
        # client may not see.
        check_topic_name(wanted.name)
    except InvalidTopicNameError as error:
        return _missing(wanted.name, error_code(error))
    if may_create and _may_exist(services, wanted.name):
        # Awaited: a node that is its own controller has the topic in its answer. Another broker
        # answers UNKNOWN_TOPIC_OR_PARTITION while the controller creates it (KIP-590), and clients
        # ask again.
        refused = await create_for_client(services, header, wanted.name)
        if refused is not None:
            return _missing(wanted.name, error_code(refused))
        topic = view.find_topic(wanted.name, NO_UUID)
    if topic is None:
        return _missing(wanted.name, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return await _describe(view, request, topic, slices=slices)


def _may_exist(services: Services, name: str) -> bool:
    try:
        services.cluster.check_new_name(name)
    except TopicExistsError:
        return True  # It comes into the image just now.
    except (InvalidTopicNameError, ReservedTopicError):
        return False
    return True


def _missing(name: str, code: ErrorCode) -> MetadataResponseTopic:
    return MetadataResponseTopic(error_code=code, name=name)


async def _describe(
    view: View, request: MetadataRequest, topic: Topic, *, slices: Slices
) -> MetadataResponseTopic:
    describe = partial(view.partition, topic)
    # All numbers, also of partitions that are not here: clients take the length of the list for the
    # count.
    partitions = await each_in_slices(range(topic.partition_count), describe, slices)
    return MetadataResponseTopic(
        error_code=ErrorCode.NONE,
        name=topic.name,
        topic_id=topic.topic_id,
        is_internal=topic.is_internal,
        partitions=tuple(partitions),
        topic_authorized_operations=(
            TOPIC_OPERATIONS if request.include_topic_authorized_operations else NO_OPERATIONS
        ),
    )
