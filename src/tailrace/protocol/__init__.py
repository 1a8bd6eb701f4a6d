"""Kafka's wire protocol without sockets: bytes in, messages out, and back.

    frames      size, request header, response header: one message cut out of a stream
    apis        which APIs are served, in which versions, with which classes
    messages    one module per API: frozen dataclasses that declare their wire format
    fields      declarations of fields: wire type, versions, tag, default
    codec       makes decode and encode functions, one pair per class and version
    errors      Kafka's error codes and their messages

Both directions are here, because the broker decodes what our own client encodes. `handlers` has the
meaning of requests; `server` and `client` have the sockets.

Invariant: bytes from a peer end in a message or in `MalformedMessageError`, in memory bounded
by the size of the frame. Every length and count is checked against the bytes that remain before
anything is allocated for it.
"""
