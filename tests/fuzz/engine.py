"""Mutation fuzzing of decoders: seeded, bounded, and with one property.

The property is h11's: any bytes at all are either accepted or refused with an error that the
target names. Anything else that comes out (an IndexError, a hang, a crash) is a bug of ours, and so
is an input that takes more than its share of time or memory.
"""

import random
import resource
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass

INTERESTING = (0x00, 0x01, 0x7F, 0x80, 0xFE, 0xFF)
"""Bytes at the edges of varints and of signed integers."""

SECONDS_MAX = 5.0
"""Processor time for one input: a hundred times what the slowest takes."""

GROWTH_BYTES_MAX = 320 * 1024 * 1024
"""Memory of the process over all inputs of one target: two batches of the largest size that a batch
may decompress to (`codecs.OUTPUT_SIZE_MAX`), and some room."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FuzzTarget:
    """A decoder, valid inputs to start from, and the errors it may raise."""

    name: str
    seeds: tuple[bytes, ...]
    run: Callable[[bytes], object]
    refusals: tuple[type[Exception], ...]
    share: float = 1.0
    """Share of the inputs that are asked for; less than 1 where an input takes long."""


@dataclass(frozen=True, slots=True, kw_only=True)
class DamageTarget:
    """Something that damages a directory by chance and holds what comes of it."""

    name: str
    run: Callable[[random.Random], object]
    share: float


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
        AssertionError: the target let another error out, or took too long or too much; the message
            has the input in hex.
    """
    chance = random.Random(seed)
    accepted = 0
    before = resident_bytes_max()
    for number in range(round(inputs * target.share)):
        data = mutate(chance, chance.choice(target.seeds))
        start = time.process_time()
        try:
            target.run(data)
        except target.refusals:
            continue
        except Exception as error:
            raise AssertionError(
                f"{target.name}: input {number} of seed {seed} let {error!r} out: {data.hex()}"
            ) from error
        finally:
            spent = time.process_time() - start
            assert spent < SECONDS_MAX, f"{target.name}: {spent:.1f} s for {data.hex()}"
        accepted += 1
    _check_growth(target.name, before)
    return accepted


def strike(target: DamageTarget, *, inputs: int, seed: int) -> None:
    """Run a target so many times, each with its own chance.

    Raises:
        AssertionError: something came out that the target does not name, or a claim of it does not
            hold, or it took too long or too much; the message has the number to repeat it with.
    """
    before = resident_bytes_max()
    for number in range(max(1, round(inputs * target.share))):
        start = time.process_time()
        try:
            target.run(random.Random(f"{seed}/{number}"))
        except Exception as error:
            raise AssertionError(
                f"{target.name}: Random('{seed}/{number}') let {error!r} out"
            ) from error
        spent = time.process_time() - start
        assert spent < SECONDS_MAX, f"{target.name}: {spent:.1f} s for Random('{seed}/{number}')"
    _check_growth(target.name, before)


def resident_bytes_max() -> int:
    """The most memory that this process has had at any time."""
    unit = 1 if sys.platform == "darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * unit


def _check_growth(name: str, before: int) -> None:
    growth = resident_bytes_max() - before
    assert growth < GROWTH_BYTES_MAX, f"{name}: the process grew by {growth} bytes"
