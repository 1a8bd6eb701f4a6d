"""The pytest plugin, in pytest runs of their own that find it by the entry point of the package."""

from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

pytestmark = pytest.mark.wire

STRICT = (
    "-p", "no:cacheprovider", "--strict-markers", "-W", "error",
    # pytest-asyncio warns of a setting of its own that nobody has set.
    "-W", "ignore::pytest.PytestDeprecationWarning",
)  # fmt: skip


def run(pytester: pytest.Pytester, source: str, *options: str) -> pytest.RunResult:
    """The result of a run of pytest over one module of tests."""
    pytester.makepyfile(source)
    return pytester.runpytest_subprocess(*STRICT, *options)


def test_marks_prepare_the_broker(pytester: pytest.Pytester) -> None:
    """Topics of module, class and test are all there; the nearest mark decides on a setting."""
    run(
        pytester,
        """
        import pytest
        from tailrace.errors import DirectoryError

        pytestmark = [
            pytest.mark.tailrace_topic("module"),
            pytest.mark.tailrace_settings({"num.partitions": 2}, message_max_bytes=2000),
        ]

        @pytest.mark.tailrace_topic("class", partitions=3)
        class TestOrders:
            @pytest.mark.tailrace_topic("test", configs={"message.timestamp.type": "LogAppendTime"})
            @pytest.mark.tailrace_settings(num_partitions=4)
            def test_all(self, tailrace_broker):
                with pytest.raises(DirectoryError, match="its topics: class, module, test"):
                    tailrace_broker.log("none").values()
                tailrace_broker.produce("test", "one", timestamp_ms=1)
                (timestamp,) = tailrace_broker.log("test").timestamps()
                assert timestamp > 1
                with pytest.raises(Exception, match="MESSAGE_TOO_LARGE"):
                    tailrace_broker.produce("test", "x" * 3000)
                tailrace_broker.create_topic("other", partitions=-1)
                assert len(list(tailrace_broker.directory.glob("other-*"))) == 4

        def test_each_test_has_a_broker_of_its_own(tailrace_broker):
            with pytest.raises(DirectoryError, match="its topics: module"):
                tailrace_broker.log("none").values()
        """,
    ).assert_outcomes(passed=2)


def test_a_mark_has_clients_encrypt_and_log_in(pytester: pytest.Pytester) -> None:
    """The nearest mark decides, and the broker's settings for clients reach it."""
    run(
        pytester,
        """
        import pytest
        from tailrace import Producer

        pytestmark = pytest.mark.tailrace_security("SSL")

        @pytest.mark.tailrace_security("SASL_SSL", users={"alice": "secret"})
        def test_alice(tailrace_broker):
            settings = tailrace_broker.client_settings()
            assert settings["security.protocol"] == "SASL_SSL"
            assert 'username="alice"' in settings["sasl.jaas.config"]
            with Producer(settings) as producer:
                producer.send("t", b"v").result(60)
            assert tailrace_broker.log("t").values() == [b"v"]

        def test_nobody(tailrace_broker):
            assert tailrace_broker.client_settings()["security.protocol"] == "SSL"
        """,
    ).assert_outcomes(passed=2)


def test_a_mistake_in_a_mark_is_told_before_the_test(pytester: pytest.Pytester) -> None:
    """The errors say which setting and which argument are wrong."""
    result = run(
        pytester,
        """
        import pytest

        @pytest.mark.tailrace_settings(num_partition=4)
        def test_setting(tailrace_broker): ...

        @pytest.mark.tailrace_topic("a b")
        def test_name(tailrace_broker): ...

        @pytest.mark.tailrace_topic("t", partition=2)
        def test_argument(tailrace_broker): ...
        """,
    )
    result.assert_outcomes(errors=3)
    result.stdout.fnmatch_lines(
        [
            "E *num.partition: no such setting; did you mean num.partitions*",
            "E *create topic a b: INVALID_TOPIC_EXCEPTION*",
            "E *unexpected keyword argument 'partition'*",
        ]
    )


def test_workers_of_xdist_have_brokers_of_their_own(pytester: pytest.Pytester) -> None:
    """Tests in two processes run at the same time, on ports and directories that differ."""
    run(
        pytester,
        """
        import pytest

        @pytest.mark.parametrize("number", range(8))
        def test_one(tailrace_broker, number):
            tailrace_broker.produce("t", str(number))
            tailrace_broker.restart()
            assert tailrace_broker.log("t").values() == [b"%d" % number]
        """,
        "-n", "2",
    ).assert_outcomes(passed=8)  # fmt: skip


def test_workers_of_xdist_have_clusters_of_their_own(pytester: pytest.Pytester) -> None:
    """Clusters with topics and settings by marks, in two processes at the same time."""
    run(
        pytester,
        """
        import pytest
        import tailrace

        pytestmark = pytest.mark.tailrace_settings(min_insync_replicas=2)

        @pytest.mark.tailrace_topic("t", replicas=[[1, 2, 3]])
        @pytest.mark.parametrize("number", range(4))
        def test_one(tailrace_cluster, number):
            servers = tailrace_cluster.bootstrap_servers
            with tailrace.Producer(bootstrap_servers=servers) as producer:
                producer.send("t", str(number).encode()).result()
                tailrace_cluster.kill(1)
                producer.send("t", b"after").result()
            tailrace_cluster.restart(1)
            tailrace_cluster.wait_until_in_sync()
            expected = [b"%d" % number, b"after"]
            assert tailrace_cluster.log("t", broker=1).values() == expected
        """,
        "-n", "2",
    ).assert_outcomes(passed=4)  # fmt: skip


def test_test_cases_of_unittest_have_brokers(pytester: pytest.Pytester) -> None:
    """By a `with` block, or by the fixture where pytest runs them."""
    run(
        pytester,
        """
        import asyncio
        import unittest

        import aiokafka
        import pytest
        from tailrace.testing import TestBroker

        class BlockCase(unittest.TestCase):
            def setUp(self):
                self.broker = self.enterContext(TestBroker())

            def test_block(self):
                self.broker.produce("t", "one")
                self.assertEqual(self.broker.log("t").values(), [b"one"])

        class FixtureCase(unittest.IsolatedAsyncioTestCase):
            @pytest.fixture(autouse=True)
            def broker_of_the_test(self, tailrace_broker):
                self.broker = tailrace_broker

            async def test_fixture(self):
                servers = self.broker.bootstrap_servers
                async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
                    await producer.send_and_wait("t", b"one")
                self.assertEqual(self.broker.log("t").values(), [b"one"])
        """,
    ).assert_outcomes(passed=2)


@pytest.mark.parametrize("mark", ["asyncio", "anyio"])
def test_coroutines_have_brokers(pytester: pytest.Pytester, mark: str) -> None:
    """The broker has a loop of its own, so a test on an event loop talks to it and waits for it."""
    run(
        pytester,
        f"""
        import asyncio

        import aiokafka
        import pytest

        @pytest.fixture
        def anyio_backend():
            return "asyncio"

        @pytest.mark.{mark}
        async def test_orders(tailrace_broker):
            tailrace_broker.create_topic("t")
            servers = tailrace_broker.bootstrap_servers
            fault = tailrace_broker.fail("Produce", error="NOT_LEADER_OR_FOLLOWER", times=1)
            async with aiokafka.AIOKafkaProducer(bootstrap_servers=servers) as producer:
                waiting = asyncio.create_task(
                    asyncio.to_thread(tailrace_broker.log("t").wait_for, 1)
                )
                await producer.send("t", b"one")
                assert [record.value for record in await waiting] == [b"one"]
            assert fault.count == 1
        """,
    ).assert_outcomes(passed=1)


def test_a_run_without_brokers_imports_nothing(pytester: pytest.Pytester) -> None:
    """It has no module of the package but the plugin, which imports no more than pytest has."""
    pytester.makeconftest(
        """
        import sys

        def pytest_unconfigure():
            print("has", sorted(name for name in sys.modules if name.startswith("tailrace")))
        """
    )
    result = run(pytester, "def test_other(): ...")
    result.assert_outcomes(passed=1)
    assert "has ['tailrace', 'tailrace.pytest_plugin']" in result.stdout.str()


def test_a_directory_goes_with_a_test_that_fails(pytester: pytest.Pytester) -> None:
    """The broker of a failed test is ended as any other."""
    result = run(
        pytester,
        """
        def test_fails(tailrace_broker):
            tailrace_broker.produce("t", "one")
            print("directory", tailrace_broker.directory)
            assert tailrace_broker.log("t").values() == [b"two"]
        """,
    )
    result.assert_outcomes(failed=1)
    (line,) = (line for line in result.stdout.lines if line.startswith("directory "))
    assert not Path(line.removeprefix("directory ")).exists()


def test_the_fixture_and_the_marks_are_explained(pytester: pytest.Pytester) -> None:
    """`pytest --fixtures` and `pytest --markers` have a sentence for each."""
    fixtures = pytester.runpytest_subprocess("--fixtures").stdout.str()
    assert "A Kafka broker of this test's own" in fixtures
    assert "Three Kafka brokers of this test's own" in fixtures
    marks = pytester.runpytest_subprocess("--markers").stdout.str()
    assert "@pytest.mark.tailrace_topic(name, *, partitions=1, configs=None):" in marks
    assert "@pytest.mark.tailrace_settings(settings=None, **more):" in marks
