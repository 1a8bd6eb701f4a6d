"""Ports, connections, request frames and response frames; the APIs themselves are in `handlers`."""
