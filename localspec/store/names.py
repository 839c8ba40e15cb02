"""File and repository names: which GGUF is meant by ``repo:quant``, which are parts of one model,
which belong beside a model, and which must not become a path. Pure; no I/O."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from localspec.errors import DownloadError, ModelNotFoundError, UsageError
from localspec.terminal import label

_REPO = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_.-]*/[A-Za-z0-9_][A-Za-z0-9_.-]*")
_REVISION = re.compile(r"[A-Za-z0-9_][A-Za-z0-9_./-]*")
_ETAG = re.compile(r"[A-Za-z0-9_-]{8,128}")
_SHARD = re.compile(r"(?P<prefix>.+)-(?P<index>\d{5})-of-(?P<count>\d{5})\.gguf", re.IGNORECASE)
# A quantisation's name between separators: Q4_K_M, IQ2_XXS, TQ1_0, BF16, MXFP4_MOE, ...
_QUANT = re.compile(
    r"(?<![A-Za-z0-9_])(?P<flavour>(?:UD|i1)[-.])?"
    r"(?P<quant>I?Q[1-8](?:_[A-Z0-9]+)*|TQ[12]_0|BF16|F16|FP16|F32|FP32|MXFP4(?:_[A-Z]+)?|NVFP4)"
    r"(?![A-Za-z0-9_])",
    re.IGNORECASE,
)
_SIDE = re.compile(
    r"mmproj|imatrix|(?:^|[-_.])(?:eagle3?|dflash|dspark)(?:[-_.]|$)|^mtp[-_.]", re.IGNORECASE
)
_DEFAULT_QUANTS = ("Q4_K_M", "Q8_0")
_MAX_NAME = 400
_MAX_SHARDS = 1000


def check_repo(repo: str) -> str:
    """``repo`` if it is a Hub repository name (``owner/name``). Raises UsageError."""
    odd_end = repo.endswith((".", "-", ".git"))
    if len(repo) > 96 or not _REPO.fullmatch(repo) or ".." in repo or "--" in repo or odd_end:
        raise UsageError(
            f'"{label(repo)}" is not the name of a Hugging Face repository.',
            hint="Such a name has an owner and a name: Qwen/Qwen2.5-Coder-0.5B-Instruct-GGUF",
        )
    return repo


def check_revision(revision: str) -> str:
    """``revision`` if it can be a branch, tag or commit and stays inside its directory.

    Raises UsageError.
    """
    parts = revision.split("/")
    if len(revision) > 200 or not _REVISION.fullmatch(revision) or {"", ".", ".."} & set(parts):
        raise UsageError(f'"{label(revision)}" is not a branch, tag or commit.')
    return revision


def check_file_name(name: str) -> str:
    """``name`` if it is a relative path that stays inside its repository on every system.

    Raises DownloadError: names come from servers and catalogs.
    """
    parts = name.split("/")
    bad = len(name) > _MAX_NAME or any(
        part in ("", ".", "..") or part.endswith((" ", ".")) for part in parts
    )
    if bad or re.search(r'[\x00-\x1f\x7f<>:"\\|?*]', name):
        raise DownloadError(f'the file name "{label(name[:100])}" is not safe to write to disk.')
    return name


def is_etag(text: str) -> bool:
    """Whether ``text`` can be the file name of a blob."""
    return _ETAG.fullmatch(text) is not None


def is_side_file(name: str) -> bool:
    """Whether a GGUF is no model of its own: a projector, an importance matrix, a draft head."""
    return _SIDE.search(PurePosixPath(name).name) is not None


@dataclass(frozen=True, slots=True)
class ShardName:
    """``prefix-00002-of-00005.gguf`` taken apart; ``index`` counts from 1."""

    prefix: str
    index: int
    count: int

    def name(self, index: int) -> str:
        """The name of part ``index`` of the same model."""
        return f"{self.prefix}-{index:05d}-of-{self.count:05d}.gguf"


def shard_name(name: str) -> ShardName | None:
    """``name`` as a part of a split model, or None if it is an ordinary file that may look so."""
    match = _SHARD.fullmatch(name)
    if match is None:
        return None
    index, count = int(match["index"]), int(match["count"])
    if not 1 <= index <= count <= _MAX_SHARDS or count == 1:
        return None
    return ShardName(match["prefix"], index, count)


def quant_tag(name: str) -> str:
    """The quantisation in a file's name, upper case, with its flavour (``UD-Q4_K_XL``); "" if none.

    The last one in the base name counts, then the last in a directory above it.
    """
    path = PurePosixPath(name)
    for part in (path.name, *reversed(path.parts[:-1])):
        found = list(_QUANT.finditer(part.removesuffix(".gguf")))
        if found:
            flavour = (found[-1]["flavour"] or "").upper().replace(".", "-")
            return flavour + found[-1]["quant"].upper()
    return ""


@dataclass(frozen=True, slots=True)
class Group:
    """One model of a repository: ``names`` of its file or of all its parts in order; ``missing``
    names the parts that should be there and are not."""

    names: tuple[str, ...]
    missing: tuple[str, ...] = ()

    @property
    def tag(self) -> str:
        """The quantisation, see ``quant_tag``."""
        return quant_tag((self.names or self.missing)[0])


def group_models(names: Iterable[str]) -> list[Group]:
    """The models among ``names``, by name: parts joined, side files and other files left out."""
    usable = sorted({n for n in names if n.lower().endswith(".gguf") and not is_side_file(n)})
    single: list[Group] = []
    parts: dict[tuple[str, int], dict[int, str]] = {}
    for name in usable:
        shard = shard_name(name)
        if shard is None:
            single.append(Group((name,)))
        else:
            parts.setdefault((shard.prefix, shard.count), {})[shard.index] = name
    for (prefix, count), found in parts.items():
        wanted = ShardName(prefix, 1, count)
        absent = [wanted.name(i) for i in range(1, count + 1) if i not in found]
        single.append(Group(tuple(found[i] for i in sorted(found)), tuple(absent)))
    return sorted(single, key=lambda group: group.names[0])


def choose(repo: str, names: Sequence[str], quant: str | None) -> Group:
    """The one model of ``repo`` that ``quant`` (a quantisation, or a file's name) means.

    Without ``quant``: the only model, else Q4_K_M, else Q8_0. A quantisation matches whole: Q4_K_M
    is neither IQ4_K_M nor Q4_K_S. Raises ModelNotFoundError (nothing fits, or a part is missing)
    and UsageError (several fit).
    """
    groups = group_models(names)
    if not groups:
        raise ModelNotFoundError(f"{repo} has no GGUF model files.")
    if quant is None:
        found = groups if len(groups) == 1 else []
        for tag in _DEFAULT_QUANTS:
            found = found or [group for group in groups if group.tag == tag]
        if not found:
            raise UsageError(
                f"{repo} has several models and none of them is the usual one.",
                hint=_choices(repo, groups),
            )
    else:
        found = _matching(groups, quant)
    if not found:
        raise ModelNotFoundError(
            f'{repo} has no model that matches "{label(quant or "")}".', hint=_choices(repo, groups)
        )
    if len(found) > 1:
        raise UsageError(
            f'"{label(quant or found[0].tag)}" fits {len(found)} models of {repo}.',
            hint=_choices(repo, found, by_name=True),
        )
    group = found[0]
    if group.missing:
        raise ModelNotFoundError(
            f"{repo} has only {len(group.names)} of {len(group.names) + len(group.missing)} parts "
            f"of this model; missing: {label(', '.join(group.missing[:5]))}.",
            hint="Nothing was downloaded. Ask the owner of the repository, or choose another file.",
        )
    return group


def _matching(groups: list[Group], quant: str) -> list[Group]:
    """Best kind of match first: the file's own name, the whole tag, the tag without its flavour."""
    wanted = quant.upper()
    by_name = [g for g in groups if any(quant in (n, PurePosixPath(n).name) for n in g.names)]
    by_tag = [g for g in groups if g.tag == wanted]
    plain = [g for g in groups if g.tag and re.sub(r"^(UD|I1)-", "", g.tag) == wanted]
    return by_name or by_tag or plain


def _choices(repo: str, groups: list[Group], *, by_name: bool = False) -> str:
    tags = [group.tag for group in groups]
    lines = []
    for group, tag in zip(groups[:30], tags, strict=False):
        unique = tag and tags.count(tag) == 1 and not by_name
        lines.append(f"  {repo}:{label(tag if unique else group.names[0])}")
    more = f"\n  and {len(groups) - 30} more" if len(groups) > 30 else ""
    return "Choose one:\n" + "\n".join(lines) + more
