"""Registrations of brokers and their heartbeats: who serves, who is fenced, who may stop.

    register ─► FENCED ──heartbeat, caught up──► UNFENCED ──wants to stop──► CONTROLLED SHUTDOWN
                  ▲                                 │                              │
                  ├──── wants it, or no heartbeat ──┘                              │
                  └── may stop: leads nothing, and the others know ────────────────┘

A new incarnation of a broker has a new epoch, the offset of the first record of its registration.
Whatever it did before is over: it leaves each ISR, unless its last stop was clean (KIP-966), and
comes back by fetching.
"""

from collections.abc import Iterator, Sequence
from enum import Enum
from typing import TYPE_CHECKING, Final

from tailrace.cluster.control.directories import cordon_records, offline_records
from tailrace.cluster.control.leaders import (
    arrival,
    departure,
    leads_any,
    unclean_departure,
    unregistered_departure,
)
from tailrace.cluster.control.state import (
    RESERVED_DIRECTORIES,
    ControlState,
    Decision,
    RefusedError,
)
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.features import KRAFT_VERSION, register_broker_version
from tailrace.cluster.metadata.image import METADATA_VERSION
from tailrace.cluster.partition_change import CORDONS_SINCE
from tailrace.cluster.records import FENCED, UNFENCED, registration_change
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.broker_heartbeat import (
    BrokerHeartbeatRequest,
    BrokerHeartbeatResponse,
)
from tailrace.protocol.messages.broker_registration import (
    BrokerRegistrationRequest,
    BrokerRegistrationResponse,
)
from tailrace.protocol.messages.unregister_broker import (
    UnregisterBrokerRequest,
    UnregisterBrokerResponse,
)

if TYPE_CHECKING:
    from tailrace.protocol.metadata_records import RegisterBrokerRecord

_CLEAN_STOPS_SINCE: Final = 3
"""First version of BrokerRegistration that says with which epoch the broker has stopped cleanly."""
_IN_SHUTDOWN: Final = 1


class BrokerState(Enum):
    """The freedom of a broker."""

    FENCED = "be a follower"
    UNFENCED = "lead and follow"
    CONTROLLED_SHUTDOWN = "serve until others lead what it led"
    SHUTDOWN_NOW = "stop"


def register_broker(
    state: ControlState, request: BrokerRegistrationRequest, *, version: int, now_ms: int
) -> Decision:
    """Register a broker, fenced, or amend the registration of the same incarnation.

    Raises:
        RefusedError: INCONSISTENT_CLUSTER_ID, DUPLICATE_BROKER_REGISTRATION,
            BROKER_ID_NOT_REGISTERED, INVALID_REGISTRATION, UNSUPPORTED_VERSION.
    """
    from tailrace.protocol.metadata_records import (
        BrokerEndpoint,
        BrokerFeature,
        RegisterBrokerRecord,
    )

    known = state.image.brokers.get(request.broker_id)
    _check_registration(state, request, known, now_ms=now_ms)
    is_amended = known is not None and known.incarnation_id == request.incarnation_id
    records: list[RecordToWrite] = []
    if not is_amended:
        is_clean = (
            version >= _CLEAN_STOPS_SINCE
            and known is not None
            and known.broker_epoch == request.previous_broker_epoch
        )
        # First, so that a controller which fails in between leaves no registration, and the broker
        # asks for all of it again.
        leave = departure if is_clean or not state.has_elr else unclean_departure
        records += leave(state, request.broker_id)
    epoch = known.broker_epoch if known is not None and is_amended else state.next_offset
    record = RegisterBrokerRecord(
        broker_id=request.broker_id,
        incarnation_id=request.incarnation_id,
        broker_epoch=epoch,
        end_points=tuple(
            BrokerEndpoint(
                name=each.name,
                host=each.host,
                port=each.port,
                security_protocol=each.security_protocol,
            )
            for each in request.listeners
        ),
        features=tuple(
            BrokerFeature(
                name=each.name,
                min_supported_version=each.min_supported_version,
                max_supported_version=each.max_supported_version,
            )
            for each in request.features
        ),
        rack=request.rack,
        fenced=known.fenced if known is not None and is_amended else True,
        in_controlled_shutdown=(
            known.in_controlled_shutdown if known is not None and is_amended else False
        ),
        log_dirs=request.log_dirs if state.names_directories else (),
        cordoned_log_dirs=None,
    )
    records.append(RecordToWrite(record, register_broker_version(state.image.metadata_version)))
    answer = BrokerRegistrationResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, broker_epoch=epoch
    )
    return Decision(records, answer)


def _check_registration(
    state: ControlState,
    request: BrokerRegistrationRequest,
    known: "RegisterBrokerRecord | None",
    *,
    now_ms: int,
) -> None:
    """The checks of Kafka's controller, in its order: the first that fails is the answer."""
    if request.cluster_id != state.cluster_id:
        raise RefusedError(
            ErrorCode.INCONSISTENT_CLUSTER_ID,
            f"Expected cluster ID {state.cluster_id}, but got cluster ID {request.cluster_id}",
        )
    # Two processes with one id: the one that lives keeps it. After a crash the broker tries again
    # until its own last session has ended.
    if (
        known is not None
        and known.incarnation_id != request.incarnation_id
        and state.heartbeats.has_session(request.broker_id, known.broker_epoch, now_ms=now_ms)
    ):
        raise RefusedError(
            ErrorCode.DUPLICATE_BROKER_REGISTRATION,
            f"Another broker is registered with the id {request.broker_id}, and its session lasts",
        )
    if request.is_migrating_zk_broker:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED, "Brokers of ZooKeeper cannot register"
        )
    if state.names_directories:
        _check_directories(state, request)
    ranges = {
        each.name: (each.min_supported_version, each.max_supported_version)
        for each in request.features
    }
    levels = {**state.image.features, KRAFT_VERSION: state.kraft_version}
    for name, (lowest, highest) in ranges.items():
        _check_level(name, levels.get(name, 0), lowest=lowest, highest=highest)
    if METADATA_VERSION not in ranges:
        raise RefusedError(
            ErrorCode.INVALID_REGISTRATION, f"Request features do not contain '{METADATA_VERSION}'"
        )
    for name, level in levels.items():
        if name not in ranges:
            _check_level(name, level, lowest=0, highest=0)


def _check_directories(state: ControlState, request: BrokerRegistrationRequest) -> None:
    directories = request.log_dirs
    if not directories:
        raise RefusedError(ErrorCode.INVALID_REGISTRATION, "No directories specified in request")
    if any(each.int < RESERVED_DIRECTORIES for each in directories):
        raise RefusedError(ErrorCode.INVALID_REGISTRATION, "Reserved directory ID in request")
    if len(set(directories)) < len(directories):
        raise RefusedError(ErrorCode.INVALID_REGISTRATION, "Duplicate directory ID in request")
    # A directory that was copied would make two brokers believe that they have its replicas.
    for broker_id, broker in state.image.brokers.items():
        shared = set(broker.log_dirs) & set(directories)
        if broker_id != request.broker_id and shared:
            raise RefusedError(
                ErrorCode.INVALID_REGISTRATION,
                f"Broker {broker_id} is already registered with directory {min(shared)}",
            )


def _check_level(name: str, level: int, *, lowest: int, highest: int) -> None:
    if not lowest <= level <= highest:
        raise RefusedError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"Unable to register because the broker does not support finalized version {level} of "
            f"{name}. The broker wants a version between {lowest} and {highest}, inclusive.",
        )


# -- heartbeats -----------------------------------------------------------------------------------


def next_state(
    state: ControlState, request: BrokerHeartbeatRequest
) -> tuple[BrokerState, BrokerState]:
    """The state of a broker before a heartbeat, and from now on."""
    broker_id, beats = request.broker_id, state.heartbeats
    if beats.is_shutting_down(broker_id):
        now = BrokerState.CONTROLLED_SHUTDOWN
        # A client that asks another broker must learn the new leader: all that serve have to know.
        others = (
            each
            for each, broker in state.image.brokers.items()
            if not broker.fenced and not beats.is_shutting_down(each)
        )
        is_done = not leads_any(state, broker_id) and beats.may_stop(broker_id, others)
        return now, BrokerState.SHUTDOWN_NOW if is_done else now
    if state.image.brokers[broker_id].fenced:
        now = BrokerState.FENCED
        if request.want_shut_down:
            return now, BrokerState.SHUTDOWN_NOW
        registered_at = beats.registered_at(broker_id)
        assert registered_at is not None, "the broker is registered"
        is_caught_up = request.current_metadata_offset >= registered_at
        may_serve = is_caught_up and not request.want_fence
        return now, BrokerState.UNFENCED if may_serve else now
    now = BrokerState.UNFENCED
    if request.want_fence:
        stops = request.want_shut_down
        return now, BrokerState.SHUTDOWN_NOW if stops else BrokerState.FENCED
    if request.want_shut_down:
        leads = leads_any(state, broker_id)
        return now, BrokerState.CONTROLLED_SHUTDOWN if leads else BrokerState.SHUTDOWN_NOW
    return now, now


def heartbeat(state: ControlState, request: BrokerHeartbeatRequest, *, now_ms: int) -> Decision:
    """Take a heartbeat: the session continues, and the broker may do what it is ready for.

    Raises:
        RefusedError: STALE_BROKER_EPOCH.
    """
    broker_id, epoch = request.broker_id, request.broker_epoch
    # Before the check, as in Kafka: the session of an epoch that is over ends by itself.
    state.heartbeats.note(broker_id, epoch, now_ms=now_ms)
    state.check_epoch(broker_id, epoch)
    before, after = next_state(state, request)
    records: list[RecordToWrite] = []
    if before is not after:
        match after:
            case BrokerState.FENCED | BrokerState.SHUTDOWN_NOW:
                records += fence_records(state, broker_id)
            case BrokerState.UNFENCED:
                records.append(registration_change(broker_id, epoch, fenced=UNFENCED))
                records += arrival(state, broker_id)
            case BrokerState.CONTROLLED_SHUTDOWN:
                records += _shutdown_records(state, broker_id)
    state.heartbeats.note_applied(broker_id, request.current_metadata_offset)
    if state.names_directories:
        records += offline_records(state, broker_id, request.offline_log_dirs)
    if state.image.metadata_version >= CORDONS_SINCE:
        records += cordon_records(state, broker_id, request.cordoned_log_dirs)
    if after is BrokerState.CONTROLLED_SHUTDOWN:
        state.heartbeats.begin_shutdown(broker_id, state.next_offset + len(records) - 1)
    registered_at = state.heartbeats.registered_at(broker_id)
    answer = BrokerHeartbeatResponse(
        throttle_time_ms=0,
        error_code=ErrorCode.NONE,
        is_caught_up=request.current_metadata_offset >= (registered_at or 0),
        is_fenced=after in (BrokerState.FENCED, BrokerState.SHUTDOWN_NOW),
        should_shut_down=after is BrokerState.SHUTDOWN_NOW,
    )
    return Decision(records, answer)


def fence_records(state: ControlState, broker_id: int) -> Iterator[RecordToWrite]:
    """The records that take a broker out of service."""
    # The registration last: brokers apply the whole batch, but a controller that fails between two
    # batches must not leave a fenced broker in an ISR.
    yield from departure(state, broker_id)
    epoch = state.image.brokers[broker_id].broker_epoch
    yield registration_change(broker_id, epoch, fenced=FENCED)


def fence_stale(state: ControlState, *, now_ms: int) -> Sequence[RecordToWrite] | None:
    """Fence one broker whose session has ended; None: no session has ended.

    One at a time, so that what follows for the next one is seen in the image.
    """
    expired = state.heartbeats.take_expired(now_ms=now_ms)
    if expired is None:
        return None
    broker = state.image.brokers.get(expired.broker_id)
    # The session of a registration that is gone; nothing is to be done.
    if broker is None or broker.broker_epoch != expired.epoch:
        return ()
    return tuple(fence_records(state, expired.broker_id))


def unregister_broker(state: ControlState, request: UnregisterBrokerRequest) -> Decision:
    """Forget a broker.

    Raises:
        RefusedError: BROKER_ID_NOT_REGISTERED.
    """
    from tailrace.protocol.metadata_records import UnregisterBrokerRecord

    broker = state.image.brokers.get(request.broker_id)
    if broker is None:
        raise RefusedError(
            ErrorCode.BROKER_ID_NOT_REGISTERED,
            f"Broker ID {request.broker_id} is not currently registered",
        )
    record = UnregisterBrokerRecord(broker_id=request.broker_id, broker_epoch=broker.broker_epoch)
    records = [*unregistered_departure(state, request.broker_id), RecordToWrite(record, 0)]
    answer = UnregisterBrokerResponse(
        throttle_time_ms=0, error_code=ErrorCode.NONE, error_message=None
    )
    return Decision(records, answer)


def _shutdown_records(state: ControlState, broker_id: int) -> Iterator[RecordToWrite]:
    if not state.image.brokers[broker_id].in_controlled_shutdown:
        epoch = state.image.brokers[broker_id].broker_epoch
        yield registration_change(broker_id, epoch, in_controlled_shutdown=_IN_SHUTDOWN)
    yield from departure(state, broker_id)
