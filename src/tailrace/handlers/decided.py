"""`decide_here`: a change by the rules of a controller, where this node is its own.

    image ─► rule of `cluster.control` ─► records, on the device ─► answer

A node whose controller is elsewhere forwards such requests, and `tailrace.broker.controller` has
the same rules, so the answers are the same.
"""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeVar

from tailrace.cluster.control.state import Decision, RefusedError, check_count
from tailrace.cluster.metadata.batches import RecordToWrite
from tailrace.cluster.metadata.image import METADATA_VERSION, MetadataImage
from tailrace.errors import TailraceError
from tailrace.handlers.refusals import refusal
from tailrace.handlers.services import Services, error_code, error_message
from tailrace.protocol.apis import APIS
from tailrace.protocol.fields import Message
from tailrace.protocol.frames import RequestHeader

M = TypeVar("M", bound=Message)


async def decide_here(
    services: Services,
    header: RequestHeader,
    request: M,
    *,
    rule: Callable[[MetadataImage, M], Decision],
) -> Any:  # noqa: ANN401 - that of the API
    """The answer of the rule, when its records are on the device; or an error for all of it."""
    answers: list[Message] = []

    def records(image: MetadataImage) -> Sequence[RecordToWrite]:
        decision = check_count(rule(image, request))
        answers.append(decision.answer)
        return decision.records

    api = APIS[header.api_key]
    try:
        await services.changes.make(
            # After changes of `metadata.version`, which decides which records there are.
            METADATA_VERSION,
            lambda: services.changes.on_device(partial(services.own_controller.write, records)),
        )
    except RefusedError as error:
        return refusal(api, request, error.code, message=error.message)
    except TailraceError as error:
        return refusal(api, request, error_code(error), message=error_message(error))
    [answer] = answers
    return answer
