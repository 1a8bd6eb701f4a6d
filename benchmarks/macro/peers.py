"""Peers of a broker: the least that a Python process can do with the same bytes.

    python -m benchmarks.macro.peers sink PATH FRAME_BYTES RECORDS_AT RECORDS_BYTES
        receives frames of one size, writes the records in each to the file, answers 4 bytes
    python -m benchmarks.macro.peers source PATH
        answers (position, size) with a size and these bytes of the file, by sendfile

Blocking sockets, one connection, no checks, no index, no offsets. The sink is told how large a
frame is and where its records stand, so it needs one call to receive, one to write, one to answer.
"""

import os
import re
import socket
import struct
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from tailrace.client import BrokerAddress

ROOT = Path(__file__).parents[2]
ACKNOWLEDGEMENT = struct.pack(">i", 0)
"""An answer of no bytes, behind its size."""

RANGE = struct.Struct(">qi")
"""Position and size of the bytes wanted from a source."""


@dataclass(frozen=True, slots=True, kw_only=True)
class PeerProcess:
    """A peer that waits for its connection."""

    address: BrokerAddress
    process_id: int


@contextmanager
def peer(*arguments: object) -> Iterator[PeerProcess]:
    """A process of this module with these arguments; killed at the end."""
    command = [sys.executable, "-m", __spec__.name, *map(str, arguments)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as process:
        assert process.stdout is not None
        try:
            found = re.fullmatch(r"(\d+)\n", process.stdout.readline())
            if found is None:
                raise RuntimeError(f"the peer did not start: {command}")
            yield PeerProcess(
                address=BrokerAddress("127.0.0.1", int(found[1])), process_id=process.pid
            )
        finally:
            process.kill()


def run_sink(
    channel: socket.socket, path: str, *, frame_bytes: int, records_at: int, records_bytes: int
) -> None:
    """Write the records of each frame to a new file, which goes when the other side has no more."""
    buffer = memoryview(bytearray(frame_bytes))
    records = buffer[records_at : records_at + records_bytes]
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
    while channel.recv_into(buffer, frame_bytes, socket.MSG_WAITALL) == frame_bytes:
        written = os.write(file, records)
        assert written == records_bytes
        channel.sendall(ACKNOWLEDGEMENT)
    os.close(file)
    os.unlink(path)


def run_source(channel: socket.socket, path: str) -> None:
    """Send ranges of a file, until the other side closes."""
    file = os.open(path, os.O_RDONLY)
    request = bytearray(RANGE.size)
    while channel.recv_into(request, RANGE.size, socket.MSG_WAITALL) == RANGE.size:
        position, size = RANGE.unpack(request)
        channel.sendall(struct.pack(">i", size), socket.MSG_MORE)
        while size:
            sent = os.sendfile(channel.fileno(), file, position, size)
            position += sent
            size -= sent
    os.close(file)


def main(arguments: list[str]) -> None:
    """Listen, print the port, and serve one connection after the other."""
    kind, path, *numbers = arguments
    with socket.create_server(("127.0.0.1", 0)) as server:
        print(server.getsockname()[1], flush=True)
        while True:
            channel, _ = server.accept()
            with channel:
                channel.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
                match kind:
                    case "sink":
                        frame_bytes, records_at, records_bytes = map(int, numbers)
                        run_sink(
                            channel,
                            path,
                            frame_bytes=frame_bytes,
                            records_at=records_at,
                            records_bytes=records_bytes,
                        )
                    case "source":
                        run_source(channel, path)
                    case _:
                        raise SystemExit(__doc__)


if __name__ == "__main__":
    main(sys.argv[1:])
