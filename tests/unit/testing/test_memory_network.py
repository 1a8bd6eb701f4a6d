"""The network in memory: order, room, and the faults that a test can switch on."""

import pytest

from tailrace.testing import MemorySocket, Outside, virtual_runtime
from tailrace.testing.network import WINDOW_BYTES


def ends(outside: Outside) -> tuple[MemorySocket, MemorySocket]:
    """Both ends of a new connection."""
    accepted: list[object] = []
    listener = outside.network.listen("host", 0, accepted.append)
    ours = outside.network.open(listener.port)
    (theirs,) = accepted
    assert isinstance(theirs, MemorySocket)
    return ours, theirs


def test_bytes_arrive_in_the_order_in_which_they_were_sent() -> None:
    """A hundred pieces that are all under way at the same time keep their order."""
    with virtual_runtime() as outside:

        async def main() -> None:
            ours, theirs = ends(outside)
            outside.network.delay_s = 1.0
            for number in range(100):
                ours.send([bytes([number])])
            assert await theirs.receive(100) == bytes(range(100))

        outside.run(main())


def test_a_sender_waits_for_room() -> None:
    """Bytes under way count against the window; there is room when the peer has read."""
    with virtual_runtime() as outside:

        async def main() -> None:
            ours, theirs = ends(outside)
            assert ours.send([bytes(WINDOW_BYTES + 1)]) == WINDOW_BYTES
            assert ours.send([b"x"]) is None
            await theirs.receive(10)
            assert ours.send([b"x" * 20]) == 10

        outside.run(main())


def test_bytes_can_be_held_and_lost() -> None:
    """Held bytes arrive when they are let go, and their end behind them; lost ones never do."""
    with virtual_runtime() as outside:

        async def main() -> None:
            ours, theirs = ends(outside)
            ours.loses_sends = True
            assert ours.send([b"lost"]) == 4
            ours.loses_sends = False
            ours.hold()
            ours.send([b"held"])
            ours.close()
            await outside.pass_time(10)
            assert theirs.receive_into(memoryview(bytearray(10))) is None
            ours.release()
            assert await theirs.receive(100) == b"held"

        outside.run(main())


def test_a_connection_is_made_in_a_later_turn() -> None:
    """Connecting tells a socket, a refusal, or an unknown host, and nothing on a silent port."""
    with virtual_runtime() as outside:

        async def main() -> None:
            network = outside.network
            listener = network.listen("host", 0, lambda _socket: None)
            network.unknown_hosts.add("nowhere")
            found: list[object] = []
            network.connect("host", listener.port, found.append)
            network.connect("nowhere", listener.port, found.append)
            network.connect("host", 9, found.append)
            network.connect("host", listener.port, found.append)()
            assert found == []
            await outside.pass_time(0.001)
            assert [type(each).__name__ for each in found] == [
                "MemorySocket",
                "gaierror",
                "ConnectionRefusedError",
            ]
            network.silent_ports.add(listener.port)
            network.connect("host", listener.port, found.append)
            await outside.pass_time(100)
            assert len(found) == 3
            assert network.connections == [found[0]]

        outside.run(main())


def test_a_connection_to_a_closed_port_is_refused() -> None:
    """Opening a connection to a closed port is refused at once."""
    with virtual_runtime() as outside, pytest.raises(ConnectionRefusedError):
        outside.network.open(9)
