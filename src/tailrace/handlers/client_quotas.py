"""Quotas of users, client ids and addresses: this broker keeps none, and removes those of Kafka."""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from enum import IntEnum
from functools import partial
from typing import Final

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage, QuotaEntity
from tailrace.errors import TailraceError
from tailrace.handlers.services import InvalidRequestError, Services, error_code, error_message
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
)
from tailrace.protocol.messages.alter_client_quotas import EntityData as AnsweredEntity
from tailrace.protocol.messages.alter_client_quotas import (
    EntryData as AlteredEntry,
)
from tailrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)
from tailrace.protocol.metadata_records import ClientQuotaRecord
from tailrace.protocol.metadata_records import EntityData as RecordEntity

ENTITY_TYPES: Final = frozenset({"user", "client-id", "ip"})

_Part = Callable[[str | None], bool]
"""Whether a part of the filter matches the name of an entity."""


class _UnknownTypeError(ValueError):
    """A kind of entities that Kafka does not have."""


class _MatchType(IntEnum):
    """The names that a part of the filter matches, by Kafka's number."""

    EXACT = 0
    DEFAULT = 1
    ANY = 2


def handle_describe_client_quotas(
    services: Services, _: RequestHeader, request: DescribeClientQuotasRequest
) -> DescribeClientQuotasResponse:
    """DescribeClientQuotas (48): the quotas of users, client ids and addresses (KIP-546).

    Versions: 0 to 1.
    Behaviour: the quotas that the metadata log has, which Kafka may have written, for the entities
        that match all parts of the filter, and with `strict` have no other parts. Refused with
        Kafka's messages: a part without a type, a type twice, a match that its kind does not allow,
        an address beside other parts (INVALID_REQUEST), and a type that Kafka has not
        (UNSUPPORTED_VERSION).
    Not done: quotas; this broker throttles no client.
    """
    try:
        parts = _parts(request.components)
    except InvalidRequestError as error:
        return DescribeClientQuotasResponse(
            error_code=error_code(error), error_message=str(error), entries=None
        )
    except _UnknownTypeError as error:
        return DescribeClientQuotasResponse(
            error_code=ErrorCode.UNSUPPORTED_VERSION, error_message=str(error), entries=None
        )
    entries = []
    for entity, quotas in services.cluster.metadata.quotas.items():
        names = dict(entity.parts)
        if _matches(parts, names, is_strict=request.strict):
            entries.append(
                EntryData(
                    entity=tuple(
                        EntityData(entity_type=kind, entity_name=name)
                        for kind, name in names.items()
                    ),
                    values=tuple(ValueData(key=key, value=value) for key, value in quotas.items()),
                )
            )
    return DescribeClientQuotasResponse(error_code=ErrorCode.NONE, entries=tuple(entries))


def _matches(
    parts: Mapping[str, _Part], names: Mapping[str, str | None], *, is_strict: bool
) -> bool:
    # Strict means no other parts; without it (user=a) matches (user=a, client-id=b) too.
    if is_strict and len(names) != len(parts):
        return False
    return all(kind in names and part(names[kind]) for kind, part in parts.items())


def _parts(components: Sequence[ComponentData]) -> dict[str, _Part]:
    parts: dict[str, _Part] = {}
    for each in components:
        if not each.entity_type:
            raise InvalidRequestError("Invalid empty entity type.")
        if each.entity_type in parts:
            raise InvalidRequestError(
                f"Entity type {each.entity_type} cannot appear more than once in the filter."
            )
        if each.entity_type not in ENTITY_TYPES:
            raise _UnknownTypeError(f"Unsupported entity type {each.entity_type}")
        parts[each.entity_type] = _part(each)
    if "ip" in parts and len(parts) > 1:
        raise InvalidRequestError(
            "Invalid entity filter component combination. IP filter component should not be used "
            "with user or clientId filter component."
        )
    return parts


def _part(component: ComponentData) -> _Part:
    wanted = component.match
    if component.match_type not in set(_MatchType):
        raise InvalidRequestError(f"Unknown match type {component.match_type}")
    kind = _MatchType(component.match_type)
    if kind is _MatchType.EXACT:
        if wanted is None:
            raise InvalidRequestError(
                "Request specified MATCH_TYPE_EXACT, but set match string to null."
            )
        return lambda name: name == wanted
    word = "DEFAULT" if kind is _MatchType.DEFAULT else "SPECIFIED"
    if wanted is not None:
        raise InvalidRequestError(
            f"Request specified MATCH_TYPE_{word}, but also specified a match string."
        )
    # The default entity of a type has no name (KIP-546).
    return (lambda name: name is None) if kind is _MatchType.DEFAULT else (lambda _: True)


_Refusal = tuple[ErrorCode, str]


async def handle_alter_client_quotas(
    services: Services, _: RequestHeader, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """AlterClientQuotas (49): change the quotas of users, client ids and addresses (KIP-546).

    Versions: 0 to 1.
    Behaviour: a quota that the metadata log has, which Kafka may have written, is removed; to
        remove one that is not there is no error. A new quota is a POLICY_VIOLATION, because nothing
        here would keep to it. Each entity is changed or refused by itself. Refused with Kafka's
        messages: an entity without parts or with an address beside others, a quota twice, an entity
        twice (INVALID_REQUEST), a type that Kafka has not (UNSUPPORTED_VERSION).
    After a crash: all of the quotas are gone if the request was answered; else all or none.
    Not done: quotas; this broker throttles no client.
    """
    counts = Counter(_names(each) for each in request.entries)
    refusals = [_refusal(each, counts[_names(each)]) for each in request.entries]
    allowed = [
        each for each, refusal in zip(request.entries, refusals, strict=True) if refusal is None
    ]
    if allowed and not request.validate_only:
        try:
            await services.changes.make(
                METADATA_VERSION,
                lambda: services.changes.on_device(
                    partial(services.own_controller.write, partial(_records, allowed))
                ),
            )
        except TailraceError as error:
            refusal = error_code(error), error_message(error)
            refusals = [each or refusal for each in refusals]
    return AlterClientQuotasResponse(
        entries=tuple(map(_answer, request.entries, refusals)),
    )


def _names(entry: AlteredEntry) -> frozenset[tuple[str, str | None]]:
    # Without an order: (user, client-id) and (client-id, user) are one entity.
    return frozenset((each.entity_type, each.entity_name) for each in entry.entity)


def _refusal(entry: AlteredEntry, count: int) -> _Refusal | None:
    kinds = {each.entity_type for each in entry.entity}
    keys = Counter(each.key for each in entry.ops)
    if not kinds:
        return ErrorCode.INVALID_REQUEST, "Invalid empty client quota entity"
    if unknown := kinds - ENTITY_TYPES:
        return ErrorCode.UNSUPPORTED_VERSION, f"Unhandled client quota entity type: {min(unknown)}"
    if "ip" in kinds and len(kinds) > 1:
        message = "Invalid quota entity combination, IP entity should not be combined with others"
        return ErrorCode.INVALID_REQUEST, message
    if count > 1:
        return ErrorCode.INVALID_REQUEST, "the request names the entity twice"
    if twice := [key for key, number in keys.items() if number > 1]:
        return ErrorCode.INVALID_REQUEST, f"Duplicate quota key {twice[0]}"
    if new := [each.key for each in entry.ops if not each.remove]:
        # A quota that is accepted and not kept would be found out under load.
        message = f"this broker throttles no client, so {new[0]} cannot be set"
        return ErrorCode.POLICY_VIOLATION, message
    return None


def _records(entries: Sequence[AlteredEntry], image: MetadataImage) -> Iterator[RecordToWrite]:
    """The records that remove the quotas that there are."""
    known: dict[frozenset[tuple[str, str | None]], QuotaEntity] = {
        frozenset(entity.parts): entity for entity in image.quotas
    }
    for entry in entries:
        entity = known.get(_names(entry))
        for op in entry.ops if entity is not None else ():
            assert entity is not None, "there are no operations otherwise"
            if op.key in image.quotas[entity]:
                parts = tuple(
                    RecordEntity(entity_type=kind, entity_name=name) for kind, name in entity.parts
                )
                gone = ClientQuotaRecord(entity=parts, key=op.key, remove=True)
                yield RecordToWrite(gone, 0)


def _answer(entry: AlteredEntry, refusal: _Refusal | None) -> AlterClientQuotasResponseEntryData:
    code, message = refusal or (ErrorCode.NONE, None)
    return AlterClientQuotasResponseEntryData(
        error_code=code,
        error_message=message,
        entity=tuple(
            AnsweredEntity(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in entry.entity
        ),
    )
