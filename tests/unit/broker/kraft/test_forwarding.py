"""Requests of clients that a controller answers, which a test scripts."""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from functools import partial
from typing import Any, cast
from uuid import UUID

import pytest

from tailrace.broker.kraft.forwarding import ALTERING, FORWARDED, Forwarding
from tailrace.client.config import ClientConfig
from tailrace.cluster.metadata.image import QuotaEntity
from tailrace.model import ANONYMOUS
from tailrace.protocol.answers import CloseConnectionError, Throttled
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.config_resources import ResourceType
from tailrace.protocol.envelopes import address_bytes, principal_bytes
from tailrace.protocol.errors import ErrorCode, MalformedMessageError
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import (
    Caller,
    RequestHeader,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
    read_request_header,
)
from tailrace.protocol.messages.add_raft_voter import AddRaftVoterRequest
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    EntityData,
    EntryData,
)
from tailrace.protocol.messages.alter_configs import (
    AlterableConfig,
    AlterConfigsRequest,
    AlterConfigsResource,
    AlterConfigsResourceResponse,
    AlterConfigsResponse,
)
from tailrace.protocol.messages.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tailrace.protocol.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
)
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.create_partitions import (
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from tailrace.protocol.messages.create_topics import (
    CreatableTopic,
    CreatableTopicResult,
    CreateTopicsRequest,
    CreateTopicsResponse,
)
from tailrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tailrace.protocol.messages.delete_topics import DeleteTopicsRequest, DeleteTopicState
from tailrace.protocol.messages.describe_quorum import DescribeQuorumRequest
from tailrace.protocol.messages.elect_leaders import ElectLeadersRequest, TopicPartitions
from tailrace.protocol.messages.envelope import EnvelopeRequest, EnvelopeResponse
from tailrace.protocol.messages.incremental_alter_configs import (
    IncrementalAlterableConfig,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResource,
    IncrementalAlterConfigsResourceResponse,
    IncrementalAlterConfigsResponse,
)
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
)
from tailrace.protocol.messages.metadata import MetadataRequest
from tailrace.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from tailrace.protocol.messages.unregister_broker import UnregisterBrokerRequest
from tailrace.protocol.messages.update_features import UpdateFeaturesRequest
from tailrace.security.quotas import ClientQuotas, QuotaConfig, QuotaKind
from tailrace.testing import Outside
from tailrace.values import replace
from tests.unit.broker.kraft.scripted import (
    CLIENT,
    LOGIN,
    SILENCE,
    ScriptedController,
    channel_to,
    refuse_logins,
)

CALLER = Caller("192.0.2.7:50000")
LOGGER = int(ResourceType.BROKER_LOGGER)
BROKER = int(ResourceType.BROKER)
TOPIC = int(ResourceType.TOPIC)
NUMBER = 4711
"""The correlation id of a client's request."""

REQUESTS: dict[ApiKey, Message] = {
    ApiKey.CREATE_TOPICS: CreateTopicsRequest(topics=(CreatableTopic(name="t"),)),
    ApiKey.DELETE_TOPICS: DeleteTopicsRequest(
        topics=(DeleteTopicState(name="t"), DeleteTopicState(topic_id=UUID(int=5))),
        topic_names=("t",),
    ),
    ApiKey.CREATE_PARTITIONS: CreatePartitionsRequest(topics=(CreatePartitionsTopic(name="t"),)),
    ApiKey.CREATE_ACLS: CreateAclsRequest(creations=(AclCreation(), AclCreation())),
    ApiKey.DELETE_ACLS: DeleteAclsRequest(filters=(DeleteAclsFilter(),)),
    ApiKey.ELECT_LEADERS: ElectLeadersRequest(
        topic_partitions=(TopicPartitions(topic="t", partitions=(0, 4)),)
    ),
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: AlterPartitionReassignmentsRequest(
        topics=(
            ReassignableTopic(name="t", partitions=(ReassignablePartition(partition_index=4),)),
        )
    ),
    ApiKey.LIST_PARTITION_REASSIGNMENTS: ListPartitionReassignmentsRequest(),
    ApiKey.ALTER_CLIENT_QUOTAS: AlterClientQuotasRequest(
        entries=(EntryData(entity=(EntityData(entity_type="user", entity_name="u"),)),)
    ),
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: AlterUserScramCredentialsRequest(
        deletions=(ScramCredentialDeletion(name="u"),),
        upsertions=(ScramCredentialUpsertion(name="u"), ScramCredentialUpsertion(name="a")),
    ),
    ApiKey.DESCRIBE_QUORUM: DescribeQuorumRequest(),
    ApiKey.UPDATE_FEATURES: UpdateFeaturesRequest(),
    ApiKey.UNREGISTER_BROKER: UnregisterBrokerRequest(),
    ApiKey.ADD_RAFT_VOTER: AddRaftVoterRequest(),
    ApiKey.REMOVE_RAFT_VOTER: RemoveRaftVoterRequest(),
}
"""A request of each forwarded API."""


def frame_of(request: Message, api: Api, version: int | None = None) -> memoryview:
    """A request of a client, without its size."""
    return memoryview(
        encode_request(
            api,
            request,
            version=api.last_version if version is None else version,
            correlation_id=NUMBER,
            client_id="client",
        )
    )[4:]


async def read(found: list[Records] | Awaitable[list[Records]], api: Api, version: int) -> Any:
    """The answer in the buffers of a frame."""
    buffers = found if isinstance(found, list) else await found
    data = b"".join(cast("list[bytes]", buffers))
    assert int.from_bytes(data[:4], "big") == len(data) - 4
    assert int.from_bytes(data[4:8], "big") == NUMBER
    return decode_response(api, version, memoryview(data)[4:])


class Scene:
    """A broker that forwards, and answers all else by `own`."""

    def __init__(self, outside: Outside, config: ClientConfig) -> None:
        self.controller = ScriptedController(outside)
        self.envelopes: list[EnvelopeRequest] = []
        self.answer: Callable[[Any], Any] = lambda request: request
        """Gives the controller's answer to the request of an envelope, or an envelope's."""
        self.own: Callable[[Any], Message] = lambda _: ApiVersionsResponse()
        """Gives this broker's answer."""
        self.throttle_ms = 0
        """The time for which that throttles."""
        self.local: list[Any] = []
        """The requests that this broker has answered."""
        self.controller.answers[EnvelopeRequest] = self._envelope
        self.controllers, self.channel = channel_to(outside, self.controller, config=config)
        self.forwarding = Forwarding(self.controllers, self.channel, outside.runtime.threads)
        self.limits: dict[QuotaEntity, dict[str, float]] = {}
        self.quotas = ClientQuotas(lambda: self.limits, outside.clock, QuotaConfig())
        self.dispatch = self.forwarding.wrap(self._dispatch, self.quotas)

    async def ask(self, request: Message, key: ApiKey, version: int | None = None) -> Any:
        """The answer to a client."""
        api = APIS[key]
        found = self.dispatch(frame_of(request, api, version), CALLER, None)
        return await read(found, api, api.last_version if version is None else version)

    def use_up_time(self) -> None:
        """Have the client be above its quota of request time, by more than a window."""
        self.limits = {QuotaEntity((("client-id", "client"),)): {QuotaKind.REQUEST_TIME: 1.0}}
        counter = self.quotas.find(QuotaKind.REQUEST_TIME, "ANONYMOUS", "client")
        assert counter is not None
        counter.record(1000, self.quotas.now_ms)

    def _envelope(self, envelope: EnvelopeRequest) -> Any:
        self.envelopes.append(envelope)
        frame = memoryview(envelope.request_data)
        header, position = read_request_header(frame)
        answer = self.answer(decode_request(header, frame, position))
        if answer is SILENCE or isinstance(answer, EnvelopeResponse):
            return answer
        data = encode_response(
            APIS[header.api_key],
            answer,
            version=header.api_version,
            correlation_id=header.correlation_id,
        )
        return EnvelopeResponse(response_data=data[4:])

    def _dispatch(self, frame: memoryview, caller: Caller, _: object) -> list[Records]:
        header, position = read_request_header(frame, caller=caller)
        request = None if header.api is None else decode_request(header, frame, position)
        self.local.append(request)
        buffers: list[Records] = [
            encode_response(
                APIS[header.api_key],
                self.own(request),
                version=0 if header.api is None else header.api_version,
                correlation_id=header.correlation_id,
            )
        ]
        return Throttled(buffers, self.throttle_ms) if self.throttle_ms else buffers


@asynccontextmanager
async def scene(outside: Outside, config: ClientConfig = CLIENT) -> AsyncIterator[Scene]:
    """A broker that forwards to one controller."""
    made = Scene(outside, config)
    yield made
    made.forwarding.close()
    made.channel.close()
    await outside.pass_time(0)


def test_the_principal_is_written_as_kafka_writes_it() -> None:
    """The bytes are those that Kafka 4.3.1 has sent."""
    assert principal_bytes(ANONYMOUS).hex() == "0000055573657" + "20a414e4f4e594d4f55530000"


@pytest.mark.parametrize(
    ("peer", "expected"),
    [
        ("192.0.2.7:50000", bytes([192, 0, 2, 7])),
        ("::1:50000", bytes(15) + b"\1"),
        ("[::1]:50000", bytes(15) + b"\1"),
        ("fe80::2%eth0:50000", bytes.fromhex("fe80") + bytes(13) + b"\2"),
        ("memory:1", bytes([127, 0, 0, 1])),
        ("", bytes([127, 0, 0, 1])),
    ],
)
def test_a_client_s_address_is_that_of_its_connection(peer: str, expected: bytes) -> None:
    """The controllers' rules name addresses; Java reads 4 or 16 bytes."""
    assert address_bytes(Caller(peer).host) == expected


async def test_a_forwarded_request_is_answered_by_the_controller(outside: Outside) -> None:
    """The client cannot see who has answered; the broker's own handler is never asked."""
    async with scene(outside) as on:
        made = CreateTopicsResponse(topics=(CreatableTopicResult(name="t", num_partitions=3),))
        on.answer = lambda _: made
        request = REQUESTS[ApiKey.CREATE_TOPICS]
        assert await on.ask(request, ApiKey.CREATE_TOPICS) == made
        (envelope,) = on.envelopes
        assert envelope.request_data == bytes(frame_of(request, APIS[ApiKey.CREATE_TOPICS]))
        assert envelope.request_principal == principal_bytes(ANONYMOUS)
        assert envelope.client_host_address == bytes([192, 0, 2, 7])
        assert on.local == []


async def test_other_requests_are_the_broker_s_own(outside: Outside) -> None:
    """Also one for an API or a version that is not served, and bytes that are no request."""
    async with scene(outside) as on:
        on.own = lambda _: APIS[ApiKey.METADATA].response()
        await on.ask(MetadataRequest(), ApiKey.METADATA)
        assert on.local == [MetadataRequest()]
        for frame in (b"", b"\0", b"\0\3", b"\0\x13\0\1"):
            with pytest.raises(MalformedMessageError):
                on.dispatch(memoryview(frame), CALLER, None)
        assert on.envelopes == []


@pytest.mark.parametrize("key", sorted(FORWARDED))
async def test_without_a_controller_a_client_is_answered_that_the_time_is_over(
    outside: Outside, key: ApiKey
) -> None:
    """In each version, in the place that its client looks at; after a minute, as in Kafka."""
    async with scene(outside) as on:
        on.controller.kill()
        for version in APIS[key].versions:
            began = outside.loop.time()
            answer = await on.ask(REQUESTS[key], key, version)
            assert 59 < outside.loop.time() - began < 61
            assert ErrorCode.REQUEST_TIMED_OUT in codes_of(answer)
            assert set(codes_of(answer)) == {ErrorCode.REQUEST_TIMED_OUT}


def codes_of(answer: Any) -> list[int]:
    """Every error code of an answer, those of its parts too."""
    found: list[int] = []
    for name in answer.__dataclass_fields__:
        value = getattr(answer, name)
        if name == "error_code":
            found.append(value)
        for part in value if isinstance(value, tuple) else ():
            if hasattr(part, "__dataclass_fields__"):
                found += codes_of(part)
    # Version 0 of ElectLeaders has no error for all, and reads as none.
    return [each for each in found if each] or found


async def test_a_refusal_names_all_that_was_asked(outside: Outside) -> None:
    """A client finds its topics, partitions and users in the answer."""
    async with scene(outside) as on:
        on.answer = lambda _: EnvelopeResponse(error_code=ErrorCode.INVALID_REQUEST)
        topics = await on.ask(REQUESTS[ApiKey.CREATE_TOPICS], ApiKey.CREATE_TOPICS)
        assert [(each.name, each.error_code) for each in topics.topics] == [("t", -1)]
        gone = await on.ask(REQUESTS[ApiKey.DELETE_TOPICS], ApiKey.DELETE_TOPICS)
        assert [(each.name, each.topic_id.int) for each in gone.responses] == [
            ("t", 0),
            (None, 5),
        ]
        old = await on.ask(REQUESTS[ApiKey.DELETE_TOPICS], ApiKey.DELETE_TOPICS, 1)
        assert [each.name for each in old.responses] == ["t"]
        elected = await on.ask(REQUESTS[ApiKey.ELECT_LEADERS], ApiKey.ELECT_LEADERS)
        (result,) = elected.replica_election_results
        assert [each.partition_id for each in result.partition_result] == [0, 4]
        everything = await on.ask(ElectLeadersRequest(topic_partitions=None), ApiKey.ELECT_LEADERS)
        assert (everything.error_code, everything.replica_election_results) == (-1, ())
        key = ApiKey.ALTER_PARTITION_REASSIGNMENTS
        moved = await on.ask(REQUESTS[key], key)
        assert [each.partition_index for each in moved.responses[0].partitions] == [4]
        key = ApiKey.ALTER_USER_SCRAM_CREDENTIALS
        assert [each.user for each in (await on.ask(REQUESTS[key], key)).results] == ["a", "u"]
        key = ApiKey.ALTER_CLIENT_QUOTAS
        (entry,) = (await on.ask(REQUESTS[key], key)).entries
        assert entry.entity[0].entity_name == "u"
        assert len((await on.ask(REQUESTS[ApiKey.CREATE_ACLS], ApiKey.CREATE_ACLS)).results) == 2


async def test_a_version_that_the_controller_lacks_ends_the_connection(outside: Outside) -> None:
    """The client connects again, and asks for the versions that there are now."""
    async with scene(outside) as on:
        on.answer = lambda _: EnvelopeResponse(error_code=ErrorCode.UNSUPPORTED_VERSION)
        with pytest.raises(CloseConnectionError, match="CreateTopics version 7"):
            await on.ask(REQUESTS[ApiKey.CREATE_TOPICS], ApiKey.CREATE_TOPICS)


async def test_a_controller_without_envelopes_is_an_error_of_the_broker(outside: Outside) -> None:
    """And no hint for the client: nothing that it could do would help."""
    async with scene(outside) as on:
        on.controller.versions[ApiKey.ENVELOPE] = (0, -1)
        answer = await on.ask(REQUESTS[ApiKey.CREATE_TOPICS], ApiKey.CREATE_TOPICS)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_refused_login_of_the_broker_is_no_error_of_the_client(outside: Outside) -> None:
    """The client gets UNKNOWN_SERVER_ERROR, and the broker's log has the reason."""
    async with scene(outside, LOGIN) as on:
        refuse_logins(on.controller)
        answer = await on.ask(REQUESTS[ApiKey.CREATE_TOPICS], ApiKey.CREATE_TOPICS)
        assert answer.topics[0].error_code == ErrorCode.UNKNOWN_SERVER_ERROR


async def test_a_malformed_request_ends_the_connection(outside: Outside) -> None:
    """The controller cannot read it, and neither can this broker."""
    async with scene(outside) as on:
        on.controller.answers[EnvelopeRequest] = lambda _: EnvelopeResponse(
            error_code=ErrorCode.INVALID_REQUEST
        )
        frame = bytes(frame_of(REQUESTS[ApiKey.CREATE_TOPICS], APIS[ApiKey.CREATE_TOPICS]))
        found = on.dispatch(memoryview(frame[:-9]), CALLER, None)
        assert not isinstance(found, list)
        with pytest.raises(MalformedMessageError):
            await found


async def test_the_broker_asks_for_itself_as_for_a_client(outside: Outside) -> None:
    """A Metadata request creates a topic that way, in a version that the controller has."""
    async with scene(outside) as on:
        made = CreateTopicsResponse(topics=(CreatableTopicResult(name="t", num_partitions=3),))
        on.answer = lambda _: made
        on.controller.versions[ApiKey.CREATE_TOPICS] = (2, 4)
        on.forwarding.start()
        on.controllers.answered(on.controller.node)
        await outside.pass_time(0.1)
        request = CreateTopicsRequest(topics=(CreatableTopic(name="t"),))
        client = RequestHeader(ApiKey.METADATA, 12, 1, "who-asks", CALLER)
        answer = await on.forwarding.ask(request, CreateTopicsResponse, client=client)
        assert answer.topics[0].name == "t"
        (envelope,) = on.envelopes
        header, _ = read_request_header(memoryview(envelope.request_data))
        assert (header.api_version, header.client_id) == (4, "who-asks")
        assert envelope.client_host_address == bytes([192, 0, 2, 7])


def _given(answer: Any, _: Any) -> Any:
    """The same answer, whatever is asked."""
    return answer


@pytest.mark.parametrize("key", sorted(FORWARDED | ALTERING))
async def test_the_longer_throttle_time_counts(outside: Outside, key: ApiKey) -> None:
    """The client's connection is this broker's, so it waits for the controller's time, too."""
    api = APIS[key]
    make: Any = api.response
    has_time = key is not ApiKey.DESCRIBE_QUORUM
    async with scene(outside) as on:
        on.use_up_time()
        for version in api.versions:
            for theirs_ms, due_ms in ((0, 1000), (400, 1000), (2500, 2500)):
                fields = {"throttle_time_ms": theirs_ms} if has_time else {}
                on.answer = partial(_given, make(**fields))
                request = REQUESTS.get(key) or api.request()
                found = on.dispatch(frame_of(request, api, version), CALLER, None)
                buffers = found if isinstance(found, list) else await found
                assert isinstance(buffers, Throttled)
                assert buffers.throttle_ms == (due_ms if has_time else 1000)
                if has_time:
                    answer = await read(buffers, api, version)
                    assert answer.throttle_time_ms == due_ms


async def test_without_a_quota_a_forwarded_request_is_not_throttled(outside: Outside) -> None:
    """Its answer passes as the controller has written it."""
    async with scene(outside) as on:
        made = CreateTopicsResponse(topics=(CreatableTopicResult(name="t", num_partitions=3),))
        on.answer = lambda _: made
        api = APIS[ApiKey.CREATE_TOPICS]
        found = on.dispatch(frame_of(REQUESTS[ApiKey.CREATE_TOPICS], api), CALLER, None)
        buffers = found if isinstance(found, list) else await found
        assert not isinstance(buffers, Throttled)


# -- versions ---------------------------------------------------------------------------------


def offered(answer: ApiVersionsResponse) -> dict[int, tuple[int, int]]:
    """The versions in an answer, by API."""
    return {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}


OURS = ApiVersionsResponse(
    api_keys=tuple(
        ApiVersion(
            api_key=key, min_version=api.advertised_first_version, max_version=api.last_version
        )
        for key, api in APIS.items()
    )
)


@pytest.mark.parametrize("version", [0, 2, 3, 4])
async def test_a_client_is_offered_what_the_controller_has(outside: Outside, version: int) -> None:
    """For forwarded APIs only; one that the controller lacks is left out."""
    async with scene(outside) as on:
        on.own = lambda _: OURS
        request = ApiVersionsRequest(client_software_name="c", client_software_version="1")
        # Before a controller is known, the broker's own.
        assert offered(await on.ask(request, ApiKey.API_VERSIONS, version)) == offered(OURS)
        on.controller.versions = {
            ApiKey.CREATE_TOPICS: (3, 5),
            ApiKey.DELETE_TOPICS: (0, 99),
            ApiKey.UPDATE_FEATURES: (0, -1),
            ApiKey.CREATE_PARTITIONS: (9, 12),
            ApiKey.FETCH: (4, 5),
        }
        on.forwarding.start()
        on.controllers.answered(on.controller.node)
        await outside.pass_time(0.1)
        for _ in range(2):
            found = offered(await on.ask(request, ApiKey.API_VERSIONS, version))
            assert found[ApiKey.CREATE_TOPICS] == (3, 5)
            assert found[ApiKey.DELETE_TOPICS] == (1, 6)
            assert found[ApiKey.FETCH] == (4, 18)
            missing = set(APIS) - set(found)
            assert missing == {ApiKey.UPDATE_FEATURES, ApiKey.CREATE_PARTITIONS}


async def test_an_answer_that_is_cut_throttles_as_before(outside: Outside) -> None:
    """The client is told to be silent for a time, and is not read meanwhile."""
    async with scene(outside) as on:
        on.own = lambda _: replace(OURS, throttle_time_ms=700)
        on.throttle_ms = 700
        on.controller.versions = {ApiKey.CREATE_TOPICS: (3, 5)}
        on.forwarding.start()
        on.controllers.answered(on.controller.node)
        await outside.pass_time(0.1)
        api = APIS[ApiKey.API_VERSIONS]
        found = on.dispatch(frame_of(ApiVersionsRequest(), api), CALLER, None)
        assert isinstance(found, Throttled)
        assert found.throttle_ms == 700
        assert offered(await read(found, api, api.last_version))[ApiKey.CREATE_TOPICS] == (3, 5)


async def test_a_newer_client_s_request_for_versions_is_cut_too(outside: Outside) -> None:
    """Its version is not known here, and it is answered in version 0 (KIP-511)."""
    async with scene(outside) as on:
        code = ErrorCode.UNSUPPORTED_VERSION
        on.own = lambda _: ApiVersionsResponse(error_code=code, api_keys=OURS.api_keys)
        on.controller.versions = {ApiKey.CREATE_TOPICS: (3, 5)}
        on.controllers.answered(on.controller.node)
        on.forwarding.start()
        await outside.pass_time(0.1)
        api = APIS[ApiKey.API_VERSIONS]
        frame = bytearray(frame_of(ApiVersionsRequest(), api, 4))
        frame[2:4] = b"\0\x63"
        answer = await read(on.dispatch(memoryview(frame), CALLER, None), api, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert offered(answer)[ApiKey.CREATE_TOPICS] == (3, 5)


async def test_the_next_controller_s_versions_count_when_it_is_found(outside: Outside) -> None:
    """One that is updated first may have more, one that is updated last fewer."""
    async with scene(outside) as on:
        on.own = lambda _: OURS
        on.controller.versions = {ApiKey.CREATE_TOPICS: (3, 5)}
        on.forwarding.start()
        on.controllers.answered(on.controller.node)
        await outside.pass_time(0.1)
        second = ScriptedController(outside, 3001)
        on.controllers.tell(second.node)
        on.controllers.answered(second.node)
        await outside.pass_time(0.1)
        found = offered(await on.ask(ApiVersionsRequest(), ApiKey.API_VERSIONS, 0))
        assert found[ApiKey.CREATE_TOPICS] == (2, 7)


# -- settings ---------------------------------------------------------------------------------


def altering(*resources: tuple[int, str], **config: Any) -> IncrementalAlterConfigsRequest:
    """A request that sets one setting of each resource."""
    change = IncrementalAlterableConfig(**{"name": "a", "value": "1", **config})
    return IncrementalAlterConfigsRequest(
        resources=tuple(
            IncrementalAlterConfigsResource(
                resource_type=kind, resource_name=name, configs=(change,)
            )
            for kind, name in resources
        )
    )


def altered(code: int, message: str) -> Callable[[Any], Message]:
    """Answers with this code for every resource."""

    def answer(request: IncrementalAlterConfigsRequest) -> Message:
        return IncrementalAlterConfigsResponse(
            responses=tuple(
                IncrementalAlterConfigsResourceResponse(
                    error_code=code,
                    error_message=message,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in request.resources
            )
        )

    return answer


def results(answer: Any) -> list[tuple[str, int, str | None]]:
    """The results of a request to alter settings."""
    return [(each.resource_name, each.error_code, each.error_message) for each in answer.responses]


KEY = ApiKey.INCREMENTAL_ALTER_CONFIGS


async def test_settings_of_the_cluster_pass_as_they_are(outside: Outside) -> None:
    """Topics, groups and subscriptions: not one byte is changed."""
    async with scene(outside) as on:
        on.answer = altered(0, "controller")
        request = altering(
            (TOPIC, "t"), (int(ResourceType.GROUP), "g"), (int(ResourceType.CLIENT_METRICS), "m")
        )
        answer = await on.ask(request, KEY)
        assert results(answer) == [(name, 0, "controller") for name in "tgm"]
        assert on.envelopes[0].request_data == bytes(frame_of(request, APIS[KEY]))
        assert on.local == []


async def test_loggers_are_altered_here(outside: Outside) -> None:
    """They are those of this process; the results are in the order of the request."""
    async with scene(outside) as on:
        on.answer, on.own = altered(0, "controller"), altered(0, "here")
        answer = await on.ask(altering((TOPIC, "t"), (LOGGER, "1"), (TOPIC, "u")), KEY)
        assert results(answer) == [("t", 0, "controller"), ("1", 0, "here"), ("u", 0, "controller")]
        assert [each.resource_name for each in on.local[0].resources] == ["1"]
        assert not on.local[0].validate_only
        answer = await on.ask(altering((LOGGER, "1")), KEY)
        assert results(answer) == [("1", 0, "here")]
        assert len(on.envelopes) == 1


async def test_settings_of_a_broker_are_checked_here_and_made_there(outside: Outside) -> None:
    """A controller does not know what this broker's settings may be together."""
    async with scene(outside) as on:
        on.answer, on.own = altered(0, "controller"), altered(0, "here")
        assert results(await on.ask(altering((BROKER, "1")), KEY)) == [("1", 0, "controller")]
        assert on.local[0].validate_only
        on.own = altered(int(ErrorCode.INVALID_CONFIG), "here")
        answer = await on.ask(altering((BROKER, "1"), (TOPIC, "t")), KEY)
        assert results(answer) == [("1", 40, "here"), ("t", 0, "controller")]
        assert len(on.envelopes) == 2


@pytest.mark.parametrize(
    "request_",
    [
        altering((TOPIC, "t"), (TOPIC, "t")),
        altering((77, "t")),
        altering((TOPIC, "t"), value=None),
        IncrementalAlterConfigsRequest(
            resources=(
                IncrementalAlterConfigsResource(
                    resource_type=TOPIC,
                    resource_name="t",
                    configs=(IncrementalAlterableConfig(name="a", value="1"),) * 2,
                ),
            )
        ),
    ],
)
async def test_a_request_that_contradicts_itself_is_refused_here(
    outside: Outside, request_: IncrementalAlterConfigsRequest
) -> None:
    """Kafka's controllers count on it that no broker forwards such a request."""
    async with scene(outside) as on:
        on.own = altered(int(ErrorCode.INVALID_REQUEST), "here")
        answer = await on.ask(request_, KEY)
        assert {each[1:] for each in results(answer)} == {(42, "here")}
        assert on.envelopes == []


async def test_a_deleted_setting_needs_no_value(outside: Outside) -> None:
    """So it is the controller's."""
    async with scene(outside) as on:
        on.answer = altered(0, "controller")
        answer = await on.ask(altering((TOPIC, "t"), config_operation=1, value=None), KEY)
        assert results(answer) == [("t", 0, "controller")]


async def test_a_resource_that_the_controller_leaves_out_is_an_error(outside: Outside) -> None:
    """The client must not take another's result for it."""
    async with scene(outside) as on:
        on.answer = lambda _: altered(0, "controller")(altering((TOPIC, "x")))
        on.own = altered(0, "here")
        answer = await on.ask(altering((LOGGER, "1"), (TOPIC, "t")), KEY)
        assert [each[:2] for each in results(answer)] == [("1", 0), ("t", -1)]


async def test_the_throttle_time_of_a_part_is_that_of_the_whole(outside: Outside) -> None:
    """The request is cut in two, and its client gets one answer."""
    async with scene(outside) as on:
        on.use_up_time()
        on.answer, on.own = altered(0, "controller"), altered(0, "here")
        request = altering((TOPIC, "t"), (LOGGER, "1"))
        found = on.dispatch(frame_of(request, APIS[KEY]), CALLER, None)
        buffers = found if isinstance(found, list) else await found
        assert isinstance(buffers, Throttled)
        answer = await read(buffers, APIS[KEY], APIS[KEY].last_version)
        assert answer.throttle_time_ms == buffers.throttle_ms == 1000


async def test_without_a_controller_only_its_part_fails(outside: Outside) -> None:
    """The loggers are set."""
    async with scene(outside) as on:
        on.controller.kill()
        on.own = altered(0, "here")
        answer = await on.ask(altering((LOGGER, "1"), (TOPIC, "t")), KEY)
        assert [each[:2] for each in results(answer)] == [
            ("1", 0),
            ("t", ErrorCode.REQUEST_TIMED_OUT),
        ]


async def test_the_older_request_is_cut_in_the_same_way(outside: Outside) -> None:
    """AlterConfigs replaces all settings of a resource, and has no operations."""
    async with scene(outside) as on:
        asked: list[Any] = []

        def answer(request: Any) -> Any:
            asked.append(request)
            return AlterConfigsResponse()

        on.answer = answer
        resources = tuple(
            AlterConfigsResource(
                resource_type=TOPIC,
                resource_name=name,
                configs=(AlterableConfig(name="a", value=value),),
            )
            for name, value in (("t", "1"), ("null", None))
        )
        on.own = lambda request: AlterConfigsResponse(
            responses=tuple(
                AlterConfigsResourceResponse(
                    error_code=ErrorCode.INVALID_REQUEST,
                    resource_type=each.resource_type,
                    resource_name=each.resource_name,
                )
                for each in request.resources
            )
        )
        found = await on.ask(AlterConfigsRequest(resources=resources), ApiKey.ALTER_CONFIGS)
        assert [each[:2] for each in results(found)] == [("t", -1), ("null", 42)]
        assert [each.resource_name for each in asked[0].resources] == ["t"]
