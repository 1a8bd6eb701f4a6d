"""Requests for what neither broker is set up for, sent to both as bytes: the answers are compared.

Logins, access control, tokens, voters and registrations have one answer each. SCRAM users and
quotas of clients follow from the metadata log, so each request sees what earlier ones have done.
Quotas are only asked for: to set one is refused here, because nothing would keep to it.
"""

import re
import socket
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import closing

from compat import ours
from compat.clients import WAIT_SECONDS
from compat.kafka import Kafka
from compat.report import Report
from tailrace.protocol.apis import api_of
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import decode_response, encode_request
from tailrace.protocol.messages.add_raft_voter import AddRaftVoterRequest, Listener
from tailrace.protocol.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.create_delegation_token import CreateDelegationTokenRequest
from tailrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest
from tailrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
)
from tailrace.protocol.messages.describe_delegation_token import DescribeDelegationTokenRequest
from tailrace.protocol.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    UserName,
)
from tailrace.protocol.messages.expire_delegation_token import ExpireDelegationTokenRequest
from tailrace.protocol.messages.remove_raft_voter import RemoveRaftVoterRequest
from tailrace.protocol.messages.renew_delegation_token import RenewDelegationTokenRequest
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tailrace.protocol.messages.unregister_broker import UnregisterBrokerRequest

_DIRECTORY = uuid.UUID(int=7)


def _set(user: str, mechanism: int = 1, iterations: int = 4096) -> ScramCredentialUpsertion:
    return ScramCredentialUpsertion(
        name=user, mechanism=mechanism, iterations=iterations, salt=b"s", salted_password=b"p" * 32
    )


def _removed(user: str, mechanism: int = 1) -> ScramCredentialDeletion:
    return ScramCredentialDeletion(name=user, mechanism=mechanism)


def _users(*names: str) -> DescribeUserScramCredentialsRequest:
    users = tuple(UserName(name=name) for name in names) or None
    return DescribeUserScramCredentialsRequest(users=users)


def _quotas(
    *parts: tuple[str, int, str | None], strict: bool = False
) -> DescribeClientQuotasRequest:
    components = (
        ComponentData(entity_type=kind, match_type=match, match=name) for kind, match, name in parts
    )
    return DescribeClientQuotasRequest(components=tuple(components), strict=strict)


REQUESTS: Sequence[Message] = (
    SaslHandshakeRequest(mechanism="PLAIN"),
    SaslAuthenticateRequest(auth_bytes=b"x"),
    DescribeAclsRequest(
        resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
    ),
    CreateAclsRequest(
        creations=(
            AclCreation(
                resource_type=2, resource_name="t", principal="User:a", host="*", operation=3,
                permission_type=3,
            ),
        ) * 2
    ),
    CreateAclsRequest(creations=()),
    DeleteAclsRequest(
        filters=(
            DeleteAclsFilter(
                resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1
            ),
        )
    ),
    CreateDelegationTokenRequest(max_lifetime_ms=-1),
    RenewDelegationTokenRequest(hmac=b"x", renew_period_ms=-1),
    ExpireDelegationTokenRequest(hmac=b"x", expiry_time_period_ms=-1),
    DescribeDelegationTokenRequest(owners=None),
    UnregisterBrokerRequest(broker_id=99),
    UnregisterBrokerRequest(broker_id=-1),
    AddRaftVoterRequest(
        cluster_id=None, timeout_ms=1000, voter_id=5, voter_directory_id=_DIRECTORY,
        listeners=(Listener(name="CONTROLLER", host="h", port=5),),
    ),
    RemoveRaftVoterRequest(cluster_id=None, voter_id=5, voter_directory_id=_DIRECTORY),
    _users(),
    _users("x", "x", ""),
    AlterUserScramCredentialsRequest(
        upsertions=(
            _set("a"), _set("b", 2), _set(""), _set("c", 3), _set("d", 1, 4095),
            _set("e", 1, 16_385), _set("g"), _set("g", 2),
        ),
        deletions=(_removed("z"), _removed("y", 0)),
    ),
    _users(),
    _users("b", "a", "nope", "a"),
    AlterUserScramCredentialsRequest(upsertions=(_set("a", 2, 5000),), deletions=(_removed("a"),)),
    AlterUserScramCredentialsRequest(
        upsertions=(_set("a", 2, 5000),), deletions=(_removed("b", 2),)
    ),
    _users(),
    AlterUserScramCredentialsRequest(deletions=(_removed("a"),)),
    AlterUserScramCredentialsRequest(deletions=(_removed("a", 2),)),
    _users(),
    _quotas(),
    *(
        _quotas(*parts)
        for parts in (
            [("", 2, None)], [("user", 2, None)] * 2, [("group", 2, None)], [("user", 0, None)],
            [("user", 1, "x")], [("user", 2, "x")], [("user", 3, None)],
            [("ip", 2, None), ("user", 2, None)],
        )
    ),
)  # fmt: skip
"""The requests, in order."""


def check(report: Report, kafka: Kafka) -> None:
    """Send each request in each version to both brokers; Kafka's directory is new."""
    mine = kafka.directory.with_name(f"{kafka.directory.name}-ours")
    mine.mkdir()
    with kafka, ours.serving(mine) as servers:
        report.check(
            f"{len(REQUESTS)} requests for what is not set up are answered as by Kafka",
            [*_differences(kafka.bootstrap_servers, servers)],
        )


def _differences(theirs: str, mine: str) -> Iterator[str]:
    for request in REQUESTS:
        for version in api_of(type(request)).versions:
            answer = _answer(mine, request, version)
            until = time.monotonic() + WAIT_SECONDS / 4
            # Kafka's broker hears of a change later than its controller.
            while (due := _answer(theirs, request, version)) != answer and _is_question(request):
                if time.monotonic() > until:
                    break
                time.sleep(0.1)
            if due != answer:
                yield f"{request} v{version}: {due} from Kafka, {answer} from us"


def _is_question(request: Message) -> bool:
    return type(request).__name__.startswith("Describe")


def _answer(servers: str, request: Message, version: int) -> str:
    """The words of the response, in one order: users and their mechanisms have none in Kafka."""
    return str(sorted(re.split(r"[,()]+", str(ask(servers, request, version)))))


def ask(servers: str, request: Message, version: int) -> Message:
    """The response of a broker, on a connection of its own."""
    api = api_of(type(request))
    host, _, port = servers.rpartition(":")
    frame = encode_request(api, request, version=version, correlation_id=1, client_id="compat")
    with closing(socket.create_connection((host, int(port)), timeout=WAIT_SECONDS)) as connection:
        connection.sendall(frame)
        with connection.makefile("rb") as answers:
            size = int.from_bytes(answers.read(4), "big")
            return decode_response(api, version, memoryview(answers.read(size)))
