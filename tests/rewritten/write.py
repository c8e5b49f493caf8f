"""Write anew what a build of `advection.py` prints, pass by pass: `python tests/rewritten/write.py`."""

from __future__ import annotations

import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1]))
from test_rewritten import GOLDEN, texts

with tempfile.TemporaryDirectory() as folder:
    found = texts(Path(folder))
for old in GOLDEN.glob("*.txt"):
    old.unlink()
for name, text in found.items():
    (GOLDEN / name).write_text(text)
