"""Functions for all handlers of groups: they name the client, and ask the group's shard."""

from collections.abc import Callable
from typing import TypeVar

from tailrace.coordinator.groups.all_groups import AllGroupsMachine
from tailrace.coordinator.machine import Client, Decision
from tailrace.errors import TailraceError
from tailrace.handlers.services import Services, error_code
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader

T = TypeVar("T")


def client_of(header: RequestHeader) -> Client:
    """The client that has sent a request."""
    host = header.peer.rpartition(":")[0]
    return Client(header.client_id or "", host, header.api_version)


async def decide(
    services: Services, group_id: str, decision: Callable[[AllGroupsMachine, int], Decision[T]]
) -> T | ErrorCode:
    """The reply of the group's coordinator, or the code of the error."""
    try:
        return await services.groups.shard_of(group_id).run(decision)
    except TailraceError as error:
        return error_code(error)
