"""The memory plan against what llama.cpp takes, part by part, for every kind of model."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import helpers_tiny_models as tiny
import llama_cpp
import pytest

from localspec.budget import DeviceMemory
from localspec.gguf import read_header
from localspec.llama import logs
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.llama.mtp import MtpHeads
from localspec.memory import Settings, Shape, plan_memory
from localspec.memory.compute import quantised_bytes
from localspec.nextn import heads_of

CPU = DeviceMemory("CPU", "cpu", 1 << 62, "not limited")
MIB = 1 << 20
KEPT = 4
MOST, LEAST = 1.10, 0.97
"""How far a plan may be off, as shares of what is really taken."""
ROUNDED = 0.006 * MIB
"""llama.cpp prints sizes in MiB with two places; up to that far nothing can be said."""
LOGGED = {
    "weights": r"CPU_Mapped model buffer size = +([\d.]+) MiB",
    "KV cache": r"KV buffer size = +([\d.]+) MiB",
    "recurrent state": r"RS buffer size = +([\d.]+) MiB",
}
COMPUTE = r"sched_reserve: +CPU compute buffer size = +([\d.]+) MiB"

# The target, and the heads of its own, in their own file (a pair), or none.
Write = Callable[[Path], Path]
MODELS: dict[str, tuple[Write, Write | None]] = {
    "lfm2": (tiny.write_lfm2, None),
    "mamba": (tiny.write_mamba, None),
    "window": (tiny.write_gemma3, None),
    "qwen35": (tiny.write_qwen35, None),
    "inside": (tiny.write_counting_qwen35, None),
    "apart": (
        lambda path: tiny.write_counting_qwen35(path, heads="none"),
        lambda path: tiny.write_counting_qwen35(path, heads="only"),
    ),
    "shared": (tiny.write_counting_gemma4, tiny.write_counting_assistant),
    "several": (lambda path: tiny.write_counting_step35(path, n_heads_mtp=2, n_layer=4), None),
}
SIZES = {
    "tiny": (64, 96, 4, 16),
    "wide blocks": (256, 1024, 4, 64),
    "wide heads": (128, 160, 8, 32),
}
"""Width of the model, of its feed-forward blocks, query heads, length of a key."""
CONTEXTS = [(4096, 512), (512, 512), (4096, 64)]
"""Tokens of the context, and of one pass."""


@dataclass
class Files:
    """A target and its heads, which are in ``heads`` (None: there are none)."""

    target: Path
    heads: Path | None


# An LFM2's queries are as wide as the model.
CASES = [
    (size, name) for size in SIZES for name in MODELS if (size, name) != ("wide heads", "lfm2")
]


def _write(name: str, size: str, home: Path, monkeypatch: pytest.MonkeyPatch) -> Files:
    for constant, value in zip(("N_EMBD", "N_FF", "N_HEAD", "HEAD"), SIZES[size], strict=True):
        monkeypatch.setattr(tiny, constant, value)
    write, write_heads = MODELS[name]
    target = write(home / "m.gguf")
    heads = write_heads(home / "h.gguf") if write_heads else target
    return Files(target, heads if heads_of(read_header(heads)) else None)


class Log:
    """What llama.cpp says from now on."""

    def __init__(self) -> None:
        self._path = logs.install().path
        self.forget()

    def forget(self) -> None:
        self._start = self._path.stat().st_size if self._path.exists() else 0

    def sizes(self, pattern: str) -> list[int]:
        text = self._path.read_bytes()[self._start :].decode("utf-8", "replace")
        return [int(float(number) * MIB) for number in re.findall(pattern, text)]


@pytest.mark.parametrize(("size", "name"), CASES)
def test_every_part_and_the_whole_are_what_llama_cpp_takes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, size: str, name: str
) -> None:
    made = _write(name, size, tmp_path, monkeypatch)
    for n_ctx, n_ubatch in CONTEXTS:
        taken = _taken(made, n_ctx, n_ubatch)
        planned = _planned(made, n_ctx, n_ubatch)
        for what in taken:
            _close(what, planned[what], taken[what], (n_ctx, n_ubatch))
        _close("whole", sum(planned.values()), sum(taken.values()), (n_ctx, n_ubatch))


def _close(what: str, planned: int, taken: int, where: object) -> None:
    off = f"{what} of {where}: {planned / MIB:.3f} MiB planned, {taken / MIB:.3f} taken"
    assert planned <= MOST * taken + ROUNDED, off
    assert planned >= LEAST * taken - ROUNDED, off


def _planned(made: Files, n_ctx: int, n_ubatch: int) -> dict[str, int]:
    header = read_header(made.target)
    target = Shape.of(header)
    # Without states of their own, a second sequence is there for the copy (llama/rollback.py).
    n_rs_seq = (1 if header.architecture == "mamba" else KEPT) if target.has_state else 0
    settings = Settings(n_ctx, n_ubatch=n_ubatch, n_rs_seq=n_rs_seq)
    heads = Shape.of_heads(read_header(made.heads)) if made.heads else None
    parts = plan_memory(target, settings, [CPU], heads, replace(settings, n_rs_seq=0))
    found = dict.fromkeys([*LOGGED, "compute buffers", "logits"], 0)
    if heads is not None:
        found["hidden states"] = 0
    for part in parts:
        if part.what in found:
            found[part.what] += part.n_bytes
    for shape in (target, heads):
        if shape is not None:  # llama.cpp does not count this as the graph's, and nowhere else
            found["compute buffers"] -= quantised_bytes(shape, settings)
    return found


def _taken(made: Files, n_ctx: int, n_ubatch: int) -> dict[str, int]:
    log = Log()
    found = heads_of(read_header(made.heads)) if made.heads else None
    model = Model(made.target, load_mtp=made.heads == made.target)
    other = None
    if made.heads and made.heads != made.target:
        other = Model(made.heads, load_mtp=True)
    context = Context(model, ContextSettings(n_ctx, n_ubatch=n_ubatch, n_rs_seq=KEPT))
    heads = MtpHeads(context, found, other) if found is not None else None
    taken = {what: sum(log.sizes(pattern)) for what, pattern in LOGGED.items()}
    assert taken["weights"], "llama.cpp prints its sizes in other words now"
    n_embd = int(llama_cpp.llama_model_n_embd_out(model.handle))
    context.decode([1, 2, 3], 1)
    taken["compute buffers"] = _reserved(context.handle, lambda: context.decode([4], 1))
    taken["logits"] = 4 * 64 * model.n_vocab
    if heads is not None:
        taken["compute buffers"] += _reserved_by(heads)
        # llama-context.cpp, output_reserve, with set_embeddings_nextn for every token of a batch.
        n_bytes = 4 * n_embd * context.n_batch
        taken["hidden states"] = n_bytes + heads._hidden.nbytes + heads._batch._embd.nbytes
        heads.close()
    context.close()
    model.close()
    return taken


def _reserved_by(heads: MtpHeads) -> int:
    """Compute buffer of MTP heads: a buffer grows to what the neediest of them takes."""
    sizes = []
    for head in range(heads._n_heads):

        def run(head: int = head) -> None:
            heads.read(0)
            heads._select(head, heads._n_cached)
            heads._decode([1], heads._hidden[:1], heads._n_cached, with_logits=True)

        sizes.append(_reserved(heads.handle, run))
    return max(sizes)


def _reserved(handle: object, run: Callable[[], None]) -> int:
    """The buffer that llama.cpp makes when it makes it anew: it does so, and says the size, after
    a control vector was set (here: none)."""
    log = Log()
    llama_cpp.llama_set_adapter_cvec(handle, None, 0, 0, 0, 0)
    run()
    (size,) = log.sizes(COMPUTE)
    return size


@pytest.mark.parametrize("swa_full", [False, True])
def test_the_plan_follows_the_kind_of_cache_that_a_window_has(
    tmp_path: Path, swa_full: bool
) -> None:
    """Field report: a full-size cache takes 16 times the memory of one for the window."""
    path = tiny.write_gemma3(tmp_path / "m.gguf")
    log = Log()
    model = Model(path)
    context = Context(model, ContextSettings(8192, n_ubatch=64, swa_full=swa_full))
    context.decode([1, 2, 3], 1)
    taken = [
        sum(log.sizes(LOGGED["KV cache"])),
        _reserved(context.handle, lambda: context.decode([4], 1)),
    ]
    context.close()
    model.close()
    shape, settings = Shape.of(read_header(path)), Settings(8192, n_ubatch=64, swa_full=swa_full)
    parts = {part.what: part.n_bytes for part in plan_memory(shape, settings, [CPU])}
    _close("KV cache", parts["KV cache"], taken[0], swa_full)
    n_bytes = parts["compute buffers"] - quantised_bytes(shape, settings)
    _close("compute buffers", n_bytes, taken[1], swa_full)


@pytest.mark.parametrize("name", ["lfm2", "mamba", "qwen35"])
@pytest.mark.parametrize("drafts", [False, True])
def test_recurrent_states_and_copies_of_them_are_as_large_as_planned(
    tmp_path: Path, name: str, drafts: bool
) -> None:
    path = MODELS[name][0](tmp_path / "m.gguf")
    log = Log()
    model = Model(path)
    context = Context(model, ContextSettings(512, n_rs_seq=KEPT, drafts=drafts))
    context.decode([1, 2, 3], 1)
    taken = sum(log.sizes(LOGGED["recurrent state"]))
    saved = int(llama_cpp.llama_state_seq_get_size_ext(context.handle, 0, 1))
    context.close()
    model.close()
    shape = Shape.of(read_header(path))
    n_bytes = sum(layer.state_bytes for layer in shape.layers)
    kept = 1 + KEPT if name != "mamba" else 2
    if drafts:
        parts = plan_memory(shape, Settings(512), [CPU], shape, Settings(512))
        planned = next(p for p in parts if (p.what, p.role) == ("recurrent state", "draft"))
        kept = 2
        assert planned.n_bytes == kept * n_bytes
    _close("recurrent state", kept * n_bytes, taken, name)
    assert n_bytes <= saved <= MOST * n_bytes + 128  # with a header
