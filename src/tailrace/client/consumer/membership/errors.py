"""Errors of groups and commits, by what the caller should do.

    RetriableError   the same call may go through later
    FatalError       a setting, the group or the application must change

Every message names the group, says what happened, and which setting or call changes it.
"""

from collections.abc import Collection
from typing import Final

from tailrace.client.consumer.errors import TopicAuthorizationError
from tailrace.client.errors import error_words
from tailrace.errors import FatalError, RetriableError, TailraceError
from tailrace.protocol.errors import ErrorCode


class GroupError(TailraceError):
    """Base of a consumer's errors about its group; each is also retriable or fatal."""


class GroupRefusedError(GroupError, FatalError):
    """The coordinator refused the member for good; `code` says why."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        self.code = code
        """The number on the wire; -1 if there was no code of this kind."""
        super().__init__(message)


class GroupAuthorizationError(GroupError, FatalError, PermissionError):
    """The user may not use this group."""


class FencedInstanceError(GroupError, FatalError):
    """Another consumer uses the same `group.instance.id` now; this one can only be closed."""


class MalformedGroupDataError(GroupError, FatalError, ValueError):
    """A member or the leader of the group has sent bytes that are no subscription or assignment."""


class CommitFailedError(GroupError, FatalError):
    """Nothing was committed: the consumer is not in the group any more.

    Others may read the partitions already, and records since the last commit are read again.
    """


class CommitRefusedError(GroupError, FatalError):
    """The coordinator refused to store these offsets; `code` says why."""

    def __init__(self, message: str, *, code: int = -1) -> None:
        self.code = code
        """The number on the wire."""
        super().__init__(message)


class RebalanceInProgressError(GroupError, RetriableError):
    """Nothing was committed, because the group rebalances: call poll, then commit again."""


class RetriableCommitError(GroupError, RetriableError):
    """A commit without retries was not stored, or not confirmed; a later commit covers it."""


class MemberFencedError(GroupError, RetriableError):
    """The coordinator does not know the member in this epoch; it loses its partitions soon."""


class GroupTimeoutError(GroupError, RetriableError, TimeoutError):
    """The coordinator did not answer, or could not be found, within the time for the call."""


RELOCATED: Final = frozenset({ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.NOT_COORDINATOR})
"""Error codes after which the coordinator is looked up again."""

_ADVICE: Final = {
    ErrorCode.INCONSISTENT_GROUP_PROTOCOL: (
        "its members have no assignor in common with partition.assignment.strategy of this one, or "
        "they are no consumers: give all members a common assignor, or use another group.id"
    ),
    ErrorCode.INVALID_SESSION_TIMEOUT: (
        "session.timeout.ms has to be between group.min.session.timeout.ms and "
        "group.max.session.timeout.ms of the broker"
    ),
    ErrorCode.INVALID_GROUP_ID: "give another group.id",
    ErrorCode.GROUP_MAX_SIZE_REACHED: (
        "it has as many members as group.max.size of the broker allows: stop some, or raise that"
    ),
    ErrorCode.UNRELEASED_INSTANCE_ID: (
        "another consumer has this group.instance.id: stop it, wait until its session has ended, "
        "or give this one another id"
    ),
    ErrorCode.UNSUPPORTED_ASSIGNOR: "group.remote.assignor names none that the broker has",
    ErrorCode.INVALID_REGULAR_EXPRESSION: "the pattern has to be a regular expression of RE2",
    ErrorCode.GROUP_ID_NOT_FOUND: (
        "the broker cannot change the group from one protocol to the other: set group.protocol to "
        "that of its members, or see group.consumer.migration.policy of the broker"
    ),
    ErrorCode.UNSUPPORTED_VERSION: (
        "the broker lacks the consumer protocol, or subscriptions by pattern in it: set "
        "group.protocol to classic"
    ),
    ErrorCode.OFFSET_METADATA_TOO_LARGE: (
        "the metadata of an offset is longer than offset.metadata.max.bytes of the broker allows"
    ),
}


def is_retriable(code: int) -> bool:
    """Whether Kafka's clients retry after this code; unknown codes are not retried."""
    return code in set(ErrorCode) and ErrorCode(code).is_retriable


def not_a_member(group_id: str) -> CommitFailedError:
    """The error of a commit by a consumer that is out of its group."""
    return CommitFailedError(
        f"group {group_id!r}: this consumer is not a member, so nothing was committed; either it "
        "has not called poll for longer than max.poll.interval.ms, or the group has removed it"
    )


def refusal(code: int, *, group_id: str, during: str, said: str | None = None) -> Exception:
    """The error for a code after which the consumer cannot be a member; `said` by the broker."""
    # A newer broker may send a code that this version does not know.
    known = ErrorCode(code) if code in set(ErrorCode) else None
    message = f"group {group_id!r}: {during} was refused: {error_words(code)}"
    if said:
        message += f": {said}"
    if known in _ADVICE:
        message += f"; {_ADVICE[known]}"
    if known is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return GroupAuthorizationError(f"{message}; the user needs READ on this group")
    if known is ErrorCode.FENCED_INSTANCE_ID:
        return FencedInstanceError(
            f"{message}; another consumer has joined with this group.instance.id, or an "
            "administrator has removed this one: close it, and give each consumer its own id"
        )
    return GroupRefusedError(message, code=code)


def commit_refusal(code: int, *, group_id: str, partitions: Collection[str]) -> Exception:
    """The error for a code in the answer of a commit or an OffsetFetch that is not retried."""
    known = ErrorCode(code) if code in set(ErrorCode) else None
    message = f"group {group_id!r}, {', '.join(sorted(partitions))}: {error_words(code)}"
    if known in _ADVICE:
        message += f"; {_ADVICE[known]}"
    if known is ErrorCode.GROUP_AUTHORIZATION_FAILED:
        return GroupAuthorizationError(f"{message}; the user needs READ on this group")
    if known is ErrorCode.TOPIC_AUTHORIZATION_FAILED:
        # The text of a partition is topic-number, and a topic may have hyphens itself.
        topics = {each.rpartition("-")[0] for each in partitions}
        offsets = f"offsets of group {group_id!r} in {', '.join(sorted(partitions))}"
        return TopicAuthorizationError(topics, during=offsets)
    return CommitRefusedError(message, code=code)
