"""Real connections on an event loop: made in both directions, refused, given up."""

import asyncio
import errno
import logging
import socket
import struct

import pytest

from tailrace.errors import ListenError
from tailrace.runtime.network import (
    ACCEPT_PAUSE_S,
    AcceptedSocket,
    KernelListener,
    Socket,
    SocketNetwork,
    without_front,
)
from tailrace.testing import virtual_runtime


async def connected(
    network: SocketNetwork, host: str, port: int, *, first: int = 0
) -> Socket | OSError:
    """Try to connect, and return the socket or the error."""
    outcome: asyncio.Future[Socket | OSError] = asyncio.get_running_loop().create_future()
    network.connect(host, port, outcome.set_result, first=first)
    assert not outcome.done()
    return await asyncio.wait_for(outcome, 20)


def test_a_connection_reaches_its_listener() -> None:
    """By number and by name, both ends are there and bytes go through."""

    async def main() -> None:
        network = SocketNetwork()
        accepted: asyncio.Queue[Socket] = asyncio.Queue()
        listener = network.listen("127.0.0.1", 0, accepted.put_nowait)
        for host in ("127.0.0.1", "localhost"):
            ours = await connected(network, host, listener.port, first=1)
            assert not isinstance(ours, OSError)
            theirs = await accepted.get()
            assert ours.send([b"hello"]) == 5
            readable = asyncio.Event()
            theirs.watch_reads(readable.set)
            await readable.wait()
            buffer = bytearray(10)
            assert theirs.receive_into(memoryview(buffer)) == 5
            assert buffer[:5] == b"hello"
            ours.close()
            theirs.close()
        listener.close()

    asyncio.run(main())


@pytest.mark.skipif(not socket.has_dualstack_ipv6(), reason="this machine has no IPv6")
def test_a_client_over_ipv4_has_its_own_address_on_a_socket_for_both() -> None:
    """Not that which IPv6 maps it to: Kafka shows, and its rules have, the first."""

    async def main() -> None:
        accepted: asyncio.Queue[AcceptedSocket] = asyncio.Queue()
        listener = SocketNetwork().listen("::", 0, accepted.put_nowait)
        peers = []
        for host in ("127.0.0.1", "::1"):
            with socket.create_connection((host, listener.port)) as ours:
                theirs = await accepted.get()
                peers.append((theirs.peer, f"{host}:{ours.getsockname()[1]}"))
                theirs.close()
        listener.close()
        assert all(peer == own for peer, own in peers)

    asyncio.run(main())


def test_a_flood_of_connections_leaves_the_loop_to_others() -> None:
    """Nine clients wait: four are accepted, four more after a pause, the last after another."""

    async def main() -> None:
        loop = asyncio.get_running_loop()
        accepted_at: list[float] = []
        is_done = asyncio.Event()

        def accept(connection: AcceptedSocket) -> None:
            accepted_at.append(loop.time())
            connection.close()
            if len(accepted_at) == 9:
                is_done.set()

        listener = SocketNetwork().listen("127.0.0.1", 0, accept)
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(9)]
        await asyncio.wait_for(is_done.wait(), 60)
        assert accepted_at[4] - accepted_at[3] >= ACCEPT_PAUSE_S
        assert accepted_at[8] - accepted_at[7] >= ACCEPT_PAUSE_S
        listener.close()
        for client in clients:
            client.close()

    asyncio.run(main())


class ShortOfDescriptors(socket.socket):
    """A listening socket whose process has no descriptor for the first two connections."""

    refused = 0

    def accept(self) -> tuple[socket.socket, object]:
        if self.refused < 2:
            self.refused += 1
            raise OSError(errno.EMFILE, "Too many open files")
        return super().accept()


def test_a_process_without_descriptors_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    """The client waits in the kernel's queue, and is accepted when there is one."""
    caplog.set_level(logging.INFO)
    with (
        virtual_runtime() as outside,
        ShortOfDescriptors() as listening,
        socket.socket() as client,
    ):
        listening.bind(("127.0.0.1", 0))
        listening.listen()
        listening.settimeout(0)
        client.connect(listening.getsockname())

        async def main() -> None:
            accepted: asyncio.Queue[Socket] = asyncio.Queue()
            listener = KernelListener(listening, accepted.put_nowait)
            listener.start()
            (await accepted.get()).close()
            listener.close()

        outside.run(main())
    first, second = (each.getMessage() for each in caplog.records)
    assert first.startswith("connections_not_accepted port=")
    assert "Too many open files" in first
    assert second.startswith("connections_accepted port=")


def test_a_listener_is_closed_by_what_it_accepts() -> None:
    """A callback that closes its listener, at any connection of a row, ends it without an error."""

    async def main(number: int) -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: errors.append(context))
        accepted: list[AcceptedSocket] = []
        has_paused = asyncio.Event()

        def accept(connection: AcceptedSocket) -> None:
            accepted.append(connection)
            if len(accepted) == number:
                listener.close()
                loop.call_later(2 * ACCEPT_PAUSE_S, has_paused.set)

        listener = SocketNetwork().listen("127.0.0.1", 0, accept)
        clients = [socket.create_connection(("127.0.0.1", listener.port)) for _ in range(6)]
        await asyncio.wait_for(has_paused.wait(), 60)
        assert len(accepted) == number
        for connection in accepted:
            connection.close()
        for client in clients:
            client.close()

    errors: list[dict[str, object]] = []
    for number in (1, 4, 5):
        asyncio.run(main(number))
    assert errors == []


def test_failures_are_outcomes() -> None:
    """A closed port and an unknown name are passed to the callback as errors, not raised."""

    async def main() -> None:
        network = SocketNetwork()
        listener = network.listen("127.0.0.1", 0, lambda socket: socket.close())
        listener.close()
        refused = await connected(network, "127.0.0.1", listener.port)
        assert isinstance(refused, ConnectionRefusedError)
        assert isinstance(await connected(network, "no.such.host.invalid", 1), OSError)

    asyncio.run(main())


def test_an_attempt_that_was_given_up_tells_nothing() -> None:
    """After cancel there is no outcome, and nothing keeps the loop."""

    async def main() -> None:
        network = SocketNetwork()
        listener = network.listen("127.0.0.1", 0, lambda socket: socket.close())
        found: list[Socket | OSError] = []
        network.connect("127.0.0.1", listener.port, found.append)()
        cancel = network.connect("127.0.0.1", listener.port, found.append)
        later = connected(network, "127.0.0.1", listener.port)
        cancel()
        ours = await later
        assert not isinstance(ours, OSError)
        ours.close()
        listener.close()
        assert found == []

    asyncio.run(main())


def test_what_is_left_of_buffers() -> None:
    """Sent bytes are taken from the front, across and inside of buffers, empty ones too."""
    buffers: list[bytes | bytearray | memoryview] = [
        b"abc",
        b"",
        bytearray(b"de"),
        memoryview(b"fgh"),
    ]
    whole = b"abcdefgh"
    for size in range(9):
        left = without_front(list(buffers), size)
        assert b"".join(bytes(buffer) for buffer in left) == whole[size:]


def test_a_connection_that_is_not_read_tells_that_its_peer_has_gone() -> None:
    """The close of the peer is reported after its bytes were received; a reset counts too."""

    async def main() -> None:
        network = SocketNetwork()
        accepted: asyncio.Queue[AcceptedSocket] = asyncio.Queue()
        listener = network.listen("127.0.0.1", 0, accepted.put_nowait)
        for is_reset in (False, True):
            ours = socket.create_connection(("127.0.0.1", listener.port))
            theirs = await accepted.get()
            told = [theirs.is_peer_gone]
            readable = asyncio.Event()
            theirs.watch_reads(readable.set)
            if is_reset:
                ours.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
                ours.close()
                await readable.wait()
            else:
                ours.sendall(b"x")
                ours.close()
                await readable.wait()
                told.append(theirs.is_peer_gone)
                assert theirs.receive_into(memoryview(bytearray(10))) == 1
                readable.clear()
                await readable.wait()
            told.append(theirs.is_peer_gone)
            assert told == ([False, True] if is_reset else [False, False, True])
            theirs.close()
        listener.close()

    asyncio.run(main())


def test_a_name_that_no_host_can_have_is_told_with_the_address() -> None:
    """An empty label is a wrong address, and not an error of Python's tables of names."""
    with pytest.raises(ListenError, match=r"cannot listen on a\.\.b:9092"):
        SocketNetwork().listen("a..b", 9092, lambda _: None)
