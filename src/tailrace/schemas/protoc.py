"""`compile_proto`: the descriptors of a `.proto` text, by the compiler that grpcio-tools brings.

It runs in a process of its own, for some tenths of a second: so a text at which it fails ends with
its sentence, one at which it hangs ends after `SECONDS_MAX`, and nothing of it stays in this
process.

Needs grpcio-tools.
"""

import re
import subprocess
import sys
import tempfile
from pathlib import Path, PurePosixPath
from typing import Final

from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet

from tailrace.schemas.errors import SchemaError
from tailrace.schemas.schema import Dependencies

SECONDS_MAX: Final = 30.0
"""Longest time for one text, the start of a process included."""

OWN_FILE: Final = "tailrace_schema.proto"
"""Name of the schema's own file, which has none in a registry."""

_REASON_CHARACTERS: Final = 300


def compile_proto(text: str, dependencies: Dependencies) -> list[FileDescriptorProto]:
    """The file of a text after the files that it imports, each after those that it imports.

    Raises:
        SchemaError: the compiler refuses the text, or takes too long; with its reason.
    """
    with tempfile.TemporaryDirectory(prefix="tailrace-proto-") as directory:
        root = Path(directory)
        for name, each in (*dependencies, (OWN_FILE, text)):
            path = _path_of(root, name)
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(each, encoding="utf-8")
        output = root / "tailrace.descriptors"
        try:
            done = subprocess.run(  # noqa: S603 - our own interpreter
                [
                    # Without -P an imported file could be a module of that process.
                    sys.executable, "-P", "-m", "grpc_tools.protoc", f"--proto_path={root}",
                    "--include_imports", f"--descriptor_set_out={output}", str(root / OWN_FILE),
                ],
                # An error may quote bytes of the schema that are no UTF-8.
                stdin=subprocess.DEVNULL, capture_output=True, text=True, errors="replace",
                timeout=SECONDS_MAX, check=False,
            )  # fmt: skip
        except subprocess.TimeoutExpired as error:
            raise SchemaError(
                f"the Protobuf schema was not compiled within {SECONDS_MAX:.0f} seconds"
            ) from error
        if done.returncode or not output.exists():
            raise SchemaError(f"this is no Protobuf schema: {_reason(done.stderr, root)}")
        found = FileDescriptorSet.FromString(output.read_bytes())
    # protoc writes a file after its imports, the order in which a pool takes them.
    return list(found.file)


def _path_of(root: Path, name: str) -> Path:
    """The place of an imported file, which has to be below `root`."""
    # The name comes from a registry, and could otherwise write to any file of the user.
    parts = PurePosixPath(name)
    if not parts.name or parts.is_absolute() or ".." in parts.parts or "\0" in name:
        raise SchemaError(f"the Protobuf schema imports {name!r}, which is no relative path")
    return root / parts


def _reason(output: str, root: Path) -> str:
    lines = [line for line in output.replace(f"{root}/", "").splitlines() if "warning:" not in line]
    text = re.sub(rf"{re.escape(OWN_FILE)}:?", "line ", " ".join(lines)) if lines else "no reason"
    return text[:_REASON_CHARACTERS]
