"""`tailrace features` against a broker of ours."""

from collections.abc import Iterator

import pytest

from tailrace.testing import TestBroker
from tests.unit.cli.running import lines, objects, run, said


@pytest.fixture(scope="module")
def at() -> Iterator[tuple[str, str]]:
    """The flag for a broker that these tests share."""
    with TestBroker() as broker:
        yield "--bootstrap", broker.bootstrap_servers


def level(at: tuple[str, str], name: str) -> int:
    """The level of a feature."""
    (found,) = (each for each in objects("features", "describe", *at) if each["feature"] == name)
    assert isinstance(found["level"], int)
    return found["level"]


def test_features_are_described(at: tuple[str, str]) -> None:
    """A table, and objects; the release is that of `metadata.version`."""
    table = [line.split() for line in lines("features", "describe", *at)]
    assert table[0][:3] == ["feature", "level", "release"]
    assert ["metadata.version", "30", "4.3-IV0", "7", "to", "30"] in table
    found = {each["feature"]: each for each in objects("features", "describe", *at)}
    assert found["transaction.version"] == {
        "format": "tailrace.features/1", "type": "feature", "feature": "transaction.version",
        "level": 2, "release": None, "min_level": 0, "max_level": 2,
    }  # fmt: skip


def test_levels_go_down_and_up(at: tuple[str, str]) -> None:
    """A dry run tells what a change would, and changes nothing."""
    down = ("features", "downgrade", "--feature", "group.version=0", *at)
    assert lines(*down, "--dry-run") == ["group.version can be set to level 0"]
    assert level(at, "group.version") == 1
    assert lines(*down) == ["group.version has level 0"]
    assert level(at, "group.version") == 0
    (changed,) = objects("features", "upgrade", *at, "--feature", "group.version=1")
    assert (changed["level"], changed["dry_run"]) == (1, False)
    assert level(at, "group.version") == 1


def test_a_release_names_the_levels_that_differ(at: tuple[str, str]) -> None:
    """An upgrade raises what is lower, and says so where nothing is."""
    lines("features", "downgrade", "--feature", "transaction.version=0", *at)
    raised = lines("features", "upgrade", "--release-version", "4.3", *at)
    assert raised == ["transaction.version has level 2"]
    assert lines("features", "upgrade", "--release-version", "4.3", *at) == [
        "nothing to change: the features have these levels already"
    ]


def test_a_refusal_is_told_once(at: tuple[str, str]) -> None:
    """For two features the sentence of the broker comes once, without a second in other words."""
    told = said(
        "features", "downgrade", *at,
        "--feature", "group.version=0", "--feature", "metadata.version=29",
    )  # fmt: skip
    assert told.endswith(
        f"{at[1]}: metadata.version cannot get level 29: the log may have records that are new in "
        "level 30; no feature was changed (INVALID_UPDATE_VERSION)"
    )
    assert level(at, "group.version") == 1
    told = said("features", "downgrade", "--release-version", "4.1", "--unsafe", *at)
    assert "new in level 30" in told


@pytest.mark.parametrize(
    ("given", "told"),
    [
        ((), "--feature NAME=LEVEL or --release-version"),
        (("--feature", "x"), "'x' is not NAME=LEVEL"),
        (("--feature", "x=-1"), "is not NAME=LEVEL"),
        (("--feature", "x=1", "--feature", "x=2"), "x is given twice"),
        (("--release-version", "3.2"), "there are 3.3-IV3 to 4.3-IV0"),
        (("--release-version", "4.2-IV9"), "is no release that is known here"),
    ],
)
def test_a_command_that_is_typed_wrongly(given: tuple[str, ...], told: str) -> None:
    """It ends with exit code 2 before anything is asked."""
    result = run("features", "upgrade", *given, "--bootstrap", "127.0.0.1:1")
    assert result.exit_code == 2
    assert told in " ".join(result.stderr.replace("│", " ").split())
