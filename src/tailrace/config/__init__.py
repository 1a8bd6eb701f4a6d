"""Settings: declared once, parsed once, with all faults reported together."""

from tailrace.config.settings import (
    Setting,
    Value,
    describe_settings,
    field_values,
    parse_settings,
    setting,
    settings_of,
)
from tailrace.config.sources import parse_assignments, read_properties, settings_texts

__all__ = [
    "Setting",
    "Value",
    "describe_settings",
    "field_values",
    "parse_assignments",
    "parse_settings",
    "read_properties",
    "setting",
    "settings_of",
    "settings_texts",
]
