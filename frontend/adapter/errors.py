"""What tracing says of an app's mistakes."""

from __future__ import annotations


class TraceError(Exception):
    """The app's arrays cannot become a program; the message is one sentence for the app's author."""
