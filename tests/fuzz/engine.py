"""Mutation fuzzing of decoders: seeded, bounded, and with one property.

The property is h11's: any bytes at all are either accepted or refused with an error that the
target names. Anything else that comes out (an IndexError, a hang, a crash) is a bug of ours.
"""

import random
from collections.abc import Callable
from dataclasses import dataclass

INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
"""Bytes at the edges of varints and of signed integers."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    """A decoder, valid inputs to start from, and the errors it may raise."""

    name: str
    seeds: tuple[bytes, ...]
    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]


def mutate(chance: random.Random, data: bytes) -> bytes:
    """One to four random edits of `data`: flip, set, cut, repeat, insert or splice."""
    changed = bytearray(data)
    for _ in range(chance.randint(1, 4)):
        position = chance.randrange(len(changed)) if changed else 0
        match chance.randrange(6):
            case 0 if changed:
                changed[position] ^= 1 << chance.randrange(8)
            case 1 if changed:
                changed[position] = chance.choice(INTERESTING)
            case 2:
                del changed[position : position + chance.randint(1, 16)]
            case 3:
                changed[position:position] = changed[position : position + chance.randint(1, 16)]
            case 4:
                changed[position:position] = chance.randbytes(chance.randint(1, 8))
            case _:
                size = chance.randint(1, 8)
                changed[position : position + size] = chance.randbytes(size)
    return bytes(changed)


def fuzz(target: FuzzTarget, *, inputs: int, seed: int) -> int:
    """Feed `inputs` mutated seeds to the target; returns how many it accepted.

    Raises:
        AssertionError: the target let another error out; the message has the input in hex.
    """
    chance = random.Random(seed)
    accepted = 0
    for number in range(inputs):
        data = mutate(chance, chance.choice(target.seeds))
        try:
            target.run(data)
        except target.refusals:
            continue
        except Exception as error:
            raise AssertionError(
                f"{target.name}: input {number} of seed {seed} let {error!r} out: {data.hex()}"
            ) from error
        accepted += 1
    return accepted
