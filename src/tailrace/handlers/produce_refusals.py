"""Why a batch of a Produce request is refused, as far as its header shows it."""

from typing import TYPE_CHECKING

from tailrace.errors import RecordError
from tailrace.protocol.errors import ErrorCode
from tailrace.records.layout import ATTRIBUTES_POSITION, HEADER_SIZE, TRANSACTIONAL_FLAG
from tailrace.runtime.files import Buffer
from tailrace.values import dataclass

if TYPE_CHECKING:
    from tailrace.protocol.messages.produce import ProduceRequest


@dataclass(frozen=True, slots=True)
class Refusal:
    """The error of a batch, or of a whole request."""

    code: ErrorCode
    message: str | None = None
    record_errors: tuple[RecordError, ...] = ()


def is_transactional(records: Buffer) -> bool:
    """Whether these bytes begin with the header of a transactional batch."""
    if len(records) < HEADER_SIZE:
        return False
    # Not a decoded batch: this is asked for each batch of each request. The attributes are a
    # big-endian int16, with all flags in the second byte.
    return bool(records[ATTRIBUTES_POSITION + 1] & TRANSACTIONAL_FLAG)


def has_transactional(request: "ProduceRequest") -> bool:
    """Whether a batch of a request is transactional."""
    for topic in request.topic_data:
        for data in topic.partition_data:
            if is_transactional(data.records or b""):
                return True
    return False
