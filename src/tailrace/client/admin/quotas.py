"""Quotas of clients: how fast users, client ids and addresses may produce, fetch and ask (KIP-546).

    alice = QuotaEntity.of(user="alice")
    admin.alter_client_quotas({alice: {"producer_byte_rate": 1e6, "consumer_byte_rate": None}})
    admin.describe_client_quotas({"user": "alice"})

An entity is one or two of `user`, `client_id` and `ip`; the name None is the default for all that
have no quota of their own.
"""

from collections.abc import Iterable, Mapping
from enum import Enum

from tailrace.client.admin.items import (
    ItemRequest,
    all_of,
    ask_one,
    check_kinds,
    for_each,
    values_in,
)
from tailrace.client.admin.outcomes import Outcomes
from tailrace.client.calls import Call
from tailrace.client.drive.steps import Steps
from tailrace.client.routes import ANY
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    EntityData,
    EntryData,
    OpData,
)
from tailrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
)
from tailrace.values import dataclass


class AnyName(Enum):
    """The value of a filter that takes any name of its kind."""

    ANY = "any"


@dataclass(frozen=True, slots=True)
class QuotaEntity:
    """A user, a client id, an address, or two of them, with quotas."""

    parts: tuple[tuple[str, str | None], ...]
    # A tuple and no mapping: entities are keys of the results.
    """Kind and name in the order of the kinds: `client-id`, `ip`, `user`."""

    @staticmethod
    def of(**names: str | None) -> "QuotaEntity":
        """An entity by its parts: `of(user="alice", client_id=None)`."""
        return _entity((kind.replace("_", "-"), name) for kind, name in names.items())

    def __str__(self) -> str:
        return ",".join(
            # As `kafka-configs` writes the default entity.
            f"{kind}={'<default>' if name is None else name}"
            for kind, name in self.parts
        )


def describe_client_quotas(
    call: Call,
    matching: Mapping[str, str | AnyName | None] | None = None,
    *,
    is_strict: bool = False,
) -> Steps[dict[QuotaEntity, dict[str, float]]]:
    """The quotas of the entities that match, by entity and name of the quota.

    `{"user": "alice"}` is that user, `{"user": None}` the default of users, and
    `{"user": AnyName.ANY}` every user that has a quota. With `is_strict` entities with further
    parts are left out. Without `matching`: all.

    Raises:
        RemoteFatalError: the broker refuses: CLUSTER_AUTHORIZATION_FAILED, or an unknown kind.
        UnsupportedBrokerError: the broker lacks the API (before Kafka 2.6).
        OperationTimeoutError: no answer within the time limit.
    """
    asked = DescribeClientQuotasRequest(
        components=tuple(
            _component(kind, name)
            for kind, name in values_in(matching or {}, what="matching").items()
        ),
        strict=is_strict,
    )
    request: ItemRequest[str, dict[QuotaEntity, dict[str, float]], DescribeClientQuotasResponse]
    request = ItemRequest(
        what="the quotas",
        target=ANY,
        request=lambda _: asked,
        response=DescribeClientQuotasResponse,
        value=lambda _, answer: {
            _entity((each.entity_type, each.entity_name) for each in entry.entity): {
                value.key: value.value for value in entry.values
            }
            for entry in answer.entries or ()
        },
    )
    return (yield from ask_one(call, request))


def alter_client_quotas(
    call: Call,
    changes: Mapping[QuotaEntity, Mapping[str, float | None]],
    *,
    validate_only: bool = False,
) -> Steps[Outcomes[QuotaEntity, None]]:
    """Set quotas, and remove those whose value is None.

    With `validate_only` the changes are checked and nothing changes. Repeated after a lost
    connection: a second request sets the same again.

    Raises:
        TypeError: `changes` is no mapping of `QuotaEntity` to values by name.
    """
    all_of(QuotaEntity, values_in(changes, what="changes"), what="changes")
    check_kinds(changes, (Mapping,), what="changes")
    request: ItemRequest[QuotaEntity, None, AlterClientQuotasResponse] = ItemRequest(
        what="the quotas of",
        target=ANY,
        request=lambda batch: AlterClientQuotasRequest(
            entries=tuple(
                EntryData(
                    entity=tuple(
                        EntityData(entity_type=kind, entity_name=name)
                        for kind, name in entity.parts
                    ),
                    ops=tuple(
                        # The value of a removal does not count, and the field cannot be null.
                        OpData(key=key, value=0.0 if value is None else value, remove=value is None)
                        for key, value in changes[entity].items()
                    ),
                )
                for entity in batch
            ),
            validate_only=validate_only,
        ),
        response=AlterClientQuotasResponse,
        entries=lambda answer, _: (
            (_entity((part.entity_type, part.entity_name) for part in each.entity), each)
            for each in answer.entries
        ),
    )
    return (yield from for_each(call, changes, request))


def _entity(parts: Iterable[tuple[str, str | None]]) -> QuotaEntity:
    # A broker may list the parts in another order than the call.
    return QuotaEntity(tuple(sorted(parts, key=lambda part: part[0])))


def _component(kind: str, name: str | AnyName | None) -> ComponentData:
    kind = kind.replace("_", "-")
    if isinstance(name, AnyName):
        # Match types of KIP-546: 0 an exact name, 1 the default, 2 any name.
        return ComponentData(entity_type=kind, match_type=2, match=None)
    return ComponentData(entity_type=kind, match_type=1 if name is None else 0, match=name)
