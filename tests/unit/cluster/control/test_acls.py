"""The rules for entries of access control lists: made, found, removed and refused as by Kafka."""

from typing import Any

import pytest

from tailrace.cluster.control import acls
from tailrace.cluster.control.state import RefusedError
from tailrace.protocol.apis import ApiKey
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.delete_acls import (
    DeleteAclsFilter,
    DeleteAclsFilterResult,
    DeleteAclsRequest,
)
from tailrace.protocol.metadata_records import (
    AccessControlEntryRecord,
    RemoveAccessControlEntryRecord,
)
from tailrace.values import replace
from tests.unit.cluster.control.controlled import Controlled

ANY, MATCH, LITERAL, PREFIXED = 1, 2, 3, 4
READ, WRITE = 3, 4
DENY, ALLOW = 2, 3
UNKNOWN = 99
NO_COLON = "no colon is present separating the principal type from the principal name"
MADE = AclCreation(
    resource_type=2,
    resource_name="flights",
    resource_pattern_type=LITERAL,
    principal="User:alice",
    host="*",
    operation=READ,
    permission_type=ALLOW,
)
EVERY = DeleteAclsFilter(
    resource_type_filter=ANY,
    resource_name_filter=None,
    pattern_type_filter=ANY,
    principal_filter=None,
    host_filter=None,
    operation=ANY,
    permission_type=ANY,
)


def create(cluster: Controlled, *entries: AclCreation) -> list[tuple[ErrorCode, str | None]]:
    """Code and message of each entry."""
    answer = cluster.do(ApiKey.CREATE_ACLS, CreateAclsRequest(creations=entries))
    return [(ErrorCode(each.error_code), each.error_message) for each in answer.results]


def delete(cluster: Controlled, *filters: DeleteAclsFilter) -> list[DeleteAclsFilterResult]:
    """The result of each filter."""
    answer = cluster.do(ApiKey.DELETE_ACLS, DeleteAclsRequest(filters=filters))
    return list(answer.filter_results)


def test_entries_are_records_with_ids() -> None:
    """Each has one record, with all that the request said and an id of its own."""
    cluster = Controlled()
    before = len(cluster.appended)
    denied = replace(MADE, permission_type=DENY, resource_pattern_type=PREFIXED)
    assert create(cluster, MADE, denied) == [(ErrorCode.NONE, None)] * 2
    kept: list[Any] = cluster.appended[before:]
    first, second = kept
    assert first == AccessControlEntryRecord(
        id=first.id, resource_type=2, resource_name="flights", pattern_type=LITERAL,
        principal="User:alice", host="*", operation=READ, permission_type=ALLOW,
    )  # fmt: skip
    assert (second.pattern_type, second.permission_type) == (PREFIXED, DENY)
    assert list(cluster.state.image.acls.values()) == [first, second]
    assert first.id != second.id


def test_an_entry_that_is_there_stays_as_it_is() -> None:
    """Twice in a request, or in two requests: no error, and one record."""
    cluster = Controlled()
    before = len(cluster.appended)
    assert create(cluster, MADE, MADE) == [(ErrorCode.NONE, None)] * 2
    assert create(cluster, MADE) == [(ErrorCode.NONE, None)]
    assert len(cluster.appended) == before + 1


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"resource_type": UNKNOWN}, "Invalid resourceType UNKNOWN"),
        ({"resource_pattern_type": UNKNOWN}, "Invalid patternType UNKNOWN"),
        ({"operation": UNKNOWN}, "Invalid operation UNKNOWN"),
        ({"permission_type": UNKNOWN}, "Invalid permissionType UNKNOWN"),
        ({"resource_name": ""}, "Invalid empty resource name"),
        (
            {"resource_type": 4},
            "The only valid name for the CLUSTER resource is kafka-cluster",
        ),
        (
            {"principal": "alice"},
            f"Could not parse principal from `alice` ({NO_COLON})",
        ),
        (
            {"principal": ""},
            f"Could not parse principal from `` ({NO_COLON})",
        ),
    ],
)  # fmt: skip
def test_a_wrong_entry_is_refused_alone(changes: dict[str, object], message: str) -> None:
    """With Kafka's words; the entries beside it are made."""
    cluster = Controlled()
    wrong = replace(MADE, **changes)  # type: ignore[arg-type]
    assert create(cluster, wrong, MADE) == [
        (ErrorCode.INVALID_REQUEST, message),
        (ErrorCode.NONE, None),
    ]
    assert len(cluster.state.image.acls) == 1


@pytest.mark.parametrize(
    "changes",
    [
        {"resource_type": ANY}, {"operation": ANY}, {"permission_type": ANY},
        {"resource_pattern_type": ANY}, {"resource_pattern_type": MATCH}, {"resource_type": 0},
    ],
)  # fmt: skip
def test_words_of_filters_refuse_all_of_a_request(changes: dict[str, object]) -> None:
    """Every entry fails as in Kafka, also those that are right."""
    cluster = Controlled()
    wrong = replace(MADE, **changes)  # type: ignore[arg-type]
    with pytest.raises(RefusedError) as refused:
        create(cluster, MADE, wrong)
    assert refused.value.code == ErrorCode.UNKNOWN_SERVER_ERROR
    assert not cluster.state.image.acls


def test_each_filter_is_answered_with_what_it_has_found() -> None:
    """An entry that two filters find is removed once, and told to both."""
    cluster = Controlled()
    create(cluster, MADE, replace(MADE, operation=WRITE), replace(MADE, principal="User:bob"))
    before = len(cluster.appended)
    alice, readers, nobody = delete(
        cluster,
        replace(EVERY, principal_filter="User:alice"),
        replace(EVERY, operation=READ),
        replace(EVERY, principal_filter="User:carol"),
    )
    assert {each.operation for each in alice.matching_acls} == {READ, WRITE}
    assert {each.principal for each in readers.matching_acls} == {"User:alice", "User:bob"}
    assert nobody.matching_acls == ()
    removed = cluster.appended[before:]
    assert len(removed) == 3
    assert all(isinstance(each, RemoveAccessControlEntryRecord) for each in removed)
    assert not cluster.state.image.acls


def test_patterns_of_filters_find_names_in_their_way() -> None:
    """MATCH what applies to a name, ANY and the others what has exactly this name."""
    cluster = Controlled()
    create(
        cluster, MADE, replace(MADE, resource_name="*"), replace(MADE, resource_name="other"),
        replace(MADE, resource_name="fl", resource_pattern_type=PREFIXED),
        replace(MADE, resource_name="flights", resource_pattern_type=PREFIXED),
    )  # fmt: skip

    def found(pattern: int) -> list[tuple[str, int]]:
        named = replace(EVERY, resource_name_filter="flights", pattern_type_filter=pattern)
        matching = acls.filter_of(named)
        assert matching is not None
        entries = cluster.state.image.acls.values()
        return [(e.resource_name, e.pattern_type) for e in entries if matching.matches(e)]

    assert found(LITERAL) == [("flights", LITERAL)]
    assert found(PREFIXED) == [("flights", PREFIXED)]
    assert found(ANY) == [("flights", LITERAL), ("flights", PREFIXED)]
    assert found(MATCH) == [
        ("flights", LITERAL), ("*", LITERAL), ("fl", PREFIXED), ("flights", PREFIXED),
    ]  # fmt: skip
    [result] = delete(
        cluster, replace(EVERY, resource_name_filter="flights", pattern_type_filter=MATCH)
    )
    assert len(result.matching_acls) == 4


def test_a_filter_of_an_unknown_kind_is_refused_alone() -> None:
    """Nothing is removed for it, and the others are carried out."""
    cluster = Controlled()
    create(cluster, MADE)
    wrong, right = delete(cluster, replace(EVERY, operation=UNKNOWN), EVERY)
    assert wrong.error_code == ErrorCode.INVALID_REQUEST
    assert len(right.matching_acls) == 1


def test_more_removals_than_one_batch_may_have_are_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All of them, so that nobody takes a part for the whole."""
    monkeypatch.setattr(acls, "RECORDS_MAX", 2)
    cluster = Controlled()
    create(cluster, *(replace(MADE, resource_name=f"t{number}") for number in range(3)))
    with pytest.raises(RefusedError) as refused:
        delete(cluster, EVERY)
    assert refused.value.code == ErrorCode.INVALID_REQUEST
    assert str(refused.value) == "Cannot remove more than 2 acls in a single delete operation."
    assert len(cluster.state.image.acls) == 3


def test_filters_that_look_at_too_much_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each for any name looks at all entries; those with a name look at few."""
    cluster = Controlled()
    create(cluster, *(replace(MADE, resource_name=f"t{number}") for number in range(5)))
    monkeypatch.setattr(acls, "LOOKED_AT_MAX", 10)
    named = [replace(EVERY, resource_name_filter=f"t{each}", operation=WRITE) for each in range(9)]
    assert [each.matching_acls for each in delete(cluster, *named)] == [()] * 9
    others = replace(EVERY, principal_filter="User:bob")
    request = DeleteAclsRequest(filters=(others, others, others))
    assert cluster.refused(ApiKey.DELETE_ACLS, request) is ErrorCode.POLICY_VIOLATION
    delete(cluster, others, EVERY)
    assert not cluster.state.image.acls
