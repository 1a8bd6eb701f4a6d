"""The least that asyncio does with requests and answers of these sizes: no decoding, no log.

python -m benchmarks.macro.echo REQUEST_BYTES ANSWER_BYTES      prints its port
"""

import asyncio
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.client import BrokerAddress

ROOT = Path(__file__).parents[2]


@dataclass(frozen=True, slots=True, kw_only=True)
class EchoProcess:
    """An echo that takes requests."""

    address: BrokerAddress
    process_id: int


@contextmanager
def echo(*, request_bytes: int, answer_bytes: int) -> Iterator[EchoProcess]:
    """A process of this module; killed at the end."""
    command = [sys.executable, "-m", __spec__.name, str(request_bytes), str(answer_bytes)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            port = int(process.stdout.readline())
            yield EchoProcess(address=BrokerAddress("127.0.0.1", port), process_id=process.pid)
        finally:
            process.kill()


class _Echo(asyncio.Protocol):
    """Answers each `request_bytes` that are received."""

    def __init__(self, request_bytes: int, answer: bytes) -> None:
        self._request_bytes = request_bytes
        self._answer = answer
        self._received = 0
        self._transport: asyncio.WriteTransport | None = None

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the connection."""
        assert isinstance(transport, asyncio.WriteTransport)
        self._transport = transport

    def data_received(self, data: bytes) -> None:
        """Answer the requests that are complete."""
        assert self._transport is not None
        self._received += len(data)
        count, self._received = divmod(self._received, self._request_bytes)
        if count:
            self._transport.write(self._answer * count)


async def _serve(request_bytes: int, answer_bytes: int) -> None:
    answer = (answer_bytes - 4).to_bytes(4, "big") + bytes(answer_bytes - 4)
    server = await asyncio.get_running_loop().create_server(
        lambda: _Echo(request_bytes, answer), "127.0.0.1", 0
    )
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


if __name__ == "__main__":
    asyncio.run(_serve(*map(int, sys.argv[1:])))
