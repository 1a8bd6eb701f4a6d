"""Adds a controller to the voters of the metadata log, or removes one, when no harm can come of it.

    describe the quorum -> has the new one the log? are the others a majority? -> change -> describe
            ^                             |
            '---------- not yet ----------'

Apache Kafka changes the voters by a record that the majority of the new voters has to take
(KIP-853). If it has none, no later change of metadata is ever committed, and nobody can undo that.

A call may be repeated after any error: it looks at the voters first.

Not here: the requests (`admin.cluster`).
"""

from collections.abc import Callable, Iterable
from typing import Final

from tailrace.client.admin.cluster import (
    MetadataQuorum,
    QuorumReplica,
    add_raft_voter,
    describe_cluster,
    describe_metadata_quorum,
    remove_raft_voter,
)
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.errors import RemoteFatalError
from tailrace.errors import FatalError, RetriableError
from tailrace.protocol.errors import ErrorCode

WAIT_S: Final = 60.0
"""For how long a controller may lack records, or the voters a majority."""
POLL_S: Final = 1.0
"""Between two looks at the quorum."""
REPORT_S: Final = 10.0
"""Between two sentences on a wait."""
SILENT_MS_MAX: Final = 5_000
"""A replica that has had the whole log at some time in these counts as one that takes records: a
follower fetches at least each half second (`metadata.max.idle.interval.ms`)."""


class VotersError(FatalError):
    """The voters are as they were; the message says why, and what to do."""


Report = Callable[[str], None]
"""Gets a sentence when a wait begins, and again each `REPORT_S`."""


def add_controller(
    call: Call, voter_id: int, address: tuple[str, int], *, report: Report
) -> Steps[MetadataQuorum]:
    """Add a controller that listens at an address; returns the quorum with it as a voter.

    Waits until the controller has the whole metadata log.

    Raises:
        VotersError: within `WAIT_S` it did not have the log, or the voters with it had no majority;
            or the address is that of a broker.
        RemoteFatalError: the active controller refuses: UNSUPPORTED_VERSION where the settings name
            the voters (`kraft.version` 0), or where it is not Kafka's.
        TailraceError: no broker answers.
    """
    cluster = yield from describe_cluster(call)
    for each in cluster.brokers:
        # Kafka would take it: a broker answers the one question that it asks a new voter.
        if (each.id, each.host, each.port) == (voter_id, *address):
            raise VotersError(
                f"{each.host}:{each.port} is broker {each.id}; give the address of a controller"
            )

    def change(quorum: MetadataQuorum) -> Steps[None]:
        [new] = _known(quorum.observers, voter_id)
        assert new.directory_id is not None, "`lacks` has seen it"
        # The leader looks for an endpoint that has the name of its own.
        names = [name for name, _, _ in quorum.addresses.get(quorum.leader_id, ())]
        endpoints = [(each, *address) for each in names[:1]]
        yield from add_raft_voter(call.renewed(), voter_id, new.directory_id, endpoints=endpoints)

    def lacks(quorum: MetadataQuorum) -> str | None:
        new = _known(quorum.observers, voter_id)
        if not new or new[0].directory_id is None:
            return (
                f"controller {voter_id} does not follow the metadata log; start it, with the "
                "controllers of this cluster in its controller.quorum.bootstrap.servers"
            )
        if not _has_log(quorum, new[0]):
            return _lag_of(quorum, new[0])
        return _lacks_majority(quorum, [*quorum.voters, new[0]])

    return (
        yield from _change_voters(
            call, lacks, change, is_done=lambda found: voter_id in _ids(found), report=report
        )
    )


def remove_controller(call: Call, voter_id: int, *, report: Report) -> Steps[MetadataQuorum]:
    """Remove a controller from the voters; returns the quorum without it.

    It may be away. The active one may be removed too: another is elected then.

    Raises:
        VotersError: it is the only voter, or no voter and no observer; or the others were no
            majority of themselves within `WAIT_S`.
        RemoteFatalError: as `add_controller`.
        TailraceError: no broker answers.
    """
    quorum = yield from describe_metadata_quorum(call)
    if not _known([*quorum.voters, *quorum.observers], voter_id):
        raise VotersError(
            f"controller {voter_id} is none of the voters {_listed(_ids(quorum))}; give one of them"
        )
    if _ids(quorum) == [voter_id]:
        raise VotersError(
            f"controller {voter_id} is the only voter, and without one there is no cluster; add "
            "another one first"
        )

    def change(quorum: MetadataQuorum) -> Steps[None]:
        for each in _known(quorum.voters, voter_id):
            if each.directory_id is None:
                raise VotersError(
                    "the settings of the controllers name the voters (kraft.version 0), so that "
                    "none can be removed while they run"
                )
            yield from remove_raft_voter(call.renewed(), voter_id, each.directory_id)

    def lacks(quorum: MetadataQuorum) -> str | None:
        rest = [each for each in quorum.voters if each.replica_id != voter_id]
        return _lacks_majority(quorum, rest)

    return (
        yield from _change_voters(
            call, lacks, change, is_done=lambda found: voter_id not in _ids(found), report=report
        )
    )


def _change_voters(
    call: Call,
    lacks: Callable[[MetadataQuorum], str | None],
    change: Callable[[MetadataQuorum], Steps[None]],
    *,
    is_done: Callable[[MetadataQuorum], bool],
    report: Report,
) -> Steps[MetadataQuorum]:
    report_at = call.clock()
    deadline = report_at + WAIT_S
    while True:
        # Each look and each change has the whole time of a call.
        quorum = yield from describe_metadata_quorum(call.renewed())
        if is_done(quorum):
            return quorum
        reason = lacks(quorum)
        if reason is None:
            try:
                yield from change(quorum)
                continue
            except RetriableError as error:
                # The leader has another change under way, or is not in contact with the new voter.
                reason = str(error)
            except RemoteFatalError as error:
                # The request before this one was carried out, and its answer was lost.
                if error.code not in {ErrorCode.DUPLICATE_VOTER, ErrorCode.VOTER_NOT_FOUND}:
                    raise
                reason = str(error)
        if call.clock() >= deadline:
            raise VotersError(f"the voters remain {_listed(_ids(quorum))}: {reason}")
        if call.clock() >= report_at:
            report(reason)
            report_at = call.clock() + REPORT_S
        yield from call.pause(POLL_S)


def _lacks_majority(quorum: MetadataQuorum, voters: list[QuorumReplica]) -> str | None:
    """Why a majority of these would not take records; None: it would."""
    lagging = [each for each in voters if not _has_log(quorum, each)]
    if 2 * len(lagging) < len(voters):
        return None
    return "the voters would have no majority: " + "; ".join(
        _lag_of(quorum, each) for each in lagging
    )


def _has_log(quorum: MetadataQuorum, replica: QuorumReplica) -> bool:
    # All times are of the leader's clock, and its own is the present.
    now_ms = max((each.last_caught_up_timestamp for each in quorum.voters), default=-1)
    return now_ms - replica.last_caught_up_timestamp <= SILENT_MS_MAX


def _lag_of(quorum: MetadataQuorum, replica: QuorumReplica) -> str:
    end = max((each.log_end_offset for each in quorum.voters), default=-1)
    return f"controller {replica.replica_id} lags by {end - replica.log_end_offset} records"


def _known(replicas: Iterable[QuorumReplica], replica_id: int) -> list[QuorumReplica]:
    """The replica of an id, or none; of several directories that of the last Fetch."""
    found = [each for each in replicas if each.replica_id == replica_id]
    return sorted(found, key=lambda each: each.last_fetch_timestamp)[-1:]


def _ids(quorum: MetadataQuorum) -> list[int]:
    return sorted(each.replica_id for each in quorum.voters)


def _listed(ids: list[int]) -> str:
    return ", ".join(map(str, ids))
