"""Room on the disk, and what the operating system says when it refuses to write."""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from localspec.errors import DiskSpaceError, DownloadError
from localspec.terminal import size

_MARGIN_BYTES = 16 << 20
_MARGIN_SHARE = 0.01


def nearest_existing(path: Path) -> Path:
    """``path`` or the closest directory above it that exists: its disk is the one written to."""
    path = path.absolute()
    while not path.exists() and path != path.parent:
        path = path.parent
    return path


def check_space(folder: Path, need_bytes: int) -> None:
    """Make sure that ``need_bytes`` and a margin (16 MiB and 1 %) fit on the disk of ``folder``.

    ``folder`` need not exist yet. Raises DiskSpaceError.
    """
    if need_bytes <= 0:
        return
    need = need_bytes + _MARGIN_BYTES + int(need_bytes * _MARGIN_SHARE)
    try:
        free = shutil.disk_usage(nearest_existing(folder)).free
    except OSError:
        return  # some network disks cannot say; writing will tell
    if free < need:
        raise DiskSpaceError(
            f"not enough room in {folder}: {size(need)} needed, {size(free)} free.",
            hint="Free some space, or move the cache with HF_HOME=/another/disk. "
            'To try all the same: "localspec pull --no-space-check NAME".',
        )


@contextmanager
def explained(folder: Path) -> Iterator[None]:
    """Turn the system's refusals while writing below ``folder`` into plain sentences."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT):
            raise DiskSpaceError(
                f"the disk of {folder} is full.",
                hint="What has arrived is kept. Free some space and run the same command again, or "
                "move the cache with HF_HOME=/another/disk.",
            ) from error
        if error.errno in (errno.EACCES, errno.EPERM, errno.EROFS):
            raise DownloadError(
                f"cannot write to {error.filename or folder}: {error.strerror}.",
                hint="Set HF_HOME to a directory that you may write to.",
            ) from error
        raise DownloadError(f"cannot write to {folder}: {error.strerror or error}.") from error


def bytes_below(folder: Path, suffix: str = "", *, deep: bool = True) -> int:
    """Bytes of the files in ``folder`` whose names end in ``suffix``; with ``deep``, in its
    directories too. Another program may remove things meanwhile; they do not count then."""
    total = 0
    # os.walk passes over a directory that is gone; Path.rglob raises.
    for place, _, names in os.walk(folder):
        for name in names:
            if name.endswith(suffix):
                with contextlib.suppress(OSError):
                    total += (Path(place) / name).stat().st_size
        if not deep:
            break
    return total
