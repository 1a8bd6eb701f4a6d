"""Every API by clients with and without each right that it needs, to Kafka and to our broker.

    python -m compat.acl_answers     writes tests/unit/broker/acl_answers.tsv anew, from what Kafka
                                     answers

    entries of Kafka ─► Kafka answers ─► our broker on the same directory answers
    entries of ours  ─► Kafka on the same directory answers

The table is `tests.unit.broker.acl_answers`. Each cell logs in as a user of its own, by PLAIN.

Invariant: no answer in the file was worked out by Tailrace.
"""

import os
import sys
import tempfile
from collections.abc import Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Self
from uuid import UUID

from compat.artifacts import KAFKA, class_path
from compat.bytewise import copy_directory
from compat.kafka import Kafka
from compat.report import Report
from compat.transaction_answers import Connection
from compat.users import kafka_with_logins, ours_with_logins
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.create_acls import AclCreation, CreateAclsRequest
from tailrace.protocol.messages.create_topics import CreatableTopic, CreateTopicsRequest
from tailrace.protocol.messages.describe_acls import DescribeAclsRequest
from tailrace.protocol.messages.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsTopic,
)
from tailrace.protocol.messages.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from tailrace.protocol.messages.sasl_authenticate import SaslAuthenticateRequest
from tailrace.protocol.messages.sasl_handshake import SaslHandshakeRequest
from tailrace.security.acls import AclBinding, AclOperation, AclResource, Permission
from tailrace.security.authorizer_config import STANDARD_AUTHORIZER
from tailrace.spark.java import find_java
from tailrace.values import replace
from tests.unit.broker.acl_answers import (
    ANSWERS,
    GROUP,
    HEADER,
    HIDDEN,
    SECRET,
    TOPIC,
    Cell,
    cells,
    line,
    why_other,
)

CREATED_PER_REQUEST = 200
_ADMIN, _HERE, _THERE = "admin", "here", "there"
_USERS = [_ADMIN, _HERE, _THERE, *(f"c{number}" for number in range(1000))]
_PASSWORDS = " ".join(f'user_{each}="{each}"' for each in _USERS)
_SETTINGS = {
    "authorizer.class.name": STANDARD_AUTHORIZER,
    # Brokers of Kafka, which log in nowhere, and who makes the entries.
    "super.users": f"User:ANONYMOUS;User:{_ADMIN}",
    "sasl.enabled.mechanisms": "PLAIN",
    "listener.name.sasl_plaintext.plain.sasl.jaas.config":
        f"org.apache.kafka.common.security.plain.PlainLoginModule required {_PASSWORDS};",
    "offsets.topic.num.partitions": "1",
    "transaction.state.log.num.partitions": "1",
}  # fmt: skip

_Entry = tuple[int, str, int, str, str, int, int]


def check(report: Report, kafka: Kafka) -> None:
    """Compare the file with Kafka, and take turns on two directories; that of `kafka` is new."""
    other = kafka.moved_to(kafka.directory / "entries-of-ours")
    due = ANSWERS.read_text().splitlines()[1:]
    with _kafka(kafka) as servers:
        asked, made = _prepared(servers)
    # Before the questions, of which some remove records and entries.
    copied = copy_directory(kafka.logs, kafka.directory / "entries-of-kafka")
    with _kafka(kafka) as servers:
        report.check(
            "the answers to clients without rights to which make test holds our broker are Kafka's",
            [*_differences(due, _answers(servers, asked))],
        )
    with _ours(copied) as servers:
        report.check("our broker has the entries that Kafka has made", _unlike(made, servers))
        report.check(
            f"and answers {len(due)} requests by them as Kafka does",
            [*_differences((each for each in due if why_other(each) is None),
                           _answers(servers, asked))],
        )  # fmt: skip
        report.check("our broker obeys entries for an address", [*_refused_by_address(servers)])
    other.logs.mkdir(parents=True)
    with _ours(other.logs) as servers:
        asked, made = _prepared(servers)
    with _kafka(other) as servers:
        report.check("Kafka has the entries that our broker has made", _unlike(made, servers))
        report.check(
            f"and answers {len(due)} requests by them as by its own",
            [*_differences(due, _answers(servers, asked))],
            explained="allowed and denied, for names, prefixes, all names, and other addresses",
        )
        report.check("Kafka obeys our entries for an address", [*_refused_by_address(servers)])


def _kafka(kafka: Kafka) -> AbstractContextManager[str]:
    return kafka_with_logins(kafka, _SETTINGS)


def _ours(directory: Path) -> AbstractContextManager[str]:
    return ours_with_logins(directory, _SETTINGS)


def _differences(due: Iterable[str], found: Sequence[str]) -> Iterator[str]:
    known = {each.rpartition("\t")[0]: each for each in found}
    for each in due:
        answer = known.get(each.rpartition("\t")[0])
        if answer != each:
            yield f"{each!r} is due, and it is {answer!r}"


def _prepared(servers: str) -> tuple[list[Cell], set[_Entry]]:
    """Make what questions name, and the entries; returns the cells and the entries."""
    with _LoggedIn(servers, _ADMIN) as admin:
        asked = list(cells(_make_names(admin)))
        _create(admin, [binding for each in asked for binding in each.bindings])
        describe = AclBinding(AclResource.TOPIC, TOPIC, f"User:{_HERE}", AclOperation.DESCRIBE)
        here = replace(describe, host="127.0.0.1")
        allowed = replace(describe, principal=f"User:{_THERE}")
        denied = replace(here, principal=f"User:{_THERE}", permission=Permission.DENY)
        _create(admin, [here, allowed, denied])
        return asked, _entries(admin)


def _answers(servers: str, asked: Sequence[Cell]) -> list[str]:
    with _LoggedIn(servers, _ADMIN) as admin:
        admin.wait_for_coordinators()
    lines = []
    for each in asked:
        with _LoggedIn(servers, each.principal.partition(":")[2]) as user:
            try:
                answer = user.ask(each.question.request, each.question.version)
            except EOFError:
                answer = None
        lines.append(line(each, answer))
    return lines


class _LoggedIn(Connection):
    """A connection of a user, whose password is the name."""

    def __init__(self, servers: str, name: str) -> None:
        super().__init__(servers)
        self.ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
        token = b"\0".join((b"", name.encode(), name.encode()))
        answer = self.ask(SaslAuthenticateRequest(auth_bytes=token), 2)
        assert answer.error_code == ErrorCode.NONE, answer

    def __enter__(self) -> Self:
        return self


def _make_names(admin: Connection) -> dict[str, UUID]:
    """Make the topics and groups that questions name; returns the ids of the topics."""
    topics = tuple(
        CreatableTopic(name=each, num_partitions=1, replication_factor=1)
        for each in (TOPIC, SECRET)
    )
    created = admin.ask(CreateTopicsRequest(topics=topics), 7).topics
    assert {each.error_code for each in created} == {ErrorCode.NONE}, created
    admin.wait_for_coordinators()
    offset = (OffsetCommitRequestPartition(partition_index=0, committed_offset=0),)
    for group in (GROUP, HIDDEN):
        request = OffsetCommitRequest(
            group_id=group,
            generation_id_or_member_epoch=-1,
            topics=tuple(
                OffsetCommitRequestTopic(name=each, partitions=offset) for each in (TOPIC, SECRET)
            ),
        )
        answer = admin.ask(request, 8)
        codes = {part.error_code for each in answer.topics for part in each.partitions}
        assert codes == {ErrorCode.NONE}, answer
    return {each.name: each.topic_id for each in created}


def _create(admin: Connection, bindings: Sequence[AclBinding]) -> None:
    creations = [
        AclCreation(
            resource_type=each.resource,
            resource_name=each.name,
            resource_pattern_type=each.pattern,
            principal=each.principal,
            host=each.host,
            operation=each.operation,
            permission_type=each.permission,
        )
        for each in bindings
    ]
    for at in range(0, len(creations), CREATED_PER_REQUEST):
        request = CreateAclsRequest(creations=tuple(creations[at : at + CREATED_PER_REQUEST]))
        answer = admin.ask(request, 3)
        assert {each.error_code for each in answer.results} <= {ErrorCode.NONE}, answer


def _entries(admin: Connection) -> set[_Entry]:
    request = DescribeAclsRequest(
        resource_type_filter=1, resource_name_filter=None, pattern_type_filter=1,
        principal_filter=None, host_filter=None, operation=1, permission_type=1,
    )  # fmt: skip
    answer = admin.ask(request, 3)
    assert answer.error_code == ErrorCode.NONE, answer
    return {
        (
            resource.resource_type, resource.resource_name, resource.pattern_type, acl.principal,
            acl.host, acl.operation, acl.permission_type,
        )
        for resource in answer.resources
        for acl in resource.acls
    }  # fmt: skip


def _unlike(made: set[_Entry], servers: str) -> list[str]:
    with _LoggedIn(servers, _ADMIN) as admin:
        return [f"{each} is on one side only" for each in sorted(made ^ _entries(admin))]


def _refused_by_address(servers: str) -> Iterator[str]:
    """Differences from: one user may describe the topic from here, and one from elsewhere."""
    latest = (ListOffsetsPartition(partition_index=0, timestamp=-1),)
    request = ListOffsetsRequest(topics=(ListOffsetsTopic(name=TOPIC, partitions=latest),))
    for name, due in ((_HERE, ErrorCode.NONE), (_THERE, ErrorCode.TOPIC_AUTHORIZATION_FAILED)):
        with _LoggedIn(servers, name) as user:
            found = user.ask(request, 7).topics[0].partitions[0].error_code
        if found != due:
            yield f"{name}: {ErrorCode(found).name} where {due.name} is due"


def main() -> None:
    """Write the file."""
    java, jars = find_java(os.environ).home / "bin" / "java", class_path(KAFKA, os.environ)
    with (
        tempfile.TemporaryDirectory(prefix="tailrace-answers-", dir="/var/tmp") as directory,
        _kafka(Kafka(java, jars, Path(directory) / "kafka")) as servers,
    ):
        asked, _ = _prepared(servers)
        lines = _answers(servers, asked)
    ANSWERS.write_text("\n".join([HEADER, *lines]) + "\n")
    print(f"{ANSWERS}: {len(lines)} answers", file=sys.stderr)


if __name__ == "__main__":
    main()
