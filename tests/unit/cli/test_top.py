"""`tailrace top`: what it asks, the rows that it makes of that, and its screen and keys."""

import json
import socket
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, HTTPServer
from math import inf
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from tailrace.cli.top.metrics import Page, Scrape, Scraper, listener_url, parse_samples
from tailrace.cli.top.screen import (
    Mode,
    Size,
    State,
    Style,
    draw,
    fit,
    press,
    table_of,
    width_of,
)
from tailrace.cli.top.snapshot import GroupState, Snapshot, Watch
from tailrace.cli.top.tables import History, Kind, Overview, catch_up_s, shown
from tailrace.client.admin.cluster import BrokerNode
from tailrace.client.admin.groups import GroupListing
from tailrace.client.reader import PartitionDescription, TopicDescription
from tailrace.model import TopicPartition
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages import describe_cluster as clusters
from tailrace.protocol.messages import describe_configs as configs
from tailrace.protocol.messages import describe_groups as classic
from tailrace.protocol.messages import describe_log_dirs as dirs
from tailrace.protocol.messages import list_offsets as offsets
from tailrace.protocol.messages import offset_fetch as committed
from tailrace.protocol.messages.list_groups import ListedGroup, ListGroupsResponse
from tailrace.protocol.messages.list_partition_reassignments import (
    ListPartitionReassignmentsResponse,
)
from tailrace.testing.cluster import ScriptedCluster, ScriptedNode
from tests.unit.client.reading import reader, waiting_world

SIZE = Size(100, 20)


def snapshot(
    at: float,
    *,
    ends: Mapping[str, Mapping[int, int]],
    groups: Mapping[str, Mapping[str, int]] | None = None,
    leaders: tuple[int, ...] = (1, 2),
    silent: Mapping[int, str] | None = None,
    scrapes: Mapping[int, Scrape] | None = None,
) -> Snapshot:
    """Two brokers that lead the partitions of topics in turn; groups with commits by `topic-0`."""
    silent = silent or {}
    topics = {
        name: TopicDescription(
            name=name,
            is_internal=False,
            partitions=tuple(
                PartitionDescription(
                    partition=number, leader=leaders[number % 2], leader_epoch=1,
                    replicas=(1, 2), isr=(1, 2), offline=(),
                )
                for number in numbers
            ),
        )
        for name, numbers in ends.items()
    }  # fmt: skip
    return Snapshot(
        at=at,
        took_s=0.1,
        cluster_id="c",
        brokers={n: BrokerNode(id=n, host=f"b{n}", port=9092, rack=None) for n in (1, 2)},
        silent=silent,
        topics=topics,
        ends_at={n: at for n in (1, 2) if n not in silent},
        ends={
            TopicPartition(name, number): end
            for name, numbers in ends.items()
            for number, end in numbers.items()
            if leaders[number % 2] not in silent
        },
        directories={},
        moving=frozenset(),
        groups={
            name: GroupState(
                listing=GroupListing(
                    group=name, type="classic", state="Stable", protocol_type="consumer"
                ),
                coordinator=1,
                at=at,
                members=1,
                committed={TopicPartition(*_split(where)): offset for where, offset in own.items()},
            )
            for name, own in (groups or {}).items()
        },
        scrapes=scrapes or {},
        notes=(),
    )


def _split(where: str) -> tuple[str, int]:
    topic, _, number = where.rpartition("-")
    return topic, int(number)


def overview(*snapshots: Snapshot) -> Overview:
    """The tables of snapshots, oldest first."""
    history = History(snapshots[0])
    for each in snapshots[1:]:
        history.add(each)
    return Overview(history)


def rows(found: Overview, name: str, about: str = "") -> dict[str, dict[str, Any]]:
    """The values of a table by row and column."""
    table = found.table(name, about)
    keys = [each.key for each in table.columns]
    return {row.key: dict(zip(keys, row.values, strict=True)) for row in table.rows}


def test_rates_are_of_two_snapshots() -> None:
    """Records in a second are the rise of the ends; a group's lag and its change follow."""
    found = overview(
        snapshot(0, ends={"t": {0: 100, 1: 50}}, groups={"g": {"t-0": 0, "t-1": 50}}),
        snapshot(10, ends={"t": {0: 200, 1: 150}}, groups={"g": {"t-0": 160, "t-1": 100}}),
    )
    assert rows(found, "topics")["t"]["records_per_s"] == 20
    assert [each["records_per_s"] for each in rows(found, "brokers").values()] == [10, 10]
    group = rows(found, "groups")["g"]
    assert (group["lag"], group["records_per_s"], group["lag_per_s"]) == (90, 21, -1)
    assert group["catch_up_s"] == 90
    parts = rows(found, "offsets", "g")
    assert (parts["t-0"]["lag"], parts["t-0"]["lag_per_s"]) == (40, -6)
    assert parts["t-1"]["catch_up_s"] == inf


def test_what_is_not_known_is_no_zero() -> None:
    """A silent leader has no end and no rate, and a new topic has no rate yet."""
    old = snapshot(0, ends={"t": {0: 100, 1: 50}}, groups={"g": {"t-1": 10}})
    new = snapshot(
        2,
        ends={"t": {0: 120, 1: 90}, "u": {0: 5}},
        groups={"g": {"t-1": 20}},
        silent={2: "no answer"},
    )
    found = overview(old, new)
    parts = rows(found, "partitions", "t")
    assert (parts["0"]["records_per_s"], parts["1"]["records_per_s"]) == (10, None)
    assert (parts["1"]["end_offset"], parts["1"]["state"]) == (
        None,
        "leader is silent, not preferred",
    )
    assert rows(found, "topics")["u"]["records_per_s"] is None
    group = rows(found, "groups")["g"]
    assert (group["lag"], group["lag_per_s"], group["catch_up_s"]) == (None, None, None)
    assert rows(found, "brokers")["2"]["state"] == "silent"
    # A broker that leads nothing gets no records, which is known.
    idle = overview(snapshot(0, ends={"t": {0: 1}}), snapshot(2, ends={"t": {0: 5}}))
    assert [each["records_per_s"] for each in rows(idle, "brokers").values()] == [2, 0]
    # A topic that was made again has an end below the old one.
    again = overview(old, snapshot(2, ends={"t": {0: 3, 1: 60}}))
    assert rows(again, "partitions", "t")["0"]["records_per_s"] is None


def test_rates_of_groups_outlast_the_pause_between_commits() -> None:
    """A group that commits every 5 s does not fall to zero between two refreshes."""
    taken = [
        snapshot(
            at, ends={"t": {0: 1000 + 100 * at}}, groups={"g": {"t-0": 1000 + 100 * (at - at % 5)}}
        )
        for at in range(0, 42, 2)
    ]
    for end in range(7, len(taken)):
        rate = rows(overview(*taken[:end]), "groups")["g"]["records_per_s"]
        assert rate is not None
        assert 60 <= rate <= 140
    history = History(taken[0])
    for each in taken[1:]:
        history.add(each)
        assert history.now.at - history.base.at <= 20


@pytest.mark.parametrize(
    ("lag", "rate", "seconds"),
    [(0, 5.0, 0.0), (100, -10.0, 10.0), (100, 0.0, inf), (100, 3.0, inf), (100, None, None)],
)
def test_time_to_catch_up(lag: int, rate: float | None, seconds: float | None) -> None:
    """A lag that does not fall is never caught up with, and one that is zero takes no time."""
    assert catch_up_s(lag, rate) == seconds


@pytest.mark.parametrize(
    ("kind", "value", "text"),
    [
        (Kind.COUNT, 9999, "9999"),
        (Kind.COUNT, 12345, "12.3k"),
        (Kind.RATE, 99_999, "100k"),
        (Kind.RATE, -0.5, "-0.5"),
        (Kind.BYTES, 1536, "1.5 KiB"),
        (Kind.BYTES, -3 * 1024**3, "-3 GiB"),
        (Kind.EXACT, 123_456_789, "123456789"),
        (Kind.SECONDS, inf, "never"),
        (Kind.SECONDS, 150, "2 min"),
        (Kind.PART, 0.97, "97%"),
        (Kind.MILLISECONDS, 0.4321, "0.432 ms"),
        (Kind.TEXT, "a\x1b[2J", "a\\x1b[2J"),
        (Kind.COUNT, None, "-"),
    ],
)
def test_cells_are_short_and_harmless(kind: Kind, value: float | str | None, text: str) -> None:
    """Numbers have few digits and a unit, and no name reaches the terminal as a command."""
    assert shown(kind, value) == text


def pressed(state: State, found: Overview, *keys: str, size: Size = SIZE) -> State:
    """The state after some keys."""
    for key in keys:
        state = press(state, key, table_of(state, found), size=size)
    return state


def lines(state: State, found: Overview | None, size: Size = SIZE, **more: Any) -> list[str]:
    """The screen as text."""
    drawn = draw(state, found, size=size, **more)
    return ["".join(cell.text for cell in line) for line in drawn]


MANY = overview(
    snapshot(0, ends={f"topic-{n:02}": {0: 0, 1: 0} for n in range(40)}),
    snapshot(
        1,
        ends={f"topic-{n:02}": {0: n, 1: 0} for n in range(40)},
        groups={"billing": {"topic-01-0": 0}},
    ),
)


def test_keys_move_open_and_go_back() -> None:
    """The chosen row stays on the screen, Enter opens it, and Esc shows the list as it was."""
    state = pressed(State(), MANY, "end", "k", "pgup", "down")
    place = [row.key for row in table_of(state, MANY).rows].index(state.now.key or "")
    assert place == 39 - 1 - (SIZE.height - 6) + 1
    assert any(line.startswith(state.now.key or "") for line in lines(state, MANY))
    opened = pressed(state, MANY, "enter")
    assert (opened.shown, opened.about) == ("partitions", state.now.key)
    assert any("end offset" in line for line in lines(opened, MANY))
    assert pressed(opened, MANY, "esc").now == state.now
    assert pressed(State(), MANY, "tab", "enter").about == "billing"
    assert pressed(State(), MANY, "shift-tab").view == "requests"
    assert pressed(State(), MANY, "3", "enter").shown == "facts"


def test_keys_sort_reverse_and_filter() -> None:
    """Numbers fall first, a second key turns them round, and a filter is typed over live rows."""
    first = [row.key for row in table_of(State(), MANY).rows]
    assert first[0] == "topic-39"
    assert table_of(pressed(State(), MANY, "r"), MANY).rows[0].key == "topic-00"
    by_name = pressed(State(), MANY, "<")
    assert by_name.now.sort == "topic"
    assert [row.key for row in table_of(by_name, MANY).rows] == sorted(first)
    typed = pressed(State(), MANY, "/", *"PIC-1")
    assert (typed.mode, len(table_of(typed, MANY).rows)) == (Mode.TYPING, 10)
    assert "/PIC-1_" in lines(typed, MANY)[-1]
    kept = pressed(typed, MANY, "enter")
    assert (kept.mode, kept.now.filter) == (Mode.ROWS, "PIC-1")
    assert pressed(kept, MANY, "esc").now.filter == ""
    nothing = pressed(State(), MANY, "/", *"zzz", "enter", "down", "enter")
    assert "no row has 'zzz'" in "\n".join(lines(nothing, MANY))


def test_a_chosen_row_stays_chosen_where_the_order_changes() -> None:
    """The next snapshot sorts rows otherwise, and Enter still opens what was chosen."""
    state = pressed(State(), MANY, "down")
    assert state.now.key == "topic-38"
    later = overview(
        snapshot(1, ends={f"topic-{n:02}": {0: n} for n in range(40)}),
        snapshot(2, ends={f"topic-{n:02}": {0: n + 40 - n} for n in range(40)}),
    )
    assert pressed(state, later, "enter").about == "topic-38"


def test_keys_pause_change_the_interval_show_help_and_quit() -> None:
    """Space, + and -, h and q do what people expect of them."""
    state = pressed(State(), MANY, " ", "+", "+")
    assert (state.is_paused, state.interval_s) == (True, 5.0)
    assert "PAUSED" in lines(state, MANY)[0]
    assert pressed(state, MANY, *"---------").interval_s == 0.5
    helped = pressed(State(), MANY, "h")
    assert any("Enter" in line and "open a topic" in line for line in lines(helped, MANY))
    assert pressed(helped, MANY, "x").mode is Mode.ROWS
    assert pressed(State(), MANY, "q").is_over


def test_trouble_is_on_the_screen() -> None:
    """A silent broker is named in red, and so is why nothing new has come, with the age."""
    found = overview(snapshot(0, ends={"t": {0: 1, 1: 1}}, silent={2: "no answer"}))
    drawn = draw(State(), found, size=SIZE)
    assert drawn[2][0].style is Style.BAD
    assert "broker 2 does not answer: no answer" in drawn[2][0].text
    shown_lines = lines(State(), found, trouble="no broker can be reached", age_s=12)
    assert "12 s old" in shown_lines[0]
    assert shown_lines[2] == "no broker can be reached"
    assert "no broker" in lines(State(), None, trouble="no broker")[1]


KEYS = st.lists(
    st.sampled_from(
        [*"q123s<>r/ +-hjkgGx", "up", "down", "left", "right", "pgup", "pgdn", "home", "end",
         "enter", "esc", "tab", "shift-tab", "backspace", "ctrl-u", "resize", "f1", ""]
    ),
    max_size=25,
)  # fmt: skip


@given(keys=KEYS, width=st.integers(1, 130), height=st.integers(1, 40))
def test_any_keys_in_any_size_fit_the_screen(keys: list[str], width: int, height: int) -> None:
    """There are as many lines as the terminal has, none wider, whatever is pressed."""
    size = Size(width, height)
    state = pressed(State(), MANY, *keys, size=size)
    drawn = lines(state, MANY, size)
    assert len(drawn) == height
    assert max(map(width_of, drawn)) <= width


@given(text=st.text(), width=st.integers(0, 12))
def test_text_is_cut_to_columns(text: str, width: int) -> None:
    """Also characters of two columns, and those of none, end where the column does."""
    assert width_of(fit(text, width)) == width


PAGE = b"""\
# HELP kafka_network_requestmetrics_requests_total Requests
kafka_network_requestmetrics_requests_total{request="Produce",version="9"} 10.0
kafka_network_requestmetrics_requests_total{request="Produce",version="11"} 5.0
kafka_network_requestmetrics_totaltimems{request="Produce",quantile="0.99"} 7.5
kafka_network_requestmetrics_errors_total{request="Produce",error="NONE"} 14.0
kafka_network_requestmetrics_errors_total{request="Produce",error="NOT_LEADER_OR_FOLLOWER"} 1.0
kafka_server_brokertopicmetrics_bytesin_total{topic="a \\"b\\""} 3.0
kafka_server_brokertopicmetrics_bytesin_total 1024.0 1700000000000
kafka_server_socket_server_metrics_connection_count{listener="A",networkProcessor="0"} 4
process_resident_memory_bytes 5.0e+07
tailrace_loop_delay_seconds NaN
go_goroutines 5
"""


def test_metrics_are_read_from_a_page_for_prometheus() -> None:
    """Rates are of two pages, by label; topics are left out, since the protocol tells them."""
    first = Page(at=0.0, samples=parse_samples(PAGE))
    second = Page(
        at=2.0, samples=parse_samples(PAGE.replace(b" 10.0", b" 30.0").replace(b"1024", b"4096"))
    )
    found = overview(
        snapshot(0, ends={}),
        snapshot(2, ends={}, scrapes={1: Scrape(page=second, before=first)}),
    )
    assert rows(found, "requests")["Produce"] == {
        "request": "Produce", "requests_per_s": 10, "errors_per_s": 0, "p50_ms": None, "p99_ms": 7.5
    }  # fmt: skip
    broker = rows(found, "brokers")["1"]
    assert (broker["connections"], broker["bytes_in_per_s"]) == (4, 1536)
    assert broker["memory_bytes"] == 5e7
    facts = rows(found, "facts", "1")
    assert facts["bytes in"] == {"fact": "bytes in", "value": "4 KiB", "per_s": "1.5 KiB"}
    assert "event loop late" not in facts
    assert rows(found, "brokers")["2"]["connections"] is None
    # Without any metrics the columns are not there.
    plain = overview(snapshot(0, ends={}))
    assert "conns" not in lines(State(view="brokers"), plain)[4]
    assert "no broker shows metrics" in "\n".join(lines(State(view="requests"), plain))


@pytest.mark.parametrize(
    ("listener", "host", "url"),
    [
        ("0.0.0.0:9404", "b1.example.com", "http://b1.example.com:9404/metrics"),
        ("[::]:9404", "::2", "http://[::2]:9404/metrics"),
        ("10.0.0.7:9404", "b1", "http://10.0.0.7:9404/metrics"),
        ("127.0.0.1:9404", "localhost", "http://127.0.0.1:9404/metrics"),
        # Here that is another machine, maybe with another broker.
        ("127.0.0.1:9404", "b1", None),
        ("0.0.0.0:0", "b1", None),
        ("", "b1", None),
    ],
)
def test_a_broker_says_where_its_metrics_are(listener: str, host: str, url: str | None) -> None:
    """From `tailrace.http.listener` and the address that it gives to clients."""
    assert listener_url(listener, host) == url


class WatchedCluster(ScriptedCluster):
    """A cluster with a group, whose nodes answer all that `Watch` asks."""

    def __init__(self, outside: Any, *, nodes: int) -> None:
        super().__init__(outside, nodes=nodes)
        self.versions[ApiKey.CONSUMER_GROUP_DESCRIBE] = -1
        answers: dict[ApiKey, Any] = {
            ApiKey.DESCRIBE_CLUSTER: self._cluster,
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda *_: ListPartitionReassignmentsResponse(),
            ApiKey.LIST_GROUPS: self._groups,
            ApiKey.DESCRIBE_GROUPS: self._described,
            ApiKey.OFFSET_FETCH: self._committed,
            ApiKey.LIST_OFFSETS: self._offsets,
            ApiKey.DESCRIBE_LOG_DIRS: self._directories,
            ApiKey.DESCRIBE_CONFIGS: self._configs,
        }
        self.answers.update(answers)

    def _cluster(self, *_: object) -> Message:
        brokers = tuple(
            clusters.DescribeClusterBroker(broker_id=each.id, host=self.host, port=each.port)
            for each in self.nodes.values()
        )
        return clusters.DescribeClusterResponse(cluster_id="c", controller_id=1, brokers=brokers)

    def _groups(self, _: object, node: ScriptedNode, __: object) -> Message:
        names = ("g", "h") if node.id == self.coordinator_id else ()
        return ListGroupsResponse(
            groups=tuple(
                ListedGroup(group_id=each, protocol_type="consumer", group_state="Stable")
                for each in names
            )
        )

    @staticmethod
    def _described(_: object, __: object, body: Any) -> Message:
        return classic.DescribeGroupsResponse(
            groups=tuple(
                classic.DescribedGroup(
                    group_id=each, group_state="Stable", protocol_type="consumer",
                    members=(classic.DescribedGroupMember(client_id="c", client_host="/h"),),
                )
                for each in body.groups
            )
        )  # fmt: skip

    @staticmethod
    def _committed(_: object, __: object, body: Any) -> Message:
        part = committed.OffsetFetchResponsePartitions(partition_index=0, committed_offset=4)
        topic = committed.OffsetFetchResponseTopics(name="t", partitions=(part,))
        old = committed.OffsetFetchResponsePartition(partition_index=0, committed_offset=4)
        return committed.OffsetFetchResponse(
            # Read by clients of version 7, which has no groups.
            topics=(committed.OffsetFetchResponseTopic(name="t", partitions=(old,)),),
            groups=tuple(
                committed.OffsetFetchResponseGroup(group_id=each.group_id, topics=(topic,))
                for each in body.groups
            ),
        )

    @staticmethod
    def _offsets(_: object, __: object, body: Any) -> Message:
        return offsets.ListOffsetsResponse(
            topics=tuple(
                offsets.ListOffsetsTopicResponse(
                    name=topic.name,
                    partitions=tuple(
                        offsets.ListOffsetsPartitionResponse(
                            partition_index=each.partition_index, offset=10
                        )
                        for each in topic.partitions
                    ),
                )
                for topic in body.topics
            )
        )

    @staticmethod
    def _directories(*_: object) -> Message:
        log = dirs.DescribeLogDirsPartition(partition_index=0, partition_size=1000)
        topic = dirs.DescribeLogDirsTopic(name="t", partitions=(log,))
        found = dirs.DescribeLogDirsResult(log_dir="/d", topics=(topic,), usable_bytes=5)
        return dirs.DescribeLogDirsResponse(results=(found,))

    @staticmethod
    def _configs(_: object, __: object, body: Any) -> Message:
        return configs.DescribeConfigsResponse(
            results=tuple(
                configs.DescribeConfigsResult(
                    resource_type=each.resource_type, resource_name=each.resource_name
                )
                for each in body.resources
            )
        )


@pytest.mark.parametrize("version", [7, 9])
def test_few_requests_whatever_the_number_of_partitions(version: int) -> None:
    """A snapshot asks each broker for all of its partitions and groups at once."""
    with waiting_world() as (outside, network):
        cluster = WatchedCluster(outside, nodes=2)
        cluster.versions[ApiKey.OFFSET_FETCH] = version
        cluster.create_topic("t", partitions=300)
        cluster.start()
        client = reader(outside, network, cluster.bootstrap)
        watch = Watch(client, metrics=None, clock=outside.loop.time)
        watch.take()
        cluster.counts.clear()
        found = watch.take()
        assert cluster.counts.pop(ApiKey.OFFSET_FETCH) == (1 if version > 7 else 2)
        assert cluster.counts == {
            ApiKey.METADATA: 1, ApiKey.DESCRIBE_CLUSTER: 1, ApiKey.LIST_PARTITION_REASSIGNMENTS: 1,
            ApiKey.LIST_GROUPS: 2, ApiKey.DESCRIBE_GROUPS: 1, ApiKey.LIST_OFFSETS: 2,
            ApiKey.DESCRIBE_LOG_DIRS: 2,
        }  # fmt: skip
        assert len(found.ends) == 300
        assert found.groups["h"].committed == {TopicPartition("t", 0): 4}
        group = rows(overview(found), "groups")["g"]
        assert (group["lag"], group["members"]) == (6, 1)
        assert rows(overview(found), "topics")["t"]["bytes"] == 1000
        assert (found.silent, found.notes) == ({}, ())
        client.close()


@pytest.mark.parametrize("silent", [1, 3])
def test_a_silent_broker_holds_up_the_first_snapshot_alone(silent: int) -> None:
    """It is waited for once, also the controller; from then on for half a second, until it answers.

    The first one is the controller too, and coordinates the groups.
    """
    with waiting_world() as (outside, network):
        cluster = WatchedCluster(outside, nodes=3)
        cluster.create_topic("t", partitions=3)
        cluster.start()
        client = reader(outside, network, cluster.bootstrap)
        watch = Watch(client, metrics=None, clock=outside.loop.time)
        assert watch.take().silent == {}
        cluster.nodes[silent].is_paused = True
        first = watch.take()
        assert list(first.silent) == [silent]
        assert 1 < first.took_s <= 6
        assert first.ends.keys() == {TopicPartition("t", n) for n in range(3) if n != silent - 1}
        assert bool(first.groups) == (silent != 1)
        second = watch.take()
        assert list(second.silent) == [silent]
        assert second.took_s <= 1
        cluster.nodes[silent].resume()
        after = [watch.take() for _ in range(20)]
        assert (after[-1].silent, len(after[-1].ends)) == ({}, 3)
        client.close()


def test_a_user_with_few_rights_sees_what_there_is() -> None:
    """The parts that brokers refuse are missing, and said; the rest is shown."""
    with waiting_world() as (outside, network):
        cluster = WatchedCluster(outside, nodes=1)
        cluster.create_topic("t")
        denied = ErrorCode.CLUSTER_AUTHORIZATION_FAILED
        refused: dict[ApiKey, Any] = {
            ApiKey.DESCRIBE_LOG_DIRS: lambda *_: dirs.DescribeLogDirsResponse(error_code=denied),
            ApiKey.LIST_PARTITION_REASSIGNMENTS: lambda *_: ListPartitionReassignmentsResponse(
                error_code=denied
            ),
        }
        cluster.answers.update(refused)
        cluster.start()
        client = reader(outside, network, cluster.bootstrap)
        found = Watch(client, metrics=None, clock=outside.loop.time).take()
        topic = rows(overview(found), "topics")["t"]
        assert (topic["partitions"], topic["bytes"]) == (1, None)
        assert rows(overview(found), "groups")["g"]["lag"] == 6
        assert len(found.notes) == 2
        assert "cluster authorization failed" in lines(State(), overview(found))[2]
        client.close()


@pytest.fixture
def page() -> Iterator[str]:
    """The URL of a page with metrics, on a real socket; `/no` is answered with 404."""

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(404 if self.path == "/no" else 200)
            self.end_headers()
            self.wfile.write(PAGE)

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    server = HTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_port}/"
    server.shutdown()
    thread.join()
    server.server_close()


def test_pages_are_read_beside(page: str) -> None:
    """`begin` returns at once; a page that cannot be read has its reason, and no old values."""
    times = iter(range(0, 10_000, 100))
    scraper = Scraper(lambda: float(next(times)))
    with socket.create_server(("127.0.0.1", 0)) as mute:
        closed = mute.getsockname()[1]
    urls = {1: page, 2: f"{page}no", 3: f"http://127.0.0.1:{closed}/metrics"}
    scraper.begin(urls)
    for each in scraper._threads.values():
        each.join()
    assert scraper.found.keys() == {1}
    assert scraper.found[1].page.total("process_resident_memory_bytes") == 5e7
    assert "status 404" in scraper.failures[2]
    assert "refused" in scraper.failures[3]
    scraper.begin({})
    assert (scraper.found, scraper.failures) == ({}, {})


def test_a_page_that_took_long_is_read_again_where_all_are_due(page: str) -> None:
    """Without that it is read less often: a tenth of the time is for reading."""
    times = iter(range(0, 10_000, 100))
    scraper = Scraper(lambda: float(next(times)))
    for all_due, has_rate in ((False, False), (False, False), (True, True)):
        scraper.begin({1: page}, all_due=all_due)
        for each in scraper._threads.values():
            each.join()
        assert (scraper.found[1].before is not None) is has_rate


def test_json_has_no_infinity() -> None:
    """A group that never catches up has null for the time."""
    from tailrace.cli.top import _fields

    found = overview(
        snapshot(0, ends={"t": {0: 0}}, groups={"g": {"t-0": 0}}),
        snapshot(10, ends={"t": {0: 5}}, groups={"g": {"t-0": 0}}),
    )
    table = found.table("groups")
    fields = json.loads(json.dumps(_fields(table, table.rows[0]), allow_nan=False))
    assert (fields["lag"], fields["lag_per_s"], fields["catch_up_s"]) == (5, 0.5, None)
