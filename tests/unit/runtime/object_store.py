"""A stand-in for an object store: the four requests of S3 that a reader makes, over HTTP."""

import threading
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import ClassVar
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape

BUCKET = "bucket"


@contextmanager
def object_store(objects: Mapping[str, bytes]) -> Iterator[str]:
    """Serve objects by key; gives what stands behind the `?` of a URI that leads there."""
    handler = type("Handler", (_Handler,), {"objects": objects})
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"endpoint_override=127.0.0.1:{server.server_port}&scheme=http&region=us-east-1"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


class _Handler(BaseHTTPRequestHandler):
    """Answers for one bucket."""

    objects: ClassVar[Mapping[str, bytes]]
    protocol_version = "HTTP/1.1"
    # A head and a body are two packets; the second would wait 40 ms for the client's answer.
    disable_nagle_algorithm = True

    def do_HEAD(self) -> None:
        self._object()

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query.get("prefix", [""])[0], query.get("delimiter", [""])[0])
        else:
            self._object()

    def log_message(self, *args: object) -> None:
        """Write nothing to stderr."""

    def _object(self) -> None:
        key = unquote(urlsplit(self.path).path).removeprefix(f"/{BUCKET}").lstrip("/")
        if key and key not in self.objects:
            self._answer(404, b"")
            return
        data = self.objects.get(key, b"")
        given = self.headers.get("Range")
        if given is None:
            self._answer(200, data)
            return
        first, last = given.removeprefix("bytes=").split("-")
        self._answer(206, data[int(first) : int(last) + 1])

    def _list(self, prefix: str, delimiter: str) -> None:
        keys, folders = [], set()
        for key in sorted(self.objects):
            if key.startswith(prefix):
                rest = key[len(prefix) :]
                folder, found, _ = rest.partition(delimiter) if delimiter else (rest, "", "")
                if found:
                    folders.add(prefix + folder + delimiter)
                else:
                    keys.append(key)
        contents = "".join(
            f"<Contents><Key>{escape(key)}</Key><Size>{len(self.objects[key])}</Size>"
            "<LastModified>2024-01-01T00:00:00.000Z</LastModified></Contents>"
            for key in keys
        )
        common = "".join(
            f"<CommonPrefixes><Prefix>{escape(folder)}</Prefix></CommonPrefixes>"
            for folder in sorted(folders)
        )
        text = (
            '<?xml version="1.0"?><ListBucketResult><IsTruncated>false</IsTruncated>'
            f"<KeyCount>{len(keys) + len(folders)}</KeyCount>{contents}{common}"
            "</ListBucketResult>"
        )
        self._answer(200, text.encode())

    def _answer(self, status: int, data: bytes) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(data)))
        self.send_header("Last-Modified", "Mon, 01 Jan 2024 00:00:00 GMT")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(data)
