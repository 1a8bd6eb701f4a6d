"""Settings of a broker that registers with controllers: on other nodes, or in its process."""

from typing import Final, NamedTuple

from tailrace.config.settings import INT32_MAX, INT64_MAX, Value, setting, settings_of
from tailrace.values import dataclass

FACTOR_MAX: Final = 32_767

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
"""The one class for `replica.selector.class` that Kafka comes with."""


def _are_addresses(servers: Value) -> bool:
    assert isinstance(servers, tuple)
    split = (each.rpartition(":") for each in servers)
    return all(host and port.isdecimal() for host, _, port in split)


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class KRaftConfig:
    """Kafka's settings that mean something with controllers elsewhere, and other brokers."""

    bootstrap_servers: tuple[str, ...] = setting(
        "controller.quorum.bootstrap.servers",
        default=(),
        is_allowed=_are_addresses,
        rule_text="HOST:PORT, or several of them with commas between",
        text="HOST:PORT of some controllers, from which the broker learns the active one. A node "
        "that is a controller may name itself alone.",
    )
    lag_ms: int = setting(
        "replica.lag.time.max.ms",
        default=30_000,
        low=1,
        high=INT64_MAX,
        text="A follower that has not had all records of its leader within this time is out of "
        "sync.",
    )
    watermark_checkpoint_interval_ms: int = setting(
        "replica.high.watermark.checkpoint.interval.ms",
        default=5000,
        low=1,
        high=INT64_MAX,
        text="Interval at which the high watermarks are saved; a start shows consumers nothing "
        "above them before the leader says more.",
    )
    quota_window_count: int = setting(
        "replication.quota.window.num",
        default=11,
        low=1,
        high=INT32_MAX,
        text="Windows over which the rate of throttled replicas is measured.",
    )
    quota_window_s: int = setting(
        "replication.quota.window.size.seconds",
        default=1,
        low=1,
        high=INT32_MAX,
        text="Length of such a window.",
    )
    # A class of one's own could only be loaded by Java.
    replica_selector: str = setting(
        "replica.selector.class",
        default="",
        is_allowed=lambda name: name in {"", RACK_AWARE},
        rule_text=f"empty or {RACK_AWARE}",
        text="The replica that a consumer with `client.rack` is sent to. Empty: the leader; with "
        "the rack-aware selector a follower in sync in the consumer's rack, unless the leader is "
        "in that rack.",
    )

    @property
    def sends_to_nearest(self) -> bool:
        """Whether consumers are sent to followers in their rack (KIP-392)."""
        return self.replica_selector == RACK_AWARE


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class LifecycleConfig:
    """Kafka's settings of a broker's registration; milliseconds."""

    registration_timeout_ms: int = setting(
        "initial.broker.registration.timeout.ms",
        default=60_000,
        low=0,
        high=INT32_MAX,
        text="How long a start waits until a controller has registered the broker.",
    )
    heartbeat_interval_ms: int = setting(
        "broker.heartbeat.interval.ms",
        default=2000,
        low=1,
        high=INT32_MAX,
        text="Time between heartbeats to the active controller.",
    )
    session_timeout_ms: int = setting(
        "broker.session.timeout.ms",
        default=9000,
        low=0,
        high=INT32_MAX,
        text="Time after its last heartbeat when the controllers fence a broker. What they have "
        "for it counts; a broker compares it with the interval of heartbeats alone.",
    )
    directory_failure_timeout_ms: int = setting(
        "log.dir.failure.timeout.ms",
        default=30_000,
        low=1,
        high=INT64_MAX,
        text="The broker stops if it cannot tell the controllers within this time that a log "
        "directory has failed.",
    )
    rack: str = setting(
        "broker.rack",
        default="",
        text="Rack of the broker, for the placement of replicas and for fetches from the nearest.",
    )
    controlled_shutdown: bool = setting(
        "controlled.shutdown.enable",
        default=True,
        text="Whether a broker that stops has others become leaders of its partitions first.",
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class FollowingConfig:
    """Kafka's settings of followers; bytes and milliseconds."""

    fetch_max_bytes: int = setting(
        "replica.fetch.max.bytes",
        default=1 << 20,
        low=0,
        high=INT32_MAX,
        text="Most bytes of one partition that a follower fetches at a time; a larger batch is "
        "fetched whole.",
    )
    response_max_bytes: int = setting(
        "replica.fetch.response.max.bytes",
        default=10 << 20,
        low=0,
        high=INT32_MAX,
        text="Most bytes of one answer to a follower, for all partitions together; a larger batch "
        "is fetched whole.",
    )
    min_bytes: int = setting(
        "replica.fetch.min.bytes",
        default=1,
        low=0,
        high=INT32_MAX,
        text="Bytes that a leader waits for before it answers a follower.",
    )
    wait_max_ms: int = setting(
        "replica.fetch.wait.max.ms",
        default=500,
        low=0,
        high=INT32_MAX,
        text="Longest time that a leader waits for `replica.fetch.min.bytes`; less than "
        "`replica.lag.time.max.ms`.",
    )
    backoff_ms: int = setting(
        "replica.fetch.backoff.ms",
        default=1000,
        low=0,
        high=INT32_MAX,
        text="Pause before a follower asks again after an error of a partition or of its leader.",
    )
    socket_timeout_ms: int = setting(
        "replica.socket.timeout.ms",
        default=30_000,
        low=1,
        high=INT32_MAX,
        text="How long a leader may take to answer a follower, before the connection is closed; at "
        "least `replica.fetch.wait.max.ms`.",
    )
    fetcher_count: int = setting(
        "num.replica.fetchers",
        default=1,
        low=1,
        high=INT32_MAX,
        text="Accepted and reported: a follower has one connection to each leader, since all "
        "appends are on one event loop.",
        is_stored_only=True,
    )


@dataclass(frozen=True, slots=True, kw_only=True, eq=False, repr=False)
class MetadataFetchConfig:
    """Kafka's settings of requests to the quorum."""

    request_timeout_ms: int = setting(
        "controller.quorum.request.timeout.ms",
        default=2000,
        low=1,
        high=INT32_MAX,
        text="Time after which a controller that has not answered counts as lost.",
    )
    retry_backoff_ms: int = setting(
        "controller.quorum.retry.backoff.ms",
        default=20,
        low=1,
        high=INT32_MAX,
        text="First pause before a controller is asked again; it grows up to a second.",
    )
    bytes_max: int = setting(
        "controller.quorum.fetch.max.bytes",
        default=1 << 20,
        low=1,
        high=INT32_MAX,
        text="Most bytes of the metadata log in an answer; one batch may be larger.",
    )
    snapshot_bytes_max: int = setting(
        "controller.quorum.fetch.snapshot.max.bytes",
        default=1 << 20,
        low=1,
        high=INT32_MAX,
        text="Most bytes of a snapshot of the metadata log in an answer.",
    )


class ControllerAddress(NamedTuple):
    """The address of a controller."""

    # No `client.nodes.Node`: each start reads the settings, and one alone needs no client.
    id: int
    """Its node id; below 0 where only the address is known."""
    host: str
    port: int


KRAFT_SETTINGS: Final = (
    *settings_of(KRaftConfig),
    *settings_of(LifecycleConfig),
    *settings_of(MetadataFetchConfig),
    *settings_of(FollowingConfig),
)
"""The settings that mean something to a broker which registers with controllers."""


def parse_controllers(
    voters: tuple[str, ...], bootstrap: tuple[str, ...]
) -> tuple[ControllerAddress, ...]:
    """The controllers to ask first: voters by their ids, others by ids from -1 downwards.

    Raises:
        ValueError: one is not [ID@]HOST:PORT; the message says which.
    """
    found = []
    for number, text in enumerate((*voters, *bootstrap), 1):
        before, at, address = text.rpartition("@")
        host, colon, port = address.rpartition(":")
        is_voter = number <= len(voters)
        if (
            is_voter != bool(at)
            or (at and not before.isdecimal())
            or not colon
            or not host
            or not port.isdecimal()
        ):
            raise ValueError(f"{text!r} is not {'ID@HOST:PORT' if is_voter else 'HOST:PORT'}")
        node_id = int(before) if at else -number
        found.append(ControllerAddress(node_id, host.strip("[]"), int(port)))
    return tuple(found)
