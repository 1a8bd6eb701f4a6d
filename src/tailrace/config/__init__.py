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
from tailrace.config.sources import (
    Property,
    parse_assignments,
    properties,
    read_properties,
    settings_texts,
)

__all__ = [
    "Property",
    "Setting",
    "Value",
    "describe_settings",
    "field_values",
    "parse_assignments",
    "parse_settings",
    "properties",
    "read_properties",
    "setting",
    "settings_of",
    "settings_texts",
]
