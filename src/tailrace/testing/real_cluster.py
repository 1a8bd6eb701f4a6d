"""`real_cluster`: a `ScriptedCluster` on real sockets, for clients that have threads.

    with real_cluster() as cluster:
        cluster.create_topic("t")
        cluster.script.add(ApiKey.END_TXN, FaultKind.LOSE_REPLY)
        with Producer(bootstrap_servers=cluster.bootstrap) as producer: ...

Time is real, so a test that waits for a timeout sets a short one. Prefer virtual time if possible;
see `cluster`.
"""

import asyncio
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace
from typing import TYPE_CHECKING, cast

from tailrace.runtime.network import SocketNetwork
from tailrace.testing.cluster import ScriptedCluster

if TYPE_CHECKING:
    from tailrace.testing.outside import Outside


@contextmanager
def real_cluster(*, nodes: int = 1) -> Iterator[ScriptedCluster]:
    """A cluster on 127.0.0.1, on a thread of its own until the end of the block."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, name="cluster", daemon=True)
    thread.start()

    async def start() -> ScriptedCluster:
        # A cluster uses only these two attributes of `Outside`.
        outside = cast("Outside", SimpleNamespace(loop=loop, network=SocketNetwork()))
        cluster = ScriptedCluster(outside, nodes=nodes, host="127.0.0.1")
        cluster.start()
        return cluster

    async def stop() -> None:
        for node in cluster.nodes.values():
            node.kill()
        loop.call_soon(loop.stop)

    cluster = asyncio.run_coroutine_threadsafe(start(), loop).result()
    try:
        yield cluster
    finally:
        asyncio.run_coroutine_threadsafe(stop(), loop)
        thread.join()
        loop.close()
