"""Names of arrays as HDF5 link names: `/` would make groups, `.` alone means the group itself."""

from __future__ import annotations

import re

EMPTY = "%"  # a percent sign without digits stands for nothing else


def encode_name(name: str) -> str:
    """Percent-encode `%`, `/`, NUL, a lone `.` and the empty name."""
    if name in ("", "."):
        return {"": EMPTY, ".": "%2E"}[name]
    return re.sub(r"[%/\0]", lambda match: f"%{ord(match[0]):02X}", name)


def decode_name(text: str) -> str:
    """The inverse of `encode_name`."""
    return "" if text == EMPTY else re.sub(r"%([0-9A-F]{2})", lambda match: chr(int(match[1], 16)), text)
