"""`tailrace topic`, `group`, `produce` and `consume` as they are typed, against a real broker."""

import io
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click
import confluent_kafka
import pytest

from tailrace import Broker, Consumer, Producer
from tailrace.cli import commands
from tailrace.errors import TailraceError
from tests.unit.cli.running import closed_run, lines, objects, run, said

pytestmark = pytest.mark.wire

PATIENCE_S = 60


@pytest.fixture(scope="module")
def at(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """The arguments that lead to a broker that creates no topic by itself."""
    settings = {
        "auto.create.topics.enable": False,
        "offsets.topic.num.partitions": 2,
        "group.initial.rebalance.delay.ms": 0,
        # Records of tests are older than a week, and the first look at retention comes after 30 s.
        "log.retention.ms": -1,
    }
    with Broker(tmp_path_factory.mktemp("cli") / "data", settings=settings) as broker:
        yield "--bootstrap", broker.bootstrap_servers


@pytest.fixture
def topic(at: tuple[str, str], request: pytest.FixtureRequest) -> str:
    """A topic of two partitions, for one test."""
    name = "topic-of-" + re.sub(r"\W", "-", request.node.name[5:60])
    lines("topic", "create", name, "--partitions", 2, *at)
    return name


def fill(topic: str, at: tuple[str, str], *, count: int = 20, partition: int = 0) -> None:
    """Send the numbers from 0 on to one partition."""
    given = b"".join(b"%d\n" % number for number in range(count))
    lines("produce", topic, "--partition", partition, *at, given=given)


def consumed(topic: str, at: tuple[str, str], *more: object) -> list[str]:
    """The values that are printed up to the end."""
    return lines("consume", topic, "--exit", *more, *at)


@contextmanager
def member(topic: str, at: tuple[str, str], group: str) -> Iterator[confluent_kafka.Consumer]:
    """A consumer of somebody else's that has joined a group and got its partitions."""
    consumer = confluent_kafka.Consumer(
        {"bootstrap.servers": at[1], "group.id": group, "auto.offset.reset": "earliest",
         "enable.auto.commit": False}
    )  # fmt: skip
    consumer.subscribe([topic])
    deadline = time.monotonic() + PATIENCE_S
    while not consumer.assignment():
        assert time.monotonic() < deadline, "the group did not get its partitions"
        consumer.poll(0.1)
    yield consumer
    consumer.close()


def test_a_topic_is_created_described_altered_and_deleted(at: tuple[str, str]) -> None:
    """The settings shown are those in which it differs; a deletion has to be confirmed."""
    told = lines("topic", "create", "life", "--partitions", 3, "--config", "retention.ms=5", *at)
    assert told == ["created topic life"]
    table = lines("topic", "describe", "life", *at)
    assert table[:2] == ["life: 3 partitions", "  retention.ms=5"]
    assert [line.split() for line in table[3:]] == [
        [str(n), "1", "1", "1", "0", "0"] for n in (0, 1, 2)
    ]
    change = ("--unset", "retention.ms", "--config", "cleanup.policy=compact")
    assert lines("topic", "alter", "life", *change, *at) == ["altered topic life"]
    assert objects("topic", "alter", "life", *change, *at)[0]["unset"] == ["retention.ms"]
    described = objects("topic", "describe", "life", *at)
    assert described[0] == {
        "format": "tailrace.topic/1", "type": "topic", "topic": "life", "internal": False,
        "partitions": 3, "replicas": 1, "configs": {"cleanup.policy": "compact"},
    }  # fmt: skip
    assert [each["partition"] for each in described[1:]] == [0, 1, 2]
    assert "life" in [each["topic"] for each in objects("topic", "list", *at)]
    refused = said("topic", "delete", "life", *at, given=b"y\n")
    assert (
        refused
        == "Error: stdin is not a terminal, so you cannot be asked for confirmation; add --yes"
    )
    assert lines("topic", "delete", "life", "--yes", *at) == ["deleted topic life"]
    assert objects("topic", "create", "life", *at)[0]["type"] == "created"
    assert objects("topic", "delete", "life", "--yes", *at)[0]["type"] == "deleted"
    assert "life" not in [each["topic"] for each in objects("topic", "list", *at)]


def test_mistakes_about_topics_are_told(at: tuple[str, str], topic: str) -> None:
    """One that exists, one that does not, and settings that the broker refuses."""
    assert "(TOPIC_ALREADY_EXISTS)" in said("topic", "create", topic, *at)
    for command in (["topic", "describe"], ["topic", "delete", "--yes"], ["consume"], ["produce"]):
        told = said(*command, "gone", *at, given=b"x\n")
        assert told.startswith("topic 'gone' does not exist; there are: ")
    told = said("topic", "alter", topic, "--config", "retention.ms=soon", *at)
    assert "retention.ms" in told
    assert "(INVALID_CONFIG)" in told


def test_lines_are_sent_and_printed_again(at: tuple[str, str], topic: str) -> None:
    """Keys, headers and empty lines; the last line needs no end."""
    given = b"k1:v1\n\nk2:v:2"
    told = run("produce", topic, "-K", ":", "-H", "h=x", "-p", 1, "-z", "gzip", *at, given=given)
    assert (told.exit_code, told.output) == (0, "")
    form = r"%t %p %o %k=%s %h %S\n"
    assert consumed(topic, at, "-f", form) == [
        f"{topic} 1 0 k1=v1 h=x 2",
        f"{topic} 1 1 = h=x 0",
        f"{topic} 1 2 k2=v:2 h=x 3",
    ]


def test_what_is_typed_is_taken_byte_for_byte(at: tuple[str, str], topic: str) -> None:
    """Spaces of a header, and bytes that are no UTF-8, which Python's arguments have as halves."""
    odd = os.fsdecode(b"\xff")
    options = ("-H", f"h= {odd} ", "-K", odd, "-D", rf"\n{odd}")
    given = b"a\xffb\n\xffc\xffd"
    assert run("produce", topic, *options, "-p", 0, *at, given=given).exit_code == 0
    found = run("consume", topic, "-e", "-f", f"%k={odd}%s[%h]", *at)
    assert found.stdout_bytes == b"a=\xffb[h= \xff ]c=\xffd[h= \xff ]"


def test_objects_go_from_one_topic_to_another(at: tuple[str, str], topic: str) -> None:
    """Bytes, nulls, headers, timestamps and partitions arrive as they were, whatever they are."""
    sent: list[dict[str, Any]] = [
        {"key": key, "value": value, "timestamp": time, "headers": headers, "partition": place}
        for key, value, time, headers, place in (
            ({"hex": "00ff"}, None, 1_700_000_000_000, [["h", None], ["h", "x"]], 0),
            (None, "", -1, [], 1),
            ("", {"hex": "ff" * 3}, -86_400_000, [["", {"hex": "80"}]], 1),
            (None, None, 0, [], 0),
            # Its object has more characters than a record may have bytes.
            ("k", "\1" * 300_000, -(1 << 40), [], 0),
        )
    ]
    given = "\n".join(map(json.dumps, sent)).encode()
    lines("produce", topic, "--json", "--keep-partitions", *at, given=given)
    lines("topic", "create", f"{topic}-2", "--partitions", 2, *at)
    printed = "\n".join(consumed(topic, at, "--json"))
    options = ("--json", "--keep-partitions", "-z", "zstd")
    lines("produce", f"{topic}-2", *options, *at, given=printed.encode())
    found = [json.loads(line) for line in consumed(f"{topic}-2", at, "--json")]
    order = {(each["partition"], each["offset"]): each for each in found}
    assert [{name: each[name] for name in sent[0]} for _, each in sorted(order.items())] == sorted(
        sent, key=lambda each: each["partition"]
    )


def test_places_to_begin_and_to_stop(at: tuple[str, str], topic: str) -> None:
    """Kcat's notation for offsets, counts from the end, and times."""
    given = b"\n".join(b'{"value": "%d", "timestamp": %d}' % (n, 1000 + n) for n in range(20))
    lines("produce", topic, "--json", "-p", 0, *at, given=given)
    numbers = [*map(str, range(20))]
    assert consumed(topic, at) == numbers
    found = run("consume", topic, "-e", "-o", 15, *at)
    assert found.stdout.split() == numbers[15:]
    assert (
        f"offset 15 is out of range for {topic}-1: its log starts at 0 and ends at 0; "
        "reading from 0" in found.stderr
    )
    assert consumed(topic, at, "-o", -3) == numbers[17:]
    assert consumed(topic, at, "-o", -300) == numbers
    assert consumed(topic, at, "-o", "end") == []
    assert consumed(topic, at, "-o", "s@1005", "-o", "e@1008") == numbers[5:8]
    assert consumed(topic, at, "-o", "s@9000") == []
    assert consumed(topic, at, "-c", 2) == numbers[:2]
    assert consumed(topic, at, "-p", 1) == []
    told = said("consume", topic, "-p", 0, "-o", 21, *at)
    assert (
        told
        == f"--offset: offset 21 is out of range for {topic}-0: its log starts at 0 and ends at 20"
    )
    assert "has no partition 7" in said("consume", topic, "-p", "0,7", *at)


def test_a_group_goes_on_where_it_has_stopped(at: tuple[str, str], topic: str) -> None:
    """Printed records are committed, the next run begins behind them, and no lag is unseen."""
    fill(topic, at)
    numbers = [*map(str, range(20))]
    assert consumed(topic, at, "--group", "reader", "-c", 7) == numbers[:7]
    assert consumed(topic, at, "--group", "reader") == numbers[7:]
    fill(topic, at, count=2)
    fill(topic, at, count=3, partition=1)
    described = objects("group", "describe", "reader", *at)
    assert described[0]["state"] == "Empty"
    assert [
        (each["committed_offset"], each["log_end_offset"], each["lag"])
        for each in described
        if each["type"] == "offset"
    ] == [(20, 22, 2), (0, 3, 3)]
    listed = {each["group"]: each for each in objects("group", "list", *at)}
    assert listed["reader"]["state"] == "Empty"


@pytest.mark.parametrize("partitions", [(), ("-p", "0,1")])
@pytest.mark.parametrize("is_aborted", [True, False])
def test_no_lag_is_left_behind_transactions(
    at: tuple[str, str], topic: str, partitions: tuple[str, ...], *, is_aborted: bool
) -> None:
    """Markers and aborted records at the end are not printed, and count as read."""
    with Producer(bootstrap_servers=at[1], transactional_id=topic) as producer:
        with producer.transaction():
            producer.send(topic, b"committed", partition=0)
        if is_aborted:
            with suppress(ZeroDivisionError), producer.transaction():
                for _ in range(5):
                    producer.send(topic, b"aborted", partition=0)
                producer.flush()
                raise ZeroDivisionError
    options = ("--group", f"g-{topic}-{is_aborted}-{len(partitions)}", *partitions)
    assert consumed(topic, at, "--isolation", "read_committed", *options) == ["committed"]
    described = objects("group", "describe", options[1], *at)
    assert [each["lag"] for each in described if each["type"] == "offset"] == [0, 0]


def test_records_behind_the_last_place_are_not_committed(at: tuple[str, str], topic: str) -> None:
    """A batch that reaches beyond e@MS is read in part, and read on from there."""
    with Producer(bootstrap_servers=at[1], linger_ms=1000) as producer:
        for number in range(20):
            producer.send(topic, b"%d" % number, partition=0, timestamp=1000 + number)
    options = ("--group", f"g-{topic}", "-p", "0")
    assert consumed(topic, at, "-o", "e@1008", *options) == [*map(str, range(8))]
    assert consumed(topic, at, *options) == [*map(str, range(8, 20))]


def test_a_group_after_the_end_of_the_log_has_a_negative_lag(
    at: tuple[str, str], topic: str
) -> None:
    """Kafka's tools say so too: the log was lost, or the offset is that of another topic."""
    fill(topic, at, count=10)
    with Consumer(bootstrap_servers=at[1], group_id=f"g-{topic}") as consumer:
        consumer.commit({(topic, 0): 500})
    described = objects("group", "describe", f"g-{topic}", *at)
    assert next(each["lag"] for each in described if each["type"] == "offset") == -490


def test_a_group_is_reset_when_it_is_executed(at: tuple[str, str], topic: str) -> None:
    """Without --execute the offsets are only shown; one outside of the log becomes its end."""
    fill(topic, at)
    consumed(topic, at, "--group", "reset", "-c", 7)

    def reset(*more: object) -> list[int]:
        found = objects("group", "reset", "reset", "--topic", f"{topic}:0", *more, *at)
        return [each["new_offset"] for each in found]

    assert reset("--to", "earliest") == [0]
    assert reset("--shift-by", "-2", "--execute") == [5]
    assert reset("--shift-by", 100) == [20]
    assert reset("--to", "latest") == [20]
    assert reset("--to", "@9999999999999") == [20]
    assert reset("--to", "1h") == [0]
    assert reset("--to", "2001-01-01T00:00:00") == [0]
    table = run("group", "reset", "reset", "--topic", f"{topic}:0", "--to", 99, *at)
    assert table.stdout.splitlines()[1].split()[:3] == [f"{topic}-0", "5", "20"]
    assert "offset 99 is out of range" in table.stdout
    assert "nothing was changed; add --execute" in table.stderr
    assert consumed(topic, at, "--group", "reset", "-p", 0, "-c", 1) == ["5"]


def test_a_group_that_does_not_exist_is_made_by_a_reset(at: tuple[str, str], topic: str) -> None:
    """So a consumer can be told where to begin before it first starts."""
    fill(topic, at)
    lines("group", "reset", "new", "--topic", topic, "--to", "latest", "--execute", *at)
    assert consumed(topic, at, "--group", "new") == []
    assert "'never' does not exist" in said("group", "describe", "never", *at)


def test_a_group_that_has_committed_nothing_cannot_be_shifted(
    at: tuple[str, str], topic: str
) -> None:
    """It is an error that names the topic, not a table without rows."""
    told = said("group", "reset", "nothing", "--topic", topic, "--shift-by", 1, *at)
    assert told == f"nothing to reset: group nothing has committed no offset of {topic}"


def test_a_group_with_members_is_not_touched(at: tuple[str, str], topic: str) -> None:
    """Its members are shown with their partitions, and every change is refused."""
    fill(topic, at)
    with member(topic, at, "busy") as consumer:
        described = objects("group", "describe", "busy", *at)
        assert (described[0]["state"], described[0]["members"]) == ("Stable", 1)
        assert described[1]["partitions"] == [[topic, 0], [topic, 1]]
        table = lines("group", "describe", "busy", *at)
        assert table[2].split()[:5] == [f"{topic}-0", "-", "20", "-", described[1]["member_id"]]
        told = said("group", "reset", "busy", "--topic", topic, "--to", 0, "--execute", *at)
        assert told.startswith("group busy is Stable with 1 member, and can only get other offsets")
        told = said("group", "delete", "busy", "--yes", *at)
        assert told.startswith("group busy is Stable with 1 member, and can only be deleted while")
        told = said("consume", topic, "-p", 0, "--group", "busy", *at)
        assert "does not join the group" in told
        consumer.commit(offsets=[confluent_kafka.TopicPartition(topic, 0, 3)], asynchronous=False)
        told = said("group", "delete-offsets", "busy", "--topic", topic, "--yes", *at)
        assert "(GROUP_SUBSCRIBED_TO_TOPIC)" in told


def test_offsets_and_groups_are_deleted(at: tuple[str, str], topic: str) -> None:
    """First one partition's offset, then the group."""
    fill(topic, at)
    fill(topic, at, partition=1)
    consumed(topic, at, "--group", "old")
    place = ("--topic", f"{topic}:1")
    assert "add --yes" in said("group", "delete-offsets", "old", *place, *at)
    told = lines("group", "delete-offsets", "old", *place, "--yes", *at)
    assert told == [f"deleted offset of {topic}-1"]
    assert "has committed no offset" in said("group", "delete-offsets", "old", *place, *at)
    place = ("--topic", f"{topic}:0")
    (deleted,) = objects("group", "delete-offsets", "old", *place, "--yes", *at)
    assert deleted["partition"] == 0
    consumed(topic, at, "--group", "old")
    both = ("--topic", f"{topic}:0", "--topic", f"{topic}:1")
    assert len(lines("group", "delete-offsets", "old", *both, "--yes", *at)) == 2
    consumed(topic, at, "--group", "old")
    assert lines("group", "delete", "old", "--yes", *at) == ["deleted group old"]
    consumed(topic, at, "--group", "old")
    assert objects("group", "delete", "old", "--yes", *at)[0]["group"] == "old"
    assert "'old' does not exist" in said("group", "delete", "old", "--yes", *at)


def test_a_record_that_is_too_large_is_told_and_the_others_arrive(
    at: tuple[str, str], topic: str
) -> None:
    """The exit code is 1."""
    lines("topic", "alter", topic, "--config", "max.message.bytes=1000", *at)
    given = b"a\n%b\nb\n" % (b"x" * 2000)
    result = run("produce", topic, "-p", 0, *at, given=given)
    assert result.exit_code == 1
    assert "tailrace: not delivered: record 2: " in result.stderr
    assert result.stderr.splitlines()[-1] == "tailrace: 1 of 3 records were not delivered"
    assert consumed(topic, at) == ["a", "b"]


@contextmanager
def started(*arguments: object, **streams: Any) -> Iterator["subprocess.Popen[bytes]"]:
    """A `tailrace` process."""
    with subprocess.Popen(
        [sys.executable, "-m", "tailrace", *map(str, arguments)], stderr=subprocess.PIPE, **streams
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def test_ctrl_c_ends_a_follower_cleanly(at: tuple[str, str], topic: str) -> None:
    """It prints what comes later, and commits what was printed; the exit code is 130."""
    fill(topic, at, count=2)
    command = ("consume", topic, "--group", "follower", *at)
    with started(*command, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        assert [process.stdout.readline() for _ in range(2)] == [b"0\n", b"1\n"]
        fill(topic, at, count=1)
        assert process.stdout.readline() == b"0\n"
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, told) == (130, b"\nstopped\n")
    offset = next(
        each for each in objects("group", "describe", "follower", *at) if each["type"] == "offset"
    )
    assert offset["committed_offset"] == 3


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_group_shares_partitions_with_other_members(
    at: tuple[str, str], topic: str, protocol: str
) -> None:
    """The offset behind the last printed record is committed before another member gets it."""
    group = f"shared-{protocol}"
    fill(topic, at, count=2)
    fill(topic, at, count=3, partition=1)
    more = ("--group", group, "--option", f"group.protocol={protocol}")
    with started("consume", topic, *more, *at, stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        printed = sorted(process.stdout.readline() for _ in range(5))
        assert printed == [b"0\n", b"0\n", b"1\n", b"1\n", b"2\n"]
        settings = {"bootstrap.servers": at[1], "group.id": group, "group.protocol": protocol}
        with Consumer(settings, auto_offset_reset="earliest", enable_auto_commit=False) as other:
            other.subscribe(topic)
            deadline = time.monotonic() + PATIENCE_S
            while not other.assignment():
                assert time.monotonic() < deadline, "the group did not get its partitions"
                assert other.poll(0.1) == []
            (place,) = other.assignment()
            found = other.committed(place)[place]
            assert found is not None
            assert found.offset == 2 + place.partition
        process.send_signal(signal.SIGINT)
        _, told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, told) == (130, b"\nstopped\n")


def test_ctrl_c_while_a_record_leaves_still_commits_it(
    at: tuple[str, str], topic: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without a buffer it is printed before it is noted, as with PYTHONUNBUFFERED."""

    class Pressed(io.BytesIO):
        def write(self, data: Any) -> int:
            written = super().write(data)
            if data:
                signal.raise_signal(signal.SIGINT)
            return written

    fill(topic, at, count=2)
    monkeypatch.setattr(sys, "stdout", io.TextIOWrapper(Pressed()))
    with pytest.raises(click.Abort):
        commands.main(["consume", topic, "--group", "pressed", *at], standalone_mode=False)
    monkeypatch.undo()
    offset = next(
        each for each in objects("group", "describe", "pressed", *at) if each["type"] == "offset"
    )
    assert offset["committed_offset"] == 2


def test_a_reader_that_goes_away_ends_it_quietly(at: tuple[str, str], topic: str) -> None:
    """Behind `head` there is no error, and nothing on stderr."""
    fill(topic, at, count=5)
    reading, writing = os.pipe()
    with started("consume", topic, *at, stdout=writing) as process:
        os.close(writing)
        assert os.read(reading, 1)
        os.close(reading)
        fill(topic, at, count=5)
        _, told = process.communicate(timeout=PATIENCE_S)
    assert (process.returncode, told) == (0, b"")


def test_closed_streams_are_as_dev_null(at: tuple[str, str], topic: str) -> None:
    """Nobody can be asked on a closed stdin, and records are sent with a closed stderr."""
    done = closed_run("<&-", "topic", "delete", topic, *at)
    assert done.returncode == 2
    assert "stdin is not a terminal, so you cannot be asked" in done.stderr
    done = closed_run("2>&-", "produce", topic, *at, given="1\n2\n")
    assert done.returncode == 0
    assert sorted(consumed(topic, at)) == ["1", "2"]


def test_lines_are_sent_while_the_input_goes_on(at: tuple[str, str], topic: str) -> None:
    """A record need not wait for the end of the input."""
    with started("produce", topic, *at, stdin=subprocess.PIPE) as process:
        assert process.stdin is not None
        process.stdin.write(b"now\n")
        process.stdin.flush()
        assert lines("consume", topic, "-c", 1, *at) == ["now"]
        _, told = process.communicate(b"later", timeout=PATIENCE_S)
    assert (process.returncode, told) == (0, b"")
    assert sorted(consumed(topic, at)) == ["later", "now"]


def test_files_are_sent_in_turn(at: tuple[str, str], topic: str, tmp_path: Path) -> None:
    """A delimiter may be any bytes, and a file that is missing is told."""
    (tmp_path / "a").write_bytes(b"1\x002")
    (tmp_path / "b").write_bytes(b"3\x00")
    files = (tmp_path / "a", tmp_path / "b")
    lines("produce", topic, *files, "-D", r"\0", "-p", 0, *at)
    assert consumed(topic, at) == ["1", "2", "3"]
    result = run("produce", topic, tmp_path / "c", *at)
    assert result.exit_code == 1
    assert f"{tmp_path / 'c'}: No such file or directory" in result.stderr


def test_records_below_an_offset_are_deleted(at: tuple[str, str], topic: str) -> None:
    """Consumers begin at the new start; `end` is the high watermark of each partition."""
    fill(topic, at, count=5)
    fill(topic, at, count=2, partition=1)
    command = ("topic", "delete-records", topic, "--yes", *at)
    assert lines(*command[:2], f"{topic}:0", "--before", 3, *command[3:]) == [
        f"{topic}-0 begins at offset 3"
    ]
    assert sorted(consumed(topic, at)) == ["0", "1", "3", "4"]
    found = objects(*command, "--before", "end")
    assert [(each["partition"], each["earliest"]) for each in found] == [(0, 5), (1, 2)]
    assert consumed(topic, at) == []
    assert "is no offset" in said(*command, "--before", "now")


def test_members_are_removed_from_a_group(at: tuple[str, str], topic: str) -> None:
    """The names of those that were removed; a group that nobody knows is an error."""
    remove = ("group", "remove-members", "--yes", *at)
    with member(topic, at, "removed"):
        (found,) = objects(*remove[:2], "removed", *remove[2:])
        assert found["member"].startswith("rdkafka")
    assert "unknown" in said(*remove, "unknown")


def test_a_transaction_of_a_producer_that_is_gone_is_terminated(
    at: tuple[str, str], topic: str
) -> None:
    """Readers of committed records wait no longer, and the producer is fenced."""
    with Producer(bootstrap_servers=at[1], transactional_id="gone") as producer:
        producer.begin_transaction()
        producer.send(topic, b"open", partition=0).result()
        fill(topic, at, count=1)
        committed = ("--isolation", "read_committed")
        assert consumed(topic, at, *committed) == []
        (line,) = lines("transaction", "terminate", "gone", "--yes", *at)
        assert line.startswith("gone: producer ")
        assert consumed(topic, at, *committed) == ["0"]
        with pytest.raises(TailraceError):
            producer.commit_transaction()
