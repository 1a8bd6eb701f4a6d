"""Settings: declared once, parsed once, with all faults reported together."""

from tailrace.config.settings import Setting, Value, describe_settings, parse_settings
from tailrace.config.sources import parse_assignments, read_properties, settings_texts

__all__ = [
    "Setting",
    "Value",
    "describe_settings",
    "parse_assignments",
    "parse_settings",
    "read_properties",
    "settings_texts",
]
