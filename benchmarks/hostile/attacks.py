"""Attacks of a hostile client on a broker, on loopback and bounded in time and number.

    python -m benchmarks.hostile.attacks NAME PORT SECONDS

Each attack runs in a process of its own, so that it takes nothing from those who measure but the
processor, and stops by itself.
"""

import random
import selectors
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import crc32c

from tailrace.model import Codec
from tailrace.protocol.apis import APIS, ApiKey
from tailrace.protocol.frames import encode_request
from tailrace.protocol.messages.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from tailrace.records import layout
from tailrace.records.builder import BatchBuilder
from tailrace.records.codecs import compress
from tailrace.server.receiving import INPUT_BYTES

HOST = "127.0.0.1"
TOPIC = "attacked"
PARTITION_COUNT = 50
BOMB_BYTES = 120 * 1024 * 1024
"""Size that a bomb decompresses to: just below the broker's limit, so that all is looked at."""
FRAME_BYTES = 100 * 1024 * 1024
UNFINISHED_COUNT = 20
FLOOD_COUNT = 3000
GARBAGE_BYTES = 64 * 1024

Attack = Callable[[int, float], None]


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A connection to the broker."""
    with socket.create_connection((HOST, port), timeout=120) as connection:
        yield connection


def bomb(codec: Codec, size: int = BOMB_BYTES) -> bytes:
    """One batch of equal records of seven bytes, which decompresses to `size` bytes."""
    builder = BatchBuilder()
    builder.append(None, None, timestamp=0)
    data = bytearray(builder.build())
    record = bytes(data[layout.HEADER_SIZE :])
    count = size // len(record)
    data[layout.HEADER_SIZE :] = compress(codec, record * count)
    view = memoryview(data)
    struct.pack_into(">i", view, layout.LENGTH_POSITION, len(data) - layout.LOG_OVERHEAD)
    struct.pack_into(">hi", view, layout.ATTRIBUTES_POSITION, codec, count - 1)
    struct.pack_into(">i", view, layout.RECORD_COUNT_POSITION, count)
    crc = crc32c.crc32c(view[layout.ATTRIBUTES_POSITION :])
    layout.CRC.pack_into(view, layout.CRC_POSITION, crc)
    return bytes(data)


def produce_frame(*batches: bytes) -> bytes:
    """A request with these batches for as many partitions."""
    data = tuple(
        PartitionProduceData(index=number, records=batch) for number, batch in enumerate(batches)
    )
    request = ProduceRequest(
        acks=-1,
        timeout_ms=10_000,
        topic_data=(TopicProduceData(name=TOPIC, partition_data=data),),
    )
    return encode_request(
        APIS[ApiKey.PRODUCE], request, version=9, correlation_id=1, client_id="hostile"
    )


def bombs(codec: Codec, count: int) -> Attack:
    """Requests with so many bombs each, one after the other on two connections."""

    def attack(port: int, deadline: float) -> None:
        frame = produce_frame(*[bomb(codec)] * count)
        with connected(port) as first, connected(port) as second:
            while time.monotonic() < deadline:
                for connection in (first, second):
                    connection.sendall(frame)
                for connection in (first, second):
                    connection.settimeout(max(deadline - time.monotonic(), 0.01))
                    try:
                        if not connection.recv(65536):
                            return
                    except TimeoutError:
                        return

    return attack


def empty_partitions(port: int, deadline: float) -> None:
    """Frames of 40 MB that name five million partitions and have no record."""
    count = 40 * 1024 * 1024 // 8
    body = struct.pack(">hhiih", -1, -1, 1000, 1, len(TOPIC)) + TOPIC.encode()
    body += struct.pack(">i", count) + struct.pack(">ii", 0, -1) * count
    head = struct.pack(">hhih", ApiKey.PRODUCE, 3, 1, -1)
    frame = struct.pack(">i", len(head) + len(body)) + head + body
    while time.monotonic() < deadline:
        with connected(port) as connection:
            try:
                connection.sendall(frame)
                connection.recv(1)
            except OSError:
                pass  # The broker has closed it, which is the answer.
        time.sleep(0.05)


def lying_lengths(port: int, deadline: float) -> None:
    """A hundred connections that announce 100 MB and send some bytes."""
    held = [socket.create_connection((HOST, port)) for _ in range(100)]
    for connection in held:
        connection.sendall(struct.pack(">ihh", FRAME_BYTES, ApiKey.PRODUCE, 9) + bytes(100))
    time.sleep(max(deadline - time.monotonic(), 0))


def unfinished(port: int, deadline: float) -> None:
    """Requests of 100 MB of which all but the last byte is sent, as far as it is taken."""
    chunk = bytes(256 * 1024)
    with selectors.DefaultSelector() as selector:
        for _ in range(UNFINISHED_COUNT):
            connection = socket.create_connection((HOST, port))
            connection.sendall(struct.pack(">ihh", FRAME_BYTES, ApiKey.PRODUCE, 9))
            connection.setblocking(False)  # noqa: FBT003 - the socket's own signature
            selector.register(connection, selectors.EVENT_WRITE, [FRAME_BYTES - 5])
        while time.monotonic() < deadline and selector.get_map():
            for key, _ in selector.select(0.1):
                try:
                    key.data[0] -= key.fileobj.send(chunk[: key.data[0]])  # type: ignore[union-attr]
                except BlockingIOError:
                    continue
                except OSError:
                    key.data[0] = 0
                if not key.data[0]:
                    selector.unregister(key.fileobj)
        time.sleep(max(deadline - time.monotonic(), 0))


def slow_sockets(port: int, deadline: float) -> None:
    """Two hundred connections that send a byte a second of a large request, after its start.

    The start is as long as the broker gives each request memory of its own for.
    """
    held = [socket.create_connection((HOST, port)) for _ in range(200)]
    for connection in held:
        connection.sendall(struct.pack(">ihh", FRAME_BYTES, ApiKey.PRODUCE, 9) + bytes(INPUT_BYTES))
    while time.monotonic() < deadline:
        time.sleep(min(1, max(deadline - time.monotonic(), 0)))
        for connection in tuple(held):
            try:
                connection.send(b"x")
            except OSError:
                held.remove(connection)


def flood(port: int, deadline: float) -> None:
    """Open as many connections as the broker takes, and open those again that it closes."""
    held: list[socket.socket] = []
    while time.monotonic() < deadline:
        try:
            connection = socket.socket()
            connection.settimeout(0.2)
            connection.bind(("127.0.0.2", 0))
            connection.connect((HOST, port))
            held.append(connection)
        except OSError:
            time.sleep(0.01)
        if len(held) > FLOOD_COUNT:
            held.pop(0).close()


def garbage(port: int, deadline: float) -> None:
    """Bytes at random, some of them behind a plausible header."""
    chance = random.Random(1)
    while time.monotonic() < deadline:
        with connected(port) as connection:
            body = chance.randbytes(chance.randrange(GARBAGE_BYTES))
            if chance.random() < 0.7:
                key, version = chance.choice(tuple(APIS)), chance.randrange(13)
                head = struct.pack(">hhih", key, version, 1, -1)
                body = struct.pack(">i", len(head) + len(body)) + head + body
            try:
                connection.sendall(body)
                connection.settimeout(0.05)
                connection.recv(65536)
            except OSError:
                pass  # Closed or not answered: both are right.


ATTACKS: dict[str, Attack] = {
    "one zstd bomb, fresh broker": bombs(Codec.ZSTD, 1),
    "50 zstd bombs in a request": bombs(Codec.ZSTD, PARTITION_COUNT),
    "gzip bombs": bombs(Codec.GZIP, 5),
    "snappy bombs": bombs(Codec.SNAPPY, 1),
    "lz4 bombs": bombs(Codec.LZ4, 1),
    "5 million empty partitions": empty_partitions,
    "lying lengths": lying_lengths,
    "20 unfinished requests of 100 MB": unfinished,
    "slow sockets": slow_sockets,
    "flood of connections": flood,
    "garbage": garbage,
}
"""By name; the first one is to meet a broker that has not loaded its kernels."""


def main() -> None:
    """Run the attack that the arguments name."""
    from benchmarks.hostile.secured_attacks import SECURED_ATTACKS

    name, port, seconds = sys.argv[1:]
    attack = ATTACKS[name] if name in ATTACKS else SECURED_ATTACKS[name].run
    attack(int(port), time.monotonic() + float(seconds))


if __name__ == "__main__":
    main()
