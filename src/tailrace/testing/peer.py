"""A client for one memory connection, for tests: sends protocol messages or raw bytes."""

from typing import TypeVar

from tailrace.protocol.apis import APIS, BETWEEN_NODES, Api, ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import decode_response, encode_request
from tailrace.testing.network import MemorySocket

M = TypeVar("M", bound=Message)


class Peer:
    """Sends requests and reads their responses, in order."""

    def __init__(self, socket: MemorySocket, client_id: str = "test") -> None:
        self.socket = socket
        self._client_id = client_id
        self._correlation_id = 0

    async def ask(
        self, key: ApiKey, request: Message, answer: type[M], *, version: int | None = None
    ) -> M:
        """Send a request and return its response; by default at the highest served version."""
        api = _api(key)
        version = api.last_version if version is None else version
        self.send(key, request, version=version)
        found = decode_response(api, version, memoryview(await self.read_frame()))
        assert isinstance(found, answer)
        return found

    def send(self, key: ApiKey, request: Message, *, version: int | None = None) -> None:
        """Send a request without waiting for the response."""
        api = _api(key)
        self._correlation_id += 1
        frame = encode_request(
            api,
            request,
            version=api.last_version if version is None else version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        self.send_bytes(frame)

    def send_bytes(self, data: bytes) -> None:
        """Send bytes as they are; they must fit the connection's window."""
        assert self.socket.send([data]) == len(data)

    async def read_frame(self) -> bytes:
        """The next frame without its size.

        Raises:
            EOFError: the broker closed the connection instead.
        """
        size = await self.socket.receive(4)
        if len(size) < 4:
            raise EOFError("the connection was closed")
        return await self.socket.receive(int.from_bytes(size, "big"))

    async def is_closed(self) -> bool:
        """Wait until the broker closes the connection or answers; True if it closed."""
        return not await self.socket.receive(1)


def _api(key: ApiKey) -> Api:
    return APIS.get(key) or BETWEEN_NODES[key]
