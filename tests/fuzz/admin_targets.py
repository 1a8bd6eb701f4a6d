"""Fuzz targets: answers to each operation of an admin client that lie.

The answers have the right names and numbers, and are then mutated: items that nobody asked about,
items that are missing or there twice, other counts, nulls. Each ends in one outcome for each item
of the call, or in one error, within the time of the call.
"""

import random
import zlib
from functools import partial
from typing import Any

from tailrace.client.admin import Outcomes
from tailrace.client.calls import Ask
from tailrace.errors import TailraceError
from tailrace.protocol import codec
from tailrace.protocol.apis import Api, api_of
from tailrace.protocol.errors import MalformedMessageError
from tailrace.protocol.fields import Message
from tests.fuzz.engine import FuzzTarget
from tests.unit.client.admin.answers import plausible
from tests.unit.client.admin.calls import ARGUMENTS, ROUTING, items_of, outcome_of

_SEEDS_PER_VERSION = 3
_SECONDS_MAX = 15.0
"""The calls have ten, and one more answer."""


def _answer(api: Api, chance: random.Random) -> Message:
    told: Any = ROUTING.get(api.key) or plausible(api.response, api.last_version, chance)
    answer: Message = told
    return answer


def _asked(name: str) -> tuple[Api, ...]:
    """The APIs that an operation asks, as far as plausible answers lead it."""
    chance = random.Random(name)
    found: dict[Api, None] = {}

    def answer(ask: Ask) -> Message:
        api = api_of(type(ask.body))
        found[api] = None
        return _answer(api, chance)

    for _ in range(40):
        outcome_of(name, answer)
    return tuple(found)


def _seeds(apis: tuple[Api, ...]) -> tuple[bytes, ...]:
    chance = random.Random(7)
    seeds = []
    for number, api in enumerate(apis):
        for version in {api.first_version, api.last_version}:
            for _ in range(_SEEDS_PER_VERSION):
                out = bytearray((number, version))
                told = plausible(api.response, version, chance)
                codec.encode(told, version, out)
                seeds.append(bytes(out))
    return tuple(seeds)


def _run(data: bytes, *, name: str, apis: tuple[Api, ...]) -> object:
    """Have one API answer with `data`, and the others as they should."""
    if len(data) < 2 or data[0] >= len(apis) or data[1] not in apis[data[0]].versions:
        raise MalformedMessageError("no such API or version", position=0)
    lying = apis[data[0]]
    told, _ = codec.decode(lying.response, data[1], memoryview(data), position=2)
    chance = random.Random(zlib.crc32(data))

    def answer(ask: Ask) -> Message:
        api = api_of(type(ask.body))
        return told if api == lying else _answer(api, chance)

    found, seconds = outcome_of(name, answer)
    assert seconds < _SECONDS_MAX
    if isinstance(found, Outcomes):
        assert items_of(name) in (None, set(found))
        str(list(found.errors.values()))
    elif isinstance(found, TailraceError):
        assert str(found)
    return found


def _target(name: str) -> FuzzTarget:
    apis = _asked(name)
    return FuzzTarget(
        name=f"answers to {name}",
        seeds=_seeds(apis),
        run=partial(_run, name=name, apis=apis),
        refusals=(MalformedMessageError,),
        share=0.1,
    )


TARGETS = tuple(map(_target, ARGUMENTS))
