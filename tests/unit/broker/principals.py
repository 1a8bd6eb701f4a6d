"""Brokers with an authorizer, whose clients are who their client id says."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from tailrace.broker.broker import RunningBroker
from tailrace.broker.config import broker_config
from tailrace.broker.start import start_broker
from tailrace.model import Principal
from tailrace.protocol.apis import api_of
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message, Records
from tailrace.protocol.frames import (
    NOBODY,
    Caller,
    decode_response,
    encode_request,
    read_request_header,
)
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from tailrace.security.acls import AclBinding
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.server.dispatch import ConnectionRepeats, Dispatch
from tailrace.testing import Outside, Peer

M = TypeVar("M", bound=Message)

ADMIN = "test"
"""The client id of a `Peer`, so that all that peers do is allowed."""
SECURED = {"authorizer.class.name": STANDARD_AUTHORIZER, "super.users": f"User:{ADMIN}"}


def by_client_id(dispatch: Dispatch) -> Dispatch:
    """Has each client be the user of its client id."""

    def answer(
        frame: memoryview, caller: Caller = NOBODY, repeats: ConnectionRepeats | None = None
    ) -> list[Records] | Awaitable[list[Records]]:
        name = read_request_header(frame)[0].client_id or ""
        return dispatch(frame, caller._replace(principal=Principal("User", name)), repeats)

    return answer


@asynccontextmanager
async def secured(
    outside: Outside, settings: dict[str, str] | None = None
) -> AsyncIterator[RunningBroker]:
    """A broker with an authorizer, stopped in order at the end; `ADMIN` may do everything."""
    given = {"log.dirs": "data", "listeners": "memory:0", **SECURED, **(settings or {})}
    broker = await start_broker(broker_config(given), outside.runtime, wrap_dispatch=by_client_id)
    try:
        yield broker
    finally:
        await broker.stop()


class User:
    """A user with a connection."""

    def __init__(self, peer: Peer, name: str = ADMIN) -> None:
        self.peer = peer
        self.name = name

    def other(self, name: str) -> "User":
        """Another user of the same connection."""
        return User(self.peer, name)

    async def ask(self, request: Message, answer: type[M], *, version: int | None = None) -> M:
        """The answer to a request, at the highest served version by default."""
        found = await self.answer(request, version=version)
        assert isinstance(found, answer)
        return found

    async def answer(self, request: Message, *, version: int | None = None) -> Any:
        """The answer to a request of any API.

        Raises:
            EOFError: the broker has closed the connection.
        """
        api = api_of(type(request))
        version = api.last_version if version is None else version
        frame = encode_request(api, request, version=version, correlation_id=1, client_id=self.name)
        self.peer.send_bytes(frame)
        return decode_response(api, version, memoryview(await self.peer.read_frame()))

    async def create_acls(self, *bindings: AclBinding) -> None:
        """Make entries."""
        creations = tuple(
            AclCreation(
                resource_type=each.resource,
                resource_name=each.name,
                resource_pattern_type=each.pattern,
                principal=each.principal,
                host=each.host,
                operation=each.operation,
                permission_type=each.permission,
            )
            for each in bindings
        )
        answer = await self.answer(CreateAclsRequest(creations=creations))
        assert {each.error_code for each in answer.results} <= {ErrorCode.NONE}, answer

    async def delete_acls(self, principal: str) -> int:
        """Remove the entries of a principal; returns how many there were."""
        request = DeleteAclsRequest(
            filters=(
                DeleteAclsFilter(
                    resource_type_filter=1, pattern_type_filter=1, operation=1, permission_type=1,
                    resource_name_filter=None, principal_filter=principal, host_filter=None,
                ),
            )
        )  # fmt: skip
        [result] = (await self.answer(request)).filter_results
        assert result.error_code == ErrorCode.NONE, result
        return len(result.matching_acls)
