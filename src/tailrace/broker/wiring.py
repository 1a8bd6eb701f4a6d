"""The table from API keys to handlers."""

from collections.abc import Awaitable, Iterable
from functools import partial
from typing import Final

from tailrace.cluster.image import Topic
from tailrace.handlers.alter_configs import handle_alter_configs
from tailrace.handlers.alter_replica_log_dirs import handle_alter_replica_log_dirs
from tailrace.handlers.api_versions import handle_api_versions
from tailrace.handlers.create_topics import handle_create_topics
from tailrace.handlers.delete_records import handle_delete_records
from tailrace.handlers.delete_topics import handle_delete_topics
from tailrace.handlers.describe_configs import handle_describe_configs
from tailrace.handlers.describe_log_dirs import handle_describe_log_dirs
from tailrace.handlers.fetch import handle_fetch
from tailrace.handlers.find_coordinator import handle_find_coordinator
from tailrace.handlers.incremental_alter_configs import handle_incremental_alter_configs
from tailrace.handlers.init_producer_id import handle_init_producer_id
from tailrace.handlers.list_offsets import handle_list_offsets
from tailrace.handlers.metadata import handle_metadata
from tailrace.handlers.produce import first_error, handle_produce
from tailrace.handlers.services import Services
from tailrace.model import Acks
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.describe_configs import DescribeConfigsRequest
from tailrace.protocol.messages.describe_log_dirs import DescribeLogDirsRequest
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.protocol.messages.produce import ProduceRequest, ProduceResponse
from tailrace.server.dispatch import (
    PARTS_INLINE_MAX,
    Answer,
    CloseConnectionError,
    Handler,
    LongAnswer,
)

CONFIGS_PER_RESOURCE: Final = 50
"""Approximate number of settings of a topic or a broker in a DescribeConfigs response."""

LOOKUPS_MAX: Final = 10_000
"""Most topics of a Metadata request that are looked up in one callback: some 2 ms."""

Handled = Awaitable[Answer] | LongAnswer


def handler_table(services: Services) -> dict[ApiKey, Handler]:
    """The handler of every served API, bound to the broker's services."""

    def produce(header: RequestHeader, request: ProduceRequest) -> Answer | Awaitable[Answer]:
        response = handle_produce(services, header, request)
        if isinstance(response, ProduceResponse):
            return _unless_unwanted(request, response)
        return _later_unless_unwanted(request, response)

    def metadata(header: RequestHeader, request: MetadataRequest) -> Handled:
        make = partial(handle_metadata, services, header, request)
        known = services.controller.image.topics
        if request.topics is None or (header.api_version == 0 and not request.topics):
            return LongAnswer(make) if _are_many(known.values()) else make()
        if len(request.topics) > LOOKUPS_MAX:
            return LongAnswer(make, waits_for_device=True)  # A topic may have to be created.
        found = [services.find_topic(each.name or "", each.topic_id) for each in request.topics]
        if len(found) <= PARTS_INLINE_MAX and not _are_many(filter(None, found)):
            return make()
        return LongAnswer(make, waits_for_device=None in found)

    def describe_configs(_: RequestHeader, request: DescribeConfigsRequest) -> Handled:
        make = partial(handle_describe_configs, services, request)
        is_long = len(request.resources) * CONFIGS_PER_RESOURCE > PARTS_INLINE_MAX
        return LongAnswer(make) if is_long else make()

    def describe_log_dirs(_: RequestHeader, request: DescribeLogDirsRequest) -> Handled:
        make = partial(handle_describe_log_dirs, services, request)
        return LongAnswer(make) if request.topics is None else make()

    return {
        ApiKey.PRODUCE: produce,
        ApiKey.FETCH: lambda _, request: handle_fetch(services, request),
        ApiKey.LIST_OFFSETS: lambda _, request: handle_list_offsets(services, request),
        ApiKey.METADATA: metadata,
        ApiKey.FIND_COORDINATOR: lambda _, request: handle_find_coordinator(services, request),
        ApiKey.API_VERSIONS: lambda _, request: handle_api_versions(request),
        ApiKey.CREATE_TOPICS: lambda _, request: handle_create_topics(services, request),
        ApiKey.DELETE_TOPICS: lambda _, request: handle_delete_topics(services, request),
        ApiKey.DELETE_RECORDS: lambda _, request: handle_delete_records(services, request),
        ApiKey.INIT_PRODUCER_ID: lambda _, request: handle_init_producer_id(services, request),
        ApiKey.DESCRIBE_CONFIGS: describe_configs,
        ApiKey.ALTER_CONFIGS: lambda _, request: handle_alter_configs(services, request),
        ApiKey.ALTER_REPLICA_LOG_DIRS: lambda _, request: handle_alter_replica_log_dirs(
            services, request
        ),
        ApiKey.DESCRIBE_LOG_DIRS: describe_log_dirs,
        ApiKey.INCREMENTAL_ALTER_CONFIGS: lambda _, request: handle_incremental_alter_configs(
            services, request
        ),
    }


def _are_many(topics: Iterable[Topic]) -> bool:
    """Whether there are too many topics and partitions to encode them on the event loop."""
    count = 0
    for topic in topics:
        count += 1 + topic.partition_count
        if count > PARTS_INLINE_MAX:
            return True
    return False


async def _later_unless_unwanted(
    request: ProduceRequest, response: Awaitable[ProduceResponse]
) -> Answer:
    return _unless_unwanted(request, await response)


def _unless_unwanted(request: ProduceRequest, response: ProduceResponse) -> Answer:
    """The response, or None for acks 0.

    Raises:
        CloseConnectionError: for acks 0, if a partition has an error.
    """
    if request.acks != Acks.NONE:
        return response
    code = first_error(response)
    if code != ErrorCode.NONE:
        raise CloseConnectionError(f"a produce with acks 0 failed: {code.name}")
    return None
