"""Random ids, by the one source of chance that a test can seed."""

import random
from typing import Final
from uuid import UUID

_DASH: Final = 62
"""The number of `-` in URL-safe base64, in which Kafka writes ids."""


def random_uuid(chance: random.Random) -> UUID:
    """An id of version 4, as Kafka's `Uuid.randomUuid` makes them.

    Never zero, and as text it never begins with `-`: commands would take it for an option.
    """
    while True:
        made = UUID(int=chance.getrandbits(128), version=4)
        if made.bytes[0] >> 2 != _DASH:
            return made
