"""`tailrace.testing.machines`: what is left of a process that its disk kills."""

import asyncio
import random
from contextlib import suppress

from tailrace.broker.config import BrokerConfig
from tailrace.runtime.system import Runtime
from tailrace.testing import Outside
from tailrace.testing.files import ProcessKilledError
from tailrace.testing.machines import FIRST_PORT, Link, Machine, NodeNetwork


class Writer:
    """A process that writes each second, beside its stop and whatever fails, and stops in ten."""

    def __init__(self, runtime: Runtime) -> None:
        self.failed = asyncio.Event()
        self._files = runtime.files
        self._files.make_directory("data")
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(1, self._write, 0)

    def _write(self, number: int) -> None:
        self._timer = self._loop.call_later(1, self._write, number + 1)
        with suppress(ProcessKilledError):
            self._files.open(f"data/{number}", create=True).close()

    async def stop(self) -> None:
        """Write for ten seconds more."""
        stopped = asyncio.Event()
        self._loop.call_later(10, stopped.set)
        await stopped.wait()
        self._timer.cancel()

    def kill(self) -> None:
        """Write nothing more."""
        self._timer.cancel()


def test_a_process_that_is_killed_beside_its_stop_ends_at_once(outside: Outside) -> None:
    """It does not go on with its stop when the disk kills nobody any more."""

    async def start_node(_: BrokerConfig, runtime: Runtime) -> Writer:
        return Writer(runtime)

    notes: list[str] = []
    link = Link(1, 2)
    network = NodeNetwork(
        outside.network, 1, controller_id=2, link=lambda *_: link, delay=lambda: 0.0
    )
    machine = Machine(
        {"node.id": "1", "log.dirs": "data", "listeners": f"PLAINTEXT://memory:{FIRST_PORT + 1}"},
        start_node,
        clock=outside.clock,
        network=network,
        chance=random.Random(1),
        note=notes.append,
    )
    outside.loop.call_soon(machine.start)
    outside.run(outside.pass_time(2.5))

    def kill_in_stop() -> None:
        machine.stop()
        machine.crash_at_change(0, loses_power=False)

    outside.loop.call_soon(kill_in_stop)
    outside.run(outside.pass_time(1))
    assert not machine.is_serving
    machine.crash_no_more()
    outside.run(outside.pass_time(20))
    assert notes == ["a broker is killed in open data/2"]
    assert sorted(machine.files.list("data")) == ["0", "1"]
