"""Imports point down only, and each heavy package is imported in one place."""

from __future__ import annotations

import ast
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent / "localspec"

# Lower numbers may not import higher ones. What is not named here is found by its package.
LAYERS = {
    "errors": 0, "paths": 0, "terminal": 0, "files": 0, "budget": 0,
    "nodes": 1, "yamlfile": 1, "schema": 1, "header": 1, "ggml_types": 1, "not_gguf": 1,
    "sandbox": 1,
    "gguf": 2, "vocab": 2, "config": 2, "nextn": 2,
    "spec": 3, "store": 3, "hardware": 3, "llama": 4,
    "session": 7, "loading": 8, "opening": 8, "report": 8, "verification": 8,
    "benchmark": 9, "tuning": 9,
    "tui": 9, "cli": 10, "__main__": 11,
}  # fmt: skip
MIDDLE = 5
"""catalog, profiles, memory, chat, sessions and whatever else is pure composition of the lower."""

ONLY_IN = {
    "llama_cpp": {"llama"},
    "textual": {"tui"},
    "huggingface_hub": {"store"},
    "psutil": {"hardware"},
}


def modules() -> list[Path]:
    return sorted(path for path in ROOT.rglob("*.py") if "data" not in path.parts)


def part_of(path: Path) -> str:
    return path.relative_to(ROOT).parts[0].removesuffix(".py")


def imported(path: Path) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            names |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            names.add(node.module)
            if node.module == "localspec":
                names |= {f"localspec.{alias.name}" for alias in node.names}
    return names


@pytest.mark.parametrize("path", modules(), ids=lambda path: str(path.relative_to(ROOT)))
def test_imports_point_down(path: Path) -> None:
    mine = part_of(path)
    level = LAYERS.get(mine, MIDDLE)
    for name in imported(path):
        parts = name.split(".")
        if parts[0] == "localspec" and len(parts) > 1:
            other = parts[1]
            if other in (mine, "__version__"):
                continue
            assert LAYERS.get(other, MIDDLE) <= level, f"{mine} imports {other}"
            if mine == "spec":
                assert other in ("errors", "spec"), f"spec imports {other}"
        elif parts[0] in ONLY_IN:
            assert mine in ONLY_IN[parts[0]], f"{mine} imports {parts[0]}"


def test_the_rule_sees_what_it_should() -> None:
    assert {"llama_cpp"} <= set().union(*(imported(p) for p in modules() if part_of(p) == "llama"))
