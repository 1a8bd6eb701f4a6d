"""One TCP connection to one broker: a request goes out, its answer comes back, within a time.

The versions that both sides speak are settled when the connection is opened. PLAINTEXT only.

Not here: which broker to ask, and whether to ask again; see `metadata`.

Invariant: after any error but one in an answer's own fields, the connection is closed. Nobody can
know where in the stream of bytes it stands.
"""

import socket
import time
from collections.abc import Mapping
from typing import NamedTuple, TypeVar

from tailrace.client.errors import UnreachableBrokerError, UnsupportedBrokerError, raise_for
from tailrace.protocol import frames
from tailrace.protocol.apis import APIS, Api, ApiKey
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.api_versions import ApiVersionsRequest, ApiVersionsResponse

M = TypeVar("M", bound=Message)

RECEIVE_BYTES = 1 << 20
"""Most bytes that one call takes from the socket; memory grows only as bytes arrive."""

VERSION_LIMITS: Mapping[int, int] = {ApiKey.FETCH: 12, ApiKey.METADATA: 8}
"""Highest versions that are asked for, where that is less than what can be read.

From v13 on a Fetch names topics by id alone (KIP-516), which not every broker gives out. Metadata
after v8 tells a reader nothing new, and librdkafka's mock cluster (2.16) ends the flexible
versions with a byte too many, which `protocol` refuses.
"""


class BrokerAddress(NamedTuple):
    """Where a broker listens."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


class Connection:
    """A connection on which versions have been settled."""

    def __init__(
        self, channel: socket.socket, *, address: BrokerAddress, client_id: str, timeout_ms: int
    ) -> None:
        self.address = address
        self._channel = channel
        self._client_id = client_id
        self._timeout_ms = timeout_ms
        self._correlation_id = 0
        self._versions: dict[int, int] = {}

    def settle_versions(self) -> None:
        """Ask which requests the broker takes, and choose the highest version of each.

        Asked in version 0, which every broker since 0.10 answers in full.

        Raises:
            UnreachableBrokerError: no answer.
            RemoteFatalError: the broker refuses to say.
        """
        self._versions = {ApiKey.API_VERSIONS: 0}
        answer = self.request(ApiVersionsRequest(), ApiVersionsResponse)
        raise_for(answer.error_code, about=f"{self.address} was asked for its versions")
        offered = {each.api_key: each for each in answer.api_keys}
        for key, api in APIS.items():
            if key in offered and key != ApiKey.API_VERSIONS:
                version = choose_version(
                    api, first=offered[key].min_version, last=offered[key].max_version
                )
                if version is not None:
                    self._versions[key] = version

    def version_of(self, key: ApiKey) -> int:
        """The version in which a request will be sent.

        Raises:
            UnsupportedBrokerError: there is none that both sides speak.
        """
        version = self._versions.get(key)
        if version is None:
            raise UnsupportedBrokerError(
                f"{self.address}: the broker takes no version of {key.title} that this client "
                "speaks; Kafka 2.1 and later do"
            )
        return version

    def request(self, body: Message, response: type[M]) -> M:
        """The answer to a request; records in it are views of its bytes.

        Raises:
            UnreachableBrokerError: the connection broke, or no answer came within the time.
            UnsupportedBrokerError: the broker does not take this request.
            MalformedMessageError: the answer is not one.
        """
        api = next(api for api in APIS.values() if api.request is type(body))
        version = self.version_of(api.key)
        self._correlation_id += 1
        frame = frames.encode_request(
            api,
            body,
            version=version,
            correlation_id=self._correlation_id,
            client_id=self._client_id,
        )
        try:
            answer = self._exchange(frame)
            if frames.read_correlation_id(answer) != self._correlation_id:
                raise MalformedMessageError(
                    f"{self.address} answered another request than {self._correlation_id}",
                    position=0,
                )
            decoded = frames.decode_response(api, version, answer)
        except TimeoutError as error:
            self.close()
            raise UnreachableBrokerError(
                f"no answer to {api.key.title} within {self._timeout_ms} ms; is the broker busy?",
                address=str(self.address),
            ) from error
        except OSError as error:
            self.close()
            raise UnreachableBrokerError(
                f"the connection broke during {api.key.title} ({error}); does the port speak "
                "Kafka without TLS, and is the broker still running?",
                address=str(self.address),
            ) from error
        except BaseException:
            self.close()
            raise
        assert isinstance(decoded, response)
        return decoded

    def close(self) -> None:
        """Release the socket; calling it again does nothing."""
        self._channel.close()

    def _exchange(self, frame: bytes) -> memoryview:
        deadline = time.monotonic() + self._timeout_ms / 1000
        self._wait_until(deadline)
        self._channel.sendall(frame)
        size = frames.read_size(self._receive(frames.SIZE_BYTES, deadline))
        return memoryview(self._receive(size, deadline))

    def _receive(self, size: int, deadline: float) -> bytearray:
        received = bytearray()
        while len(received) < size:
            start = len(received)
            received += bytes(min(size - start, max(RECEIVE_BYTES, start)))
            with memoryview(received) as view:
                while start < len(received):
                    self._wait_until(deadline)
                    count = self._channel.recv_into(view[start:])
                    if not count:
                        raise ConnectionResetError("the broker closed the connection")
                    start += count
        return received

    def _wait_until(self, deadline: float) -> None:
        remaining = deadline - time.monotonic()
        if remaining <= 0:
            raise TimeoutError
        self._channel.settimeout(remaining)


def choose_version(api: Api, *, first: int, last: int) -> int | None:
    """The highest version of `api` that a broker with `first` to `last` takes too, or None."""
    highest = min(api.last_version, last, VERSION_LIMITS.get(api.key, api.last_version))
    return highest if highest >= max(api.first_version, first) else None


def open_connection(address: BrokerAddress, *, client_id: str, timeout_ms: int) -> Connection:
    """A connection to the broker at `address`; `timeout_ms` holds for each step and request.

    Raises:
        UnreachableBrokerError: nobody listens there, or not a Kafka broker without TLS.
        UnsupportedBrokerError: the broker shares no version with this client.
    """
    try:
        channel = socket.create_connection(address, timeout=timeout_ms / 1000)
    except OSError as error:
        raise UnreachableBrokerError(
            f"cannot connect ({error}); is a broker running there, and is the address the one "
            "that it advertises?",
            address=str(address),
        ) from error
    channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    connection = Connection(channel, address=address, client_id=client_id, timeout_ms=timeout_ms)
    try:
        connection.settle_versions()
    except BaseException:
        connection.close()
        raise
    return connection
