"""A checkpoint that is put back to an earlier state while its query is down: `put_back`."""

import shutil
from collections import Counter
from contextlib import closing
from pathlib import Path
from random import Random

from tests.kills.copying import CHANGES, RECORDS, Copy
from tests.kills.drivers import LOCAL, Drivers


def put_back(drivers: Drivers, bootstrap: str, *, seed: int, folder: Path) -> None:
    """Kill a copy twice, and start it with the checkpoint that the first kill has left.

    It is refused if a batch was noted between the kills, and then has no record twice; and it goes
    on when the user says so. Else it comes to its end, and has each record once.
    """
    chance = Random(f"backup {seed}")
    copy = Copy(bootstrap, folder)
    checkpoint, kept = folder / "checkpoint", folder / "kept"
    _kill_at(copy, drivers, chance.randint(1, CHANGES // 2))
    shutil.copytree(checkpoint, kept)
    _kill_at(copy, drivers, chance.randint(1, CHANGES // 2))
    has_noted = _notes(checkpoint) != _notes(kept)
    shutil.rmtree(checkpoint)
    shutil.copytree(kept, checkpoint)
    named = copy.run(drivers.running(LOCAL))
    print(f"{folder}: noted {has_noted}, refused {named}")
    if named is None:
        copy.check()
        return
    assert has_noted, "a healthy checkpoint was refused"
    assert max(Counter(copy.seen()).values(), default=1) == 1
    assert copy.run(drivers.running(LOCAL), accepted=named) is None
    assert set(copy.seen()) == set(range(RECORDS))


def _kill_at(copy: Copy, drivers: Drivers, moment: int) -> None:
    driver = drivers.running(LOCAL)
    with closing(copy.begin(driver)) as changes:
        # Without its id a checkpoint is that of a new query, which copies all again.
        while driver.wait(changes) and (changes.count < moment or not copy.has_id):
            pass
        driver.kill()


def _notes(checkpoint: Path) -> dict[str, bytes]:
    found = (checkpoint / "tailrace-commits").glob("*.json")
    return {each.name: each.read_bytes() for each in found}
