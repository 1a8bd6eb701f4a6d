"""AlterClientQuotas: the quotas of users, client ids and addresses, as records (KIP-546).

Each entity is changed or refused by itself, by the rules of Kafka's `ClientQuotaControlManager`.
Stricter than those: an entity that the request names twice is not changed at all, an address is no
host name, a value is a number, and there are at most `ENTITIES_MAX` entities.

Not here: how clients are kept to them (`tailrace.security.quotas`, `tailrace.server`).
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from ipaddress import ip_address
from math import fmod
from typing import Final

from tailrace.cluster.control.state import Decision, RefusedError
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import MetadataImage, quota_entity
from tailrace.config.settings import INT32_MAX, INT64_MAX
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntityData,
    OpData,
)

ENTITIES_MAX: Final = 10_000
"""Most entities of a cluster, since every node keeps all of them in memory."""
ENTITY_TYPES: Final = ("client-id", "user", "ip")
"""Types of the parts of an entity, in the order in which records of Kafka have them."""
_OF_CLIENTS: Final[Mapping[str, int | None]] = {
    "producer_byte_rate": INT64_MAX,
    "consumer_byte_rate": INT64_MAX,
    "request_percentage": None,
    "controller_mutation_rate": None,
}
"""The quotas of users and client ids: the largest whole number; None: any number above 0."""
_OF_ADDRESSES: Final[Mapping[str, int | None]] = {"connection_creation_rate": INT32_MAX}
_FRACTION_MAX: Final = 1e-6
"""A whole number may be off by as much, since it comes as a float."""

_Names = Mapping[str, str | None]
"""The parts of an entity: its name by type; None is the default of all that have no own one."""


def alter_client_quotas(image: MetadataImage, request: AlterClientQuotasRequest) -> Decision:
    """Set and remove quotas.

    An entity is INVALID_REQUEST if it has no parts, an unknown type, an empty name, or an address
    beside other parts; if it is named twice or one of its quotas is; or for a value or a quota that
    it cannot have. One too many is a POLICY_VIOLATION. To remove what is not there is no error.
    """
    asked: dict[frozenset[tuple[str, str | None]], list[tuple[_Names, tuple[OpData, ...]]]] = {}
    for entry in request.entries:
        # The last name of a type counts, as in Kafka; and the parts have no order.
        names: _Names = {each.entity_type: each.entity_name for each in entry.entity}
        asked.setdefault(frozenset(names.items()), []).append((names, entry.ops))
    records: list[RecordToWrite] = []
    results = []
    count = len(image.quotas)
    for (names, ops), *others in asked.values():
        code, message = ErrorCode.NONE, None
        try:
            if others:
                raise _invalid("The request names the entity twice.")
            made = [*_changes(image, names, ops)]
            is_new = quota_entity(image.quotas, tuple(names.items())) not in image.quotas
            if made and is_new:
                count += 1
                if count > ENTITIES_MAX:
                    raise RefusedError(
                        ErrorCode.POLICY_VIOLATION,
                        f"The cluster has quotas of {ENTITIES_MAX} entities, which is the limit.",
                    )
            records += made
        except RefusedError as error:
            code, message = error.code, error.message
        results.append(
            AlterClientQuotasResponseEntryData(
                error_code=code,
                error_message=message,
                entity=tuple(
                    EntityData(entity_type=kind, entity_name=name) for kind, name in names.items()
                ),
            )
        )
    answer = AlterClientQuotasResponse(entries=tuple(results))
    return Decision([] if request.validate_only else records, answer)


def _changes(image: MetadataImage, names: _Names, ops: Sequence[OpData]) -> Iterator[RecordToWrite]:
    from tailrace.protocol.metadata_records import ClientQuotaRecord
    from tailrace.protocol.metadata_records import EntityData as RecordEntity

    _check_entity(names)
    for key, times in Counter(each.key for each in ops).items():
        if times > 1:
            raise _invalid(f"Duplicate quota key {key}")
    allowed = _OF_ADDRESSES if "ip" in names else _OF_CLIENTS
    parts = tuple((each, names[each]) for each in ENTITY_TYPES if each in names)
    current = image.quotas.get(quota_entity(image.quotas, parts), {})
    entity = tuple(RecordEntity(entity_type=kind, entity_name=name) for kind, name in parts)
    for op in ops:
        if op.remove:
            # Also one that cannot be set: a log may have it from a Kafka that could.
            if op.key in current:
                yield RecordToWrite(ClientQuotaRecord(entity=entity, key=op.key, remove=True), 0)
            continue
        _check_value(allowed, op.key, op.value)
        if current.get(op.key) != op.value:
            yield RecordToWrite(ClientQuotaRecord(entity=entity, key=op.key, value=op.value), 0)


def _check_entity(names: _Names) -> None:
    if not names:
        raise _invalid("Invalid empty client quota entity")
    for kind, name in names.items():
        if kind not in ENTITY_TYPES:
            raise _invalid(f"Unhandled client quota entity type: {kind}")
        if name == "":
            raise _invalid(f"Empty {kind} not supported")
    if "ip" not in names:
        return
    if len(names) > 1:
        raise _invalid(
            "Invalid quota entity combination, IP entity should not be combined with User or "
            "ClientId"
        )
    name = names["ip"]
    try:
        if name is not None:
            ip_address(name)
    except ValueError:
        # Kafka resolves a host name here, and each broker again, maybe to another address.
        raise _invalid(f"{name} is not a valid IP; host names are not resolved") from None


def _check_value(allowed: Mapping[str, int | None], key: str, value: float) -> None:
    if key not in allowed:
        raise _invalid(f"Invalid configuration key {key}")
    # Not a number is not above 0 either, where Kafka takes it.
    if not value > 0:
        raise _invalid(f"Quota {key} must be greater than 0")
    largest = allowed[key]
    if largest is None:
        return
    if value > float(largest):
        raise _invalid(f"Proposed value for {key} is larger than {largest}")
    if fmod(value, 1.0) > _FRACTION_MAX:
        raise _invalid(f"{key} cannot be a fractional value.")


def _invalid(message: str) -> RefusedError:
    return RefusedError(ErrorCode.INVALID_REQUEST, message)
