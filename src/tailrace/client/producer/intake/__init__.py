"""Intake: what is done to records and rows before they are in a batch."""
