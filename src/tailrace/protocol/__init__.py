"""Kafka's wire protocol without sockets: bytes in, messages out, and back.

    frames      size, request header, response header: one message cut out of a stream
    apis        which APIs are served, in which versions, with which classes
    messages    one module per API: frozen dataclasses whose fields say how they travel
    fields      what a field can say about itself
    codec       turns those fields into flat functions, one pair per class and version
    errors      the numbers of the wire, and what they mean

Both directions are here, because the broker decodes what our own client encodes. Not here: what
a request *means* (`handlers`), and how bytes arrive (`server`, `client`).

Invariant: bytes from a peer end in a message or in `MalformedMessageError`, in memory bounded
by the size of the frame. Every length and count is checked against the bytes that remain before
anything is allocated for it.
"""
