"""AlterClientQuotas (49): change the quotas of users, client ids and addresses (KIP-546).

Versions: 0 to 1.
Behaviour: a quota that the metadata log has, which Kafka may have written, is removed; to remove
    one that is not there is no error. A new quota is a POLICY_VIOLATION, because nothing here would
    keep to it. Each entity is changed or refused by itself. Refused with Kafka's messages: an
    entity without parts or with an address beside others, a quota twice, an entity twice
    (INVALID_REQUEST), a type that Kafka has not (UNSUPPORTED_VERSION).
After a crash: all of the quotas are gone if the request was answered; else all or none.
Not done: quotas; this broker throttles no client.
"""

from collections import Counter
from collections.abc import Iterator, Sequence
from functools import partial

from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage, QuotaEntity
from tailrace.errors import TailraceError
from tailrace.handlers.describe_client_quotas import ENTITY_TYPES
from tailrace.handlers.services import Services, error_code, error_message
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
    AlterClientQuotasResponseEntryData,
    EntryData,
)
from tailrace.protocol.messages.alter_client_quotas import EntityData as AnsweredEntity
from tailrace.protocol.metadata_records import ClientQuotaRecord, EntityData

_Refusal = tuple[ErrorCode, str]


async def handle_alter_client_quotas(
    services: Services, _: RequestHeader, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """Remove the quotas that are there."""
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
                    partial(services.controller.write, partial(_records, allowed))
                ),
            )
        except TailraceError as error:
            refusal = error_code(error), error_message(error)
            refusals = [each or refusal for each in refusals]
    return AlterClientQuotasResponse(
        entries=tuple(map(_answer, request.entries, refusals)),
    )


def _names(entry: EntryData) -> frozenset[tuple[str, str | None]]:
    return frozenset((each.entity_type, each.entity_name) for each in entry.entity)


def _refusal(entry: EntryData, count: int) -> _Refusal | None:
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
        message = f"this broker throttles no client, so {new[0]} cannot be set"
        return ErrorCode.POLICY_VIOLATION, message
    return None


def _records(entries: Sequence[EntryData], image: MetadataImage) -> Iterator[RecordToWrite]:
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
                    EntityData(entity_type=kind, entity_name=name) for kind, name in entity.parts
                )
                gone = ClientQuotaRecord(entity=parts, key=op.key, remove=True)
                yield RecordToWrite(gone, 0)


def _answer(entry: EntryData, refusal: _Refusal | None) -> AlterClientQuotasResponseEntryData:
    code, message = refusal or (ErrorCode.NONE, None)
    return AlterClientQuotasResponseEntryData(
        error_code=code,
        error_message=message,
        entity=tuple(
            AnsweredEntity(entity_type=each.entity_type, entity_name=each.entity_name)
            for each in entry.entity
        ),
    )
