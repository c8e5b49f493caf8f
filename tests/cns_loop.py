"""The app `cns` of fixed time steps and without pictures: what tests of its loop need, built in less time."""

from __future__ import annotations

import dataclasses
from typing import Any

from aotato.frontend import Plan
from aotato.frontend.apps import cns
from aotato.frontend.apps.cns import OPTIONS, init, observe, setup, stage

__all__ = ("ENTRIES", "OPTIONS", "plan", "setup")

ENTRIES = (init, stage, observe)


def plan(opt: Any) -> Plan:
    return dataclasses.replace(cns.plan(opt), draw=())
