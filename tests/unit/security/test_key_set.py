"""The keys of a token issuer: when they are read, and what happens when they cannot be."""

import logging
from collections.abc import Callable
from pathlib import Path

import pytest

from tailrace.security.key_set import (
    BYTES_MAX,
    KEY_ID_CHARACTERS_MAX,
    KEYS_MAX,
    UNKNOWN_ID_PAUSE_S,
    KeySet,
    KeySetError,
    KeySetSource,
    key_set_fault,
    read_keys,
)


class Clock:
    """A clock that is moved on by the test."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


def written(path: Path, *names: str) -> None:
    """Write a key set with keys of these ids."""
    members = ",".join(f'{{"kty":"RSA","kid":"{name}"}}' for name in names)
    path.write_text(f'{{"keys":[{members}]}}')


def found(keys: KeySet, key_id: str | None) -> list[object]:
    """The ids of the keys that fit."""
    return [each["kid"] for each in keys.find(key_id, "RSA", "")]


def test_keys_are_read_when_they_are_needed(tmp_path: Path) -> None:
    """The set is read with the first login, and again after its time, for which nobody waits."""
    path, clock = tmp_path / "keys", Clock()
    reads: list[Callable[[], None]] = []
    keys = KeySet(
        KeySetSource(url=path.as_uri(), refresh_s=3600), clock=clock, run_beside=reads.append
    )
    written(path, "a", "b")
    assert found(keys, "a") == ["a"]
    assert found(keys, None) == ["a", "b"]
    written(path, "a", "c")
    clock.now = 3599
    assert found(keys, "a") == ["a"]
    assert reads == []
    clock.now = 3600
    # Others that come meanwhile begin no second read.
    assert [found(keys, None) for _ in range(3)] == [["a", "b"]] * 3
    (read,) = reads
    read()
    assert found(keys, None) == ["a", "c"]


def test_a_very_old_set_is_read_first(tmp_path: Path) -> None:
    """A key that was withdrawn while nobody logged in does not log in the next who comes."""
    path, clock = tmp_path / "keys", Clock()
    keys = KeySet(KeySetSource(url=path.as_uri(), refresh_s=3600), clock=clock)
    written(path, "a")
    assert found(keys, "a") == ["a"]
    written(path, "b")
    clock.now = 7200
    assert found(keys, "a") == []


def test_a_read_that_cannot_begin_is_tried_again(tmp_path: Path) -> None:
    """Without a thread the set stays in use, and the next login begins a read."""
    path, clock = tmp_path / "keys", Clock()
    tries: list[Callable[[], None]] = []

    def run_beside(read: Callable[[], None]) -> None:
        tries.append(read)
        if len(tries) == 1:
            raise RuntimeError("can't start new thread")

    keys = KeySet(KeySetSource(url=path.as_uri(), refresh_s=60), clock=clock, run_beside=run_beside)
    written(path, "a")
    assert found(keys, "a") == ["a"]
    clock.now = 60
    assert [found(keys, "a") for _ in range(2)] == [["a"]] * 2
    assert len(tries) == 2


def test_an_unknown_key_is_looked_for_once_in_a_while(tmp_path: Path) -> None:
    """A token with a new key is taken soon; tokens with made-up keys cause no more reads."""
    path, clock = tmp_path / "keys", Clock()
    keys = KeySet(KeySetSource(url=path.as_uri(), retry_s_max=10), clock=clock)
    written(path, "a")
    assert found(keys, "a") == ["a"]
    written(path, "b", "c")
    clock.now = 9
    assert found(keys, "b") == []
    clock.now = 10
    assert found(keys, "b") == ["b"]
    written(path, "d")
    clock.now = 19
    assert found(keys, "d") == []
    clock.now = 20
    assert found(keys, "d") == ["d"]


def test_the_same_unknown_key_is_looked_for_by_kafkas_rule(tmp_path: Path) -> None:
    """A client that tries one made-up key again and again causes a read in a minute."""
    path, clock = tmp_path / "keys", Clock()
    keys = KeySet(KeySetSource(url=path.as_uri(), retry_s_max=10), clock=clock)
    written(path, "a")
    assert found(keys, "made-up") == []
    written(path, "made-up")
    clock.now = UNKNOWN_ID_PAUSE_S - 1
    assert found(keys, "made-up") == []
    clock.now = UNKNOWN_ID_PAUSE_S
    assert found(keys, "made-up") == ["made-up"]


@pytest.mark.parametrize("key_id", ["x" * (KEY_ID_CHARACTERS_MAX + 1), 7, ["a"], {}])
def test_what_is_no_key_id_causes_no_read(tmp_path: Path, key_id: object) -> None:
    """An id that is too long, or no text, is looked for nowhere, and costs no memory."""
    path, clock = tmp_path / "keys", Clock()
    keys = KeySet(KeySetSource(url=path.as_uri()), clock=clock)
    written(path, "a")
    assert found(keys, "a") == ["a"]
    path.unlink()
    clock.now = 100
    assert list(keys.find(key_id, "RSA", "")) == []
    clock.now = 200
    assert list(keys.find(key_id, "RSA", "")) == []


def test_the_old_set_is_used_while_the_issuer_is_down(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A set that cannot be read again stays in use, and the failure is logged with its pause."""
    path, clock = tmp_path / "keys", Clock()
    keys = KeySet(
        KeySetSource(url=path.as_uri(), refresh_s=60), clock=clock, run_beside=lambda read: read()
    )
    written(path, "a")
    assert found(keys, "a") == ["a"]
    path.write_text("down")
    clock.now = 60
    with caplog.at_level(logging.WARNING):
        assert found(keys, "a") == ["a"]
    assert "key_set_not_read" in caplog.text
    assert "keys_in_use=1 next_attempt_ms=100" in caplog.text
    caplog.clear()
    # The pause doubles with each failure.
    for at, count in ((60.05, 0), (60.11, 1), (60.25, 1), (60.35, 2)):
        clock.now = at
        assert found(keys, "a") == ["a"]
        assert caplog.text.count("key_set_not_read") == count


def test_without_any_keys_the_reason_is_known(tmp_path: Path) -> None:
    """Until a set was read a login fails with the reason for that."""
    keys = KeySet(KeySetSource(url=(tmp_path / "none").as_uri()), clock=Clock())
    with pytest.raises(KeySetError, match="No such file"):
        keys.find("a", "RSA", "")


@pytest.mark.parametrize(
    "data",
    [
        b"", b"[]", b"{}", b'{"keys":{}}', b'{"keys":[]}', b'{"keys":[1,"a"]}', b"\xff",
        b"[" * 100_000, b'{"keys":[' + b"{}," * KEYS_MAX + b"{}]}",
    ],
)  # fmt: skip
def test_what_is_no_key_set_is_refused(data: bytes) -> None:
    """A file that is no key set, or has too many keys, is refused."""
    with pytest.raises(ValueError, match=r"JSON|key set"):
        read_keys(data)


def test_a_large_file_is_not_read(tmp_path: Path) -> None:
    """A file that is too large is read no further than that shows."""
    path = tmp_path / "keys"
    path.write_bytes(b" " * (BYTES_MAX + 1))
    with pytest.raises(ValueError, match="more than"):
        KeySetSource(url=path.as_uri()).read()


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("https://idp.example.com/keys", None), ("https://idp.example.com:8443/k?a=b", None),
        ("http://localhost:8080/keys", None), ("http://[::1]/keys", None),
        ("file:///etc/keys.json", None),
        ("http://idp.example.com/keys", "in the clear"), ("file://host/keys", "no file"),
        ("file:keys", "no file"), ("ftp://idp/keys", "no URL"), ("keys.json", "no URL"),
        ("https://[::1", "no URL"), ("https://a/\n", "no URL"),
    ],
)  # fmt: skip
def test_addresses_of_key_sets(url: str, said: str | None) -> None:
    """Keys come from a file, by HTTPS, or from this machine."""
    fault = key_set_fault(url)
    assert fault is None if said is None else said in (fault or "")
