"""The settings of librdkafka, asked of the library in the package of confluent-kafka."""

import ctypes
from pathlib import Path

import pytest


def librdkafka_defaults() -> dict[str, str]:
    """Settings of clients, then of topics, that have a default; skips the test if not found."""
    package = Path(pytest.importorskip("confluent_kafka").__file__).parent
    found = list(package.with_name("confluent_kafka.libs").glob("librdkafka*"))
    if not found:
        pytest.skip("this build of confluent-kafka has librdkafka elsewhere")
    library = ctypes.CDLL(str(found[0]))
    defaults: dict[str, str] = {}
    for kind in ("rd_kafka_conf", "rd_kafka_topic_conf"):
        new, dump = getattr(library, f"{kind}_new"), getattr(library, f"{kind}_dump")
        new.restype = ctypes.c_void_p
        dump.restype = ctypes.POINTER(ctypes.c_char_p)
        dump.argtypes = [ctypes.c_void_p, ctypes.POINTER(ctypes.c_size_t)]
        count = ctypes.c_size_t()
        pairs = dump(new(), ctypes.byref(count))
        for place in range(0, count.value, 2):
            defaults.setdefault(pairs[place].decode(), pairs[place + 1].decode())
    return defaults
