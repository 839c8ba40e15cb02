"""The compact notation in which a catalog names the packages that carry a model's bytes."""

from __future__ import annotations

import re

from localspec.files import MirrorPart

_PACKAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]*")
_VERSION = re.compile(r"[0-9][0-9A-Za-z.+!_-]*")
_PLACE = re.compile(r"\{([^{}]*)\}")
_NUMBER = re.compile(r"([ni])(?::0([1-9])d)?")


def expand(package: str, version: str, member: str, n_parts: int) -> tuple[MirrorPart, ...]:
    """The parts 1 to ``n_parts``, in order.

    In ``package`` and ``member``, ``{n}`` is the part's number counted from 1, ``{i}`` counted from
    0, and ``{n:02d}`` has at least two digits. Raises ValueError with a sentence.
    """
    if not _VERSION.fullmatch(version):
        raise ValueError(f'"{version}" is not the version of a package')
    parts = [
        MirrorPart(_fill(package, n), version, _fill(member, n)) for n in range(1, n_parts + 1)
    ]
    for part in parts:
        if not _PACKAGE.fullmatch(part.package):
            raise ValueError(f'"{part.package}" is not the name of a package')
        pieces = part.member.split("/")
        if "\\" in part.member or any(piece in ("", ".", "..") for piece in pieces):
            raise ValueError(f'"{part.member}" is not the name of a file in a package')
    if len(set(parts)) != len(parts):
        raise ValueError(
            f"{n_parts} parts, but all have the same name; write {{n}} where the part's number goes"
        )
    return tuple(parts)


def _fill(template: str, n: int) -> str:
    def number(found: re.Match[str]) -> str:
        spec = _NUMBER.fullmatch(found[1])
        if spec is None:
            raise ValueError(f'"{found[0]}" stands for nothing; {{n}} and {{i}} do')
        return str(n - (spec[1] == "i")).zfill(int(spec[2] or 0))

    return _PLACE.sub(number, template)
