"""Quotas of users, client ids and addresses, which are records of the metadata log."""

from collections.abc import Callable, Mapping, Sequence
from enum import IntEnum

from tailrace.cluster.control.quotas import ENTITY_TYPES, alter_client_quotas
from tailrace.handlers.decided import decide_here
from tailrace.handlers.services import InvalidRequestError, Services, error_code
from tailrace.protocol.errors import ErrorCode
from tailrace.protocol.frames import RequestHeader
from tailrace.protocol.messages.alter_client_quotas import (
    AlterClientQuotasRequest,
    AlterClientQuotasResponse,
)
from tailrace.protocol.messages.describe_client_quotas import (
    ComponentData,
    DescribeClientQuotasRequest,
    DescribeClientQuotasResponse,
    EntityData,
    EntryData,
    ValueData,
)

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
    Behaviour: the quotas that the metadata log has, for the entities that match all parts of the
        filter, and with `strict` have no other parts. Refused with
        Kafka's messages: a part without a type, a type twice, a match that its kind does not allow,
        an address beside other parts (INVALID_REQUEST), and a type that Kafka has not
        (UNSUPPORTED_VERSION).
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


async def handle_alter_client_quotas(
    services: Services, header: RequestHeader, request: AlterClientQuotasRequest
) -> AlterClientQuotasResponse:
    """AlterClientQuotas (49): change the quotas of users, client ids and addresses (KIP-546).

    Versions: 0 to 1.
    Behaviour: quotas are records of the metadata log, as Kafka writes them. Each entity is changed
        or refused by itself, and all changes are one batch. The rules are those of the controller
        (`cluster.control.quotas`), with Kafka's codes. A dry run checks and changes nothing.
    After a crash: all of the changes are there if the request was answered; else all or none.
    """
    answer: AlterClientQuotasResponse = await decide_here(
        services, header, request, rule=alter_client_quotas
    )
    return answer
