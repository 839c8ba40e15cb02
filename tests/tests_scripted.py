"""A long-winded scripted session for tests that need a process of their own."""

from __future__ import annotations

from typing import Any

import test_cli_run


def session(config: Any, *_: Any) -> test_cli_run.ScriptedSession:
    """Says more than a pipe holds."""
    return test_cli_run.ScriptedSession(config, answer=[1, 2, 3] * 80)
