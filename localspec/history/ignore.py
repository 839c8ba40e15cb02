"""Which files of a directory are worth learning: git's own list, or a reading of .gitignore.

Patterns are read as gitignore(5) describes them: the last one that matches decides, ``!`` takes a
file back in, a slash at the end means directories only, one elsewhere ties the pattern to the
directory of its file, ``*`` and ``?`` stop at slashes and ``**`` does not. Nothing below an ignored
directory is looked at.
"""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

MAX_FILES = 100_000
_MAX_IGNORE_BYTES = 1 << 16
_MAX_PATTERN, _MAX_STARS = 256, 6
_GIT_S = 60
_MAX_DEPTH = 4
_NEVER_DIRS = {"node_modules", "__pycache__", "venv", "site-packages"}
_SECRETS = (".pem", ".key", ".p12", ".pfx", ".kdbx")
"""Not text that anyone wants repeated."""


def files_below(root: Path, depth: int = 0) -> list[Path]:
    """Regular files below ``root`` that are neither ignored, hidden nor keys, sorted; at most
    ``MAX_FILES``. Symbolic links are not followed. ``root`` may be a file: then it is the list.
    ``depth``: how many repositories it lies in."""
    if not root.is_dir():
        return [root]
    listed = _from_git(root)
    found = []
    for relative in sorted(listed if listed is not None else _walk(root)):
        parts = Path(relative).parts
        if any(part.startswith(".") for part in parts) or parts[-1].endswith(_SECRETS):
            continue
        path = root / relative
        if path.is_symlink():
            continue
        if path.is_file():
            found.append(path)
        elif path.is_dir() and depth < _MAX_DEPTH:  # git lists a repository in it by name only
            found += files_below(path, depth + 1)
        if len(found) >= MAX_FILES:
            break
    return found[:MAX_FILES]


def _from_git(root: Path) -> list[str] | None:
    """What git would track below ``root``; None without git or outside a repository."""
    # A repository must not be able to name programs that run when it is only listed.
    command = ["git", "-c", "core.fsmonitor=false", "-C", str(root), "ls-files", "-z", "--cached"]
    command += ["--others", "--exclude-standard", "--deduplicate", "--", "."]
    try:
        result = subprocess.run(
            command,
            capture_output=True,
            timeout=_GIT_S,
            check=False,
            stdin=subprocess.DEVNULL,
            env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"},
        )
    except (OSError, subprocess.TimeoutExpired):
        return None
    if result.returncode != 0:
        return None
    return [os.fsdecode(name) for name in result.stdout.split(b"\0") if name]


# -- without git ----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class Rule:
    """One line of a .gitignore; ``base`` is the directory of the file, relative to the root."""

    base: str
    pattern: re.Pattern[str]
    takes_back: bool
    only_dirs: bool

    def matches(self, path: str, is_dir: bool) -> bool:
        """Whether the line means ``path`` (relative to the root, with slashes)."""
        if self.only_dirs and not is_dir:
            return False
        if self.base and not path.startswith(self.base + "/"):
            return False
        below = path[len(self.base) + 1 :] if self.base else path
        return self.pattern.fullmatch(below) is not None


def rules_of(text: str, base: str) -> list[Rule]:
    """The lines of a .gitignore in the directory ``base``. What is too long is left out."""
    rules = []
    for line in text.splitlines():
        pattern = re.sub(r"(?<!\\) +$", "", line)
        takes_back = pattern.startswith("!")
        pattern = pattern.removeprefix("!")
        only_dirs = pattern.endswith("/")
        pattern = pattern.rstrip("/")
        too_much = len(pattern) > _MAX_PATTERN or pattern.count("*") > _MAX_STARS
        if not pattern or pattern.startswith("#") or too_much:
            continue
        anchored = "/" in pattern
        regex = _regex(pattern.lstrip("/"))
        if regex is None:
            continue
        compiled = re.compile(regex if anchored else "(?:.*/)?" + regex, re.DOTALL)
        rules.append(Rule(base, compiled, takes_back, only_dirs))
    return rules


def _regex(pattern: str) -> str | None:
    """A regular expression for a pattern; None when it has brackets that are no class."""
    out, at = "", 0
    while at < len(pattern):
        rest = pattern[at:]
        bracket = re.match(r"\[([!^]?)(\]?[^\]]*)\]", rest)
        if rest.startswith("**/"):
            out, at = out + "(?:.*/)?", at + 3
        elif rest == "**":
            out, at = out + ".*", at + 2
        elif rest[0] == "*":
            out, at = out + "[^/]*", at + 1
        elif rest[0] == "?":
            out, at = out + "[^/]", at + 1
        elif bracket:
            inside = re.sub(r"[^\w-]", lambda c: re.escape(c[0]), re.sub("--+", "-", bracket[2]))
            out += f"(?!/)[{'^' if bracket[1] else ''}{inside}]"
            at += bracket.end()
        elif rest[0] == "\\" and len(rest) > 1:
            out, at = out + re.escape(rest[1]), at + 2
        else:
            out, at = out + re.escape(rest[0]), at + 1
    try:
        re.compile(out)
    except re.error:
        return None
    return out


def _walk(root: Path) -> Iterator[str]:
    """Relative paths of the files below ``root`` that no .gitignore excludes."""
    rules: list[Rule] = []
    for directory, names, files in os.walk(root):
        base = Path(directory).relative_to(root).as_posix()
        base = "" if base == "." else base
        rules = [rule for rule in rules if not rule.base or _is_below(base, rule.base)]
        rules += _rules_in(Path(directory), base)
        below = base + "/" if base else ""
        names[:] = sorted(
            name
            for name in names
            if not name.startswith(".")
            and name not in _NEVER_DIRS
            and not _is_ignored(below + name, True, rules)
        )
        yield from (below + f for f in files if not _is_ignored(below + f, False, rules))


def _is_below(path: str, base: str) -> bool:
    return path == base or path.startswith(base + "/")


def _rules_in(directory: Path, base: str) -> list[Rule]:
    try:
        with (directory / ".gitignore").open("rb") as stream:
            data = stream.read(_MAX_IGNORE_BYTES)
    except OSError:
        return []
    return rules_of(data.decode("utf-8", "replace"), base)


def _is_ignored(path: str, is_dir: bool, rules: list[Rule]) -> bool:
    for rule in reversed(rules):
        if rule.matches(path, is_dir):
            return not rule.takes_back
    return False
