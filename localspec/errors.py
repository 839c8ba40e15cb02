"""Every error localspec raises on purpose.

::

    LocalspecError                 exit code 1
    ├── UsageError                 2   the command line or an argument makes no sense
    │   └── ConfigError            2   a settings file or environment variable is wrong
    ├── ModelNotFoundError         1   no such file, catalog name or hub name
    ├── ModelFileError             1   the file is there but is not a whole, readable GGUF
    ├── ModelLoadError             1   llama.cpp would not load it
    │   └── AllocationError        1   there was no memory for it, in spite of the plan
    ├── PromptError                1   empty, too long for the context, template refuses it
    ├── DownloadError              3   a file could not be fetched
    │   ├── HubUnreachableError    3   nobody answers (or offline mode)
    │   ├── AccessError            3   gated, private, expired or missing token
    │   ├── RateLimitError         3   the server asks us to wait
    │   ├── DiskSpaceError         3   it would not fit on the disk
    │   ├── IntegrityError         3   the bytes are not the promised ones
    │   └── DownloadCancelledError 130 the user stopped it
    ├── MemoryPlanError            4   it would not fit into memory
    ├── PairError                  5   target and draft do not go together
    └── DecodeError                1   llama.cpp failed in the middle of an answer

Each carries one plain sentence (what is wrong, and where) and, where there is one, a hint (what to
do). ``cli`` prints both and exits with ``exit_code``; nothing else turns errors into text.
"""

from __future__ import annotations

from collections.abc import Sequence


class LocalspecError(Exception):
    """Base of all errors that are explained to the user rather than shown as a traceback."""

    exit_code = 1

    def __init__(self, message: str, *, hint: str = "") -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class UsageError(LocalspecError):
    """The command line or an argument makes no sense."""

    exit_code = 2


class ConfigError(UsageError):
    """A settings file, profile, catalog or environment variable is wrong."""


class ModelNotFoundError(LocalspecError):
    """No such file, catalog name or hub name."""


class ModelFileError(LocalspecError):
    """The file exists but is not a whole, readable GGUF."""


class ModelLoadError(LocalspecError):
    """llama.cpp refused to load the model or to make a context for it."""


class AllocationError(ModelLoadError):
    """There was no memory for it, in spite of the plan."""


class PromptError(LocalspecError):
    """The prompt is empty, does not fit the context, or the template refuses it."""


class DownloadError(LocalspecError):
    """A file could not be fetched."""

    exit_code = 3


class HubUnreachableError(DownloadError):
    """The server does not answer, or offline mode forbids asking."""


class AccessError(DownloadError):
    """Gated or private repository, or an expired or missing token."""


class RateLimitError(DownloadError):
    """The server asks us to wait."""


class DiskSpaceError(DownloadError):
    """The download would not fit on the disk."""


class IntegrityError(DownloadError):
    """The bytes that arrived are not the promised ones."""


class DownloadCancelledError(DownloadError):
    """The user stopped it; what has arrived is kept for the next time."""

    exit_code = 130


class MemoryPlanError(LocalspecError):
    """The model would not fit into the available memory.

    ``steps``: what was tried, each with its name, its verdict and the reason.
    """

    exit_code = 4

    def __init__(
        self, message: str, *, hint: str = "", steps: Sequence[tuple[str, str, str]] = ()
    ) -> None:
        super().__init__(message, hint=hint)
        self.steps = tuple(steps)


class PairError(LocalspecError):
    """Target and draft do not go together."""

    exit_code = 5


class DecodeError(LocalspecError):
    """llama.cpp failed in the middle of an answer."""
