"""APIs of what this broker does not have: Kafka's answers where it is not set up, at once."""

import uuid

import pytest

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey, api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.add_raft_voter import AddRaftVoterRequest
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)
from tailrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest
from tailrace.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from tailrace.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from tailrace.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from tailrace.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)
from tailrace.protocol.metadata_records import PartitionChangeRecord, RegisterBrokerRecord
from tailrace.testing import Outside, Peer
from tests.unit.broker.brokers import connect, create_topic, running

NO_AUTHORIZER = "No Authorizer is configured"
NOT_ALLOWED = ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED

PLAIN: dict[str, tuple[Message, ErrorCode, str]] = {
    "handshake": (SaslHandshakeRequest(mechanism="PLAIN"), ErrorCode.ILLEGAL_SASL_STATE, ""),
    "token": (SaslAuthenticateRequest(auth_bytes=b"x"), ErrorCode.ILLEGAL_SASL_STATE, ""),
    "acls": (DescribeAclsRequest(), ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER),
    "new acl": (
        CreateAclsRequest(creations=(AclCreation(),)), ErrorCode.SECURITY_DISABLED, NO_AUTHORIZER,
    ),
    "acl that goes": (
        DeleteAclsRequest(filters=(DeleteAclsFilter(),)), ErrorCode.SECURITY_DISABLED,
        NO_AUTHORIZER,
    ),
    "new token": (CreateDelegationTokenRequest(), NOT_ALLOWED, ""),
    "renewed token": (RenewDelegationTokenRequest(), NOT_ALLOWED, ""),
    "expired token": (ExpireDelegationTokenRequest(), NOT_ALLOWED, ""),
    "tokens": (DescribeDelegationTokenRequest(), NOT_ALLOWED, ""),
    "new voter": (
        AddRaftVoterRequest(cluster_id=None), ErrorCode.UNSUPPORTED_VERSION,
        "Cluster doesn't support adding voter because the kraft.version feature is 0",
    ),
    "voter that goes": (
        RemoveRaftVoterRequest(cluster_id=None), ErrorCode.UNSUPPORTED_VERSION,
        "Cluster doesn't support removing voter because the kraft.version feature is 0",
    ),
    "new voter of another cluster": (
        AddRaftVoterRequest(cluster_id="x"), ErrorCode.INCONSISTENT_CLUSTER_ID,
        'The given id "x" doesn',
    ),
    "registration of nobody": (
        UnregisterBrokerRequest(broker_id=99), ErrorCode.BROKER_ID_NOT_REGISTERED,
        "Broker ID 99 is not currently registered",
    ),
    "own registration": (UnregisterBrokerRequest(broker_id=1), ErrorCode.INVALID_REQUEST, ""),
}  # fmt: skip


@pytest.mark.parametrize(("request_", "code", "words"), PLAIN.values(), ids=PLAIN.keys())
async def test_what_is_not_set_up_is_answered_as_kafka_does(
    outside: Outside, request_: Message, code: ErrorCode, words: str
) -> None:
    """Every version has Kafka's code and words, and the connection lives on."""
    api = api_of(type(request_))
    async with running(outside) as broker:
        peer = connect(outside, broker)
        for version in api.versions:
            answer = await peer.ask(api.key, request_, api.response, version=version)
            assert _code(answer) == code
            assert words in repr(answer)


@pytest.mark.parametrize(
    ("kind", "name", "owner"),
    [
        ("User", "alice", ("User", "alice")),
        ("Robot", "r2", ("Robot", "r2")),
        (None, None, ("User", "ANONYMOUS")),
        ("Robot", "", ("User", "ANONYMOUS")),
    ],
)
async def test_a_refused_token_names_its_owner(
    outside: Outside, kind: str | None, name: str | None, owner: tuple[str, str]
) -> None:
    """The one of the request, else the client; who has asked is always the client."""
    request = CreateDelegationTokenRequest(owner_principal_type=kind, owner_principal_name=name)
    async with running(outside) as broker:
        answer = await connect(outside, broker).ask(
            ApiKey.CREATE_DELEGATION_TOKEN, request, CreateDelegationTokenResponse, version=3
        )
    assert (answer.principal_type, answer.principal_name) == owner
    requester = (answer.token_requester_principal_type, answer.token_requester_principal_name)
    assert requester == ("User", "ANONYMOUS")


def _code(answer: object) -> int:
    """The code of an answer, or of its first part."""
    if hasattr(answer, "error_code"):
        return int(answer.error_code)
    for name in ("results", "filter_results"):
        parts = getattr(answer, name, None)
        if parts:
            return _code(parts[0])
    raise AssertionError(answer)


async def test_another_brokers_registration_ends(outside: Outside) -> None:
    """The partition that it led has no leader, and the next start does not know it."""
    async with running(outside) as broker:
        peer = connect(outside, broker)
        await create_topic(peer, "t")
        topic_id = broker.controller.image.topics["t"].topic_id
        incarnation = uuid.UUID(int=5)
        broker.controller.write(
            lambda _: [
                RecordToWrite(
                    RegisterBrokerRecord(
                        broker_id=7, broker_epoch=3, incarnation_id=incarnation,
                    ), 3,
                ),
                RecordToWrite(
                    PartitionChangeRecord(
                        topic_id=topic_id, partition_id=0, replicas=(1, 7), isr=(7, 1), leader=7,
                        directories=(uuid.UUID(int=1), uuid.UUID(int=1)),
                    ), 1,
                ),
            ]
        )  # fmt: skip
        answer = await _unregister(peer, 7)
        assert (answer.error_code, answer.error_message) == (ErrorCode.NONE, None)
        state = broker.controller.log.image.topics[topic_id].partitions[0]
        assert (state.leader, state.isr) == (-1, (1,))
        assert (await _unregister(peer, 7)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
    async with running(outside) as broker:
        assert 7 not in broker.controller.log.image.brokers
        assert broker.replicas.is_led(TopicPartition("t", 0))


async def _unregister(peer: Peer, broker_id: int) -> UnregisterBrokerResponse:
    request = UnregisterBrokerRequest(broker_id=broker_id)
    return await peer.ask(ApiKey.UNREGISTER_BROKER, request, UnregisterBrokerResponse)
