"""Logs read from their files, with no broker or beside one; nothing is changed, made or locked."""
