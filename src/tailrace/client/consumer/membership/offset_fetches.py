"""`OffsetFetches`: the OffsetFetch requests of one consumer."""

from collections.abc import Callable, Collection, Mapping
from random import Random

from tailrace.client.consumer.membership.calls import Call, Retries
from tailrace.client.consumer.membership.commit_requests import (
    RELOCATED,
    FetchedOffsets,
    fetch_request,
    read_fetch,
)
from tailrace.client.consumer.membership.errors import (
    MemberFencedError,
    RetriableCommitError,
    commit_refusal,
    is_retriable,
)
from tailrace.client.consumer.membership.group_coordinator import GroupCoordinator
from tailrace.client.consumer.membership.interface import (
    NEVER,
    Committer,
    GroupRequest,
    MembershipSettings,
)
from tailrace.client.errors import error_words
from tailrace.client.nodes import NodeError
from tailrace.errors import RetriableError
from tailrace.model import TopicPartition
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.fields import Message
from tailrace.protocol.messages.offset_fetch import OffsetFetchResponse
from tailrace.values import dataclass

FetchDone = Callable[[FetchedOffsets | Exception], None]
"""Gets the offset of each partition that was asked for, None for those without, or the error."""


@dataclass(slots=True, kw_only=True, eq=False)
class Fetch(Call):
    """A question that has no answer yet."""

    partitions: frozenset[TopicPartition]
    done: list[FetchDone]
    request: GroupRequest | None = None
    """The request in flight."""


class OffsetFetches:
    """The questions that have no answer yet; each has a request of its own."""

    def __init__(
        self, settings: MembershipSettings, coordinator: GroupCoordinator, *, chance: Random
    ) -> None:
        self._settings = settings
        self._coordinator = coordinator
        self._retries = Retries(settings, chance=chance)
        self._fetches: list[Fetch] = []

    @property
    def is_idle(self) -> bool:
        """Whether every question is answered."""
        return not self._fetches

    def add(
        self, partitions: Collection[TopicPartition], *, done: FetchDone, deadline: float
    ) -> None:
        """Queue a question; the same one twice at a time is sent once."""
        wanted = frozenset(partitions)
        if not wanted:
            done({})
            return
        same = next((each for each in self._fetches if each.partitions == wanted), None)
        if same is None:
            self._fetches.append(Fetch(partitions=wanted, done=[done], deadline=deadline))
        else:
            same.done.append(done)
            same.deadline = max(same.deadline or deadline, deadline)

    def next_request(self, membership: Committer, now: float) -> GroupRequest | None:
        """An OffsetFetch, if one is due."""
        node = self._coordinator.node
        if node is None:
            return None
        for each in self._fetches:
            if each.request is None and each.retry_at <= now:
                each.request = fetch_request(
                    membership.identity,
                    each.partitions,
                    node=node,
                    timeout_ms=self._settings.request_timeout_ms,
                    names_member=membership.names_member_in_fetch,
                )
                return each.request
        return None

    def next_deadline(self) -> float:
        """When one can be sent, or when one times out."""
        is_known = self._coordinator.node is not None
        due = [each.retry_at for each in self._fetches if is_known and each.request is None]
        return min([*due, *(each.deadline or NEVER for each in self._fetches)], default=NEVER)

    def put_back(self, request: GroupRequest) -> bool:
        """The request could not be sent; return whether it is one of these."""
        fetch = self._of(request)
        if fetch is None:
            return False
        fetch.request = None
        return True

    def answered(
        self,
        request: GroupRequest,
        outcome: Message | NodeError,
        membership: Committer,
        *,
        now: float,
    ) -> bool:
        """Handle an answer or an error; return whether the request is one of these."""
        fetch = self._of(request)
        if fetch is None:
            return False
        fetch.request = None
        if isinstance(outcome, Exception):
            self._failed(fetch, outcome, now)
            return True
        assert isinstance(outcome, OffsetFetchResponse)
        group_id = self._settings.group_id
        found = read_fetch(outcome, group_id)
        codes = {each: found.codes.get(each, ErrorCode.NONE) for each in fetch.partitions}
        for code in RELOCATED.intersection({found.code}):
            self._coordinator.mark_unknown(request.node, now, why=error_words(code))
        if found.code in {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.STALE_MEMBER_EPOCH}:
            fenced = MemberFencedError(
                f"group {group_id!r}: OffsetFetch: {error_words(found.code)}"
            )
            if membership.identity.generation >= 0:
                # The next heartbeat finds out, and the member gets another epoch.
                self._failed(fetch, fenced, now)
            else:
                self._finish(fetch, fenced)
        elif found.code != ErrorCode.NONE:
            self._refused(fetch, {"OffsetFetch": found.code}, now)
        elif any(codes.values()):
            self._refused(fetch, {str(each): code for each, code in codes.items()}, now)
        else:
            self._finish(fetch, {each: found.offsets.get(each) for each in fetch.partitions})
        return True

    def check(self, now: float) -> None:
        """Fail questions whose time is up, and retry those whose coordinator was lost."""
        for each in list(self._fetches):
            if each.is_late(now):
                self._finish(
                    each,
                    self._retries.timed_out(
                        each, what="OffsetFetch", trouble=self._coordinator.trouble
                    ),
                )
            elif each.request is not None and each.request.node != self._coordinator.node:
                each.request = None
                lost = RetriableCommitError("the coordinator was lost before it answered")
                self._retries.pause(each, lost, now)

    def fail(self, error: Exception) -> None:
        """Fail all questions."""
        for each in list(self._fetches):
            self._finish(each, error)

    def _refused(self, fetch: Fetch, codes: Mapping[str, int], now: float) -> None:
        """Fail a fetch by the worst of its codes, or retry it."""
        group_id = self._settings.group_id
        faults = {about: code for about, code in codes.items() if code != ErrorCode.NONE}
        for code in faults.values():
            # Kafka's consumer does not retry for a partition that does not exist.
            if not is_retriable(code) or code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
                same = [each for each, other in faults.items() if other == code]
                error = commit_refusal(code, group_id=group_id, partitions=same)
                self._finish(fetch, error)
                return
        about, code = next(iter(faults.items()))
        error = RetriableCommitError(f"group {group_id!r}, {about}: {error_words(code)}")
        self._failed(fetch, error, now)

    def _failed(self, fetch: Fetch, error: Exception, now: float) -> None:
        if isinstance(error, RetriableError):
            self._retries.pause(fetch, error, now)
        else:
            self._finish(fetch, error)

    def _finish(self, fetch: Fetch, outcome: FetchedOffsets | Exception) -> None:
        self._fetches.remove(fetch)
        for done in fetch.done:
            done(outcome)

    def _of(self, request: GroupRequest) -> Fetch | None:
        return next((each for each in self._fetches if each.request is request), None)
