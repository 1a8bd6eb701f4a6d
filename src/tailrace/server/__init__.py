"""Bytes and sockets: ports, connections, frames in and frames out. Knows no API's meaning."""
