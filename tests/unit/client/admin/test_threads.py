"""An `Admin` that several threads share, on real sockets."""

import signal
import threading
from collections.abc import Iterator
from typing import Any

import pytest

from tailrace import Admin
from tailrace.client.admin import ClosedAdminError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.describe_log_dirs import (
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
)
from tailrace.testing.cluster import ScriptedCluster, ScriptedNode
from tailrace.testing.real_cluster import real_cluster

TIMEOUT_S = 30
DIRECTORIES = DescribeLogDirsResponse(results=(DescribeLogDirsResult(log_dir="/a"),))


class SlowNode:
    """Node 1 of two, which does not answer about its directories."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.cluster = cluster
        self.is_asked = threading.Event()
        cluster.answers[ApiKey.DESCRIBE_LOG_DIRS] = self._answer

    def _answer(self, _: object, node: ScriptedNode, body: Any) -> Message | None:
        del body
        if node.id != 1:
            return DIRECTORIES
        self.is_asked.set()
        return None

    def kill(self) -> None:
        """Close its connections, so that the call about it ends."""
        node = self.cluster.nodes[1]
        self.cluster.outside.loop.call_soon_threadsafe(node.kill)


@pytest.fixture
def slow() -> Iterator[SlowNode]:
    """A cluster of two nodes, one of them slow."""
    with real_cluster(nodes=2) as cluster:
        yield SlowNode(cluster)


def waiting(admin: Admin, slow: SlowNode) -> tuple[threading.Thread, list[Any]]:
    """A thread whose call waits for the slow node, and a list that gets its outcomes."""
    found: list[Any] = []
    thread = threading.Thread(target=lambda: found.append(admin.describe_log_dirs([1])))
    thread.start()
    assert slow.is_asked.wait(TIMEOUT_S)
    return thread, found


def test_calls_of_two_threads_run_at_the_same_time(slow: SlowNode) -> None:
    """A call is answered while another one waits for a slow broker."""
    with Admin(bootstrap_servers=slow.cluster.bootstrap, retries=0) as admin:
        thread, found = waiting(admin, slow)
        assert set(admin.describe_log_dirs([2]).result(2)) == {"/a"}
        assert found == []
        slow.kill()
        thread.join(TIMEOUT_S)
    assert set(found[0].errors) == {1}


def test_a_close_waits_for_calls_and_refuses_further_ones(slow: SlowNode) -> None:
    """The call that is under way has its outcome when `close` returns; the next is refused."""
    admin = Admin(bootstrap_servers=slow.cluster.bootstrap, retries=0)
    thread, found = waiting(admin, slow)
    closing = threading.Thread(target=admin.close)
    closing.start()
    slow.kill()
    closing.join(TIMEOUT_S)
    assert set(found[0].errors) == {1}
    thread.join(TIMEOUT_S)
    with pytest.raises(ClosedAdminError, match="make another one"):
        admin.list_topics()


def test_a_close_in_the_signal_handler_of_a_call_is_refused(slow: SlowNode) -> None:
    """It would wait for the call that waits for it; the client stays open, and the call goes on."""
    raised: list[BaseException] = []

    def handle(*_: object) -> None:
        try:
            admin.close()
        except ClosedAdminError as error:
            raised.append(error)
        slow.kill()

    before = signal.signal(signal.SIGUSR1, handle)
    try:
        with Admin(bootstrap_servers=slow.cluster.bootstrap, retries=0) as admin:
            main = threading.get_ident()

            def interrupt() -> None:
                assert slow.is_asked.wait(TIMEOUT_S)
                signal.pthread_kill(main, signal.SIGUSR1)

            thread = threading.Thread(target=interrupt)
            thread.start()
            assert set(admin.describe_log_dirs([1]).errors) == {1}
            thread.join(TIMEOUT_S)
            assert "in the middle of another call" in str(raised)
            assert set(admin.describe_log_dirs([2]).result(2)) == {"/a"}
    finally:
        signal.signal(signal.SIGUSR1, before)
