"""The memory plan against reality: each part, and the whole process, for real models.

    python -m bench.memory_table MODEL.gguf... [--pair TARGET DRAFT] [--quantise q8_0,q4_0]

For every model, context and cache type a child process loads the model as localspec does, decodes
one full micro-batch and one verification, and reports llama.cpp's own buffer sizes and what the
process has grown by (resident memory, Linux only). The exit code is 1 when an estimate of the
whole is more than 10 % too high or 3 % too low.
"""

from __future__ import annotations

import argparse
import json
import re
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from itertools import product
from pathlib import Path
from typing import Any

import llama_cpp

from localspec.budget import DeviceMemory
from localspec.gguf import read_header
from localspec.llama import logs
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.memory import Settings, Shape, plan_memory, repacked_types

MIB = 1 << 20
TOO_HIGH, TOO_LOW = 0.10, -0.03
N_ROWS = 64
FTYPES = {"q4_0": 2, "q8_0": 7, "q4_k_m": 15, "q5_k_m": 17, "q6_k": 18}
CPU = DeviceMemory("CPU", "cpu", 1 << 62, "not limited")
# Our part -> the log lines whose sizes llama.cpp prints for it.
LOGGED = {
    "weights": r"CPU_Mapped model buffer size = +([\d.]+) MiB",
    "rearranged weights": r"CPU_(?:REPACK|AMX) model buffer size = +([\d.]+) MiB",
    "KV cache": r"KV buffer size = +([\d.]+) MiB",
    "compute buffers": r"compute buffer size = +([\d.]+) MiB",
}


@dataclass(frozen=True)
class Case:
    """One process: a target, perhaps a draft, a context and a cache type."""

    target: Path
    draft: Path | None
    n_ctx: int
    cache: str

    @property
    def name(self) -> str:
        """For the table."""
        files = [self.target.stem] + ([self.draft.stem] if self.draft else [])
        room = 50 if len(files) == 1 else 23
        return " + ".join(
            name if len(name) <= room else f"{name[: room // 2]}..{name[2 - room // 2 :]}"
            for name in files
        )


def planned(case: Case, features: list[str]) -> dict[str, int]:
    """Bytes of each part by our arithmetic, without what this process does not use."""
    types = repacked_types(features)
    settings = Settings(case.n_ctx, type_k=case.cache, type_v=case.cache, n_rows=N_ROWS)
    draft = Shape.of(read_header(case.draft), types) if case.draft else None
    target = Shape.of(read_header(case.target), types)
    sums: dict[str, int] = {}
    for part in plan_memory(target, settings, [CPU], draft, settings if draft else None):
        if part.what not in ("reserve", "lookup index"):
            sums[part.what] = sums.get(part.what, 0) + part.n_bytes
    return sums


def measured(case: Case, n_threads: int) -> dict[str, float]:
    """What a child process reports; bytes."""
    order = {
        "models": [str(case.target)] + ([str(case.draft)] if case.draft else []),
        "n_ctx": case.n_ctx,
        "cache": case.cache,
        "n_threads": n_threads,
    }
    command = [sys.executable, "-m", "bench.memory_table", "--child", json.dumps(order)]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


# -- the child -----------------------------------------------------------------------------------


def resident() -> int:
    """Resident bytes of this process."""
    text = Path("/proc/self/status").read_text(encoding="ascii")
    found = re.search(r"^VmRSS:\s+(\d+) kB", text, re.MULTILINE)
    assert found
    return int(found[1]) * 1024


def child(order: dict[str, Any]) -> dict[str, float]:
    """Load, decode, report."""
    with tempfile.TemporaryDirectory() as folder:
        log = logs.install(Path(folder) / "log")
        before = resident()
        held = []
        for number, path in enumerate(order["models"]):
            model = Model(Path(path))
            settings = ContextSettings(
                n_ctx=order["n_ctx"],
                n_threads=order["n_threads"],
                type_k=order["cache"],
                type_v=order["cache"],
            )
            context = Context(model, settings)
            context.decode([100 + token for token in range(512)], 1)
            if number == 0:
                context.decode([100] * N_ROWS, N_ROWS)
            else:
                context.decode([100], 1)
            held.append((model, context))
        grown = resident() - before
        text = log.path.read_text(encoding="utf-8", errors="replace")
    sizes = {
        what: sum(float(value) for value in re.findall(pattern, text)) * MIB
        for what, pattern in LOGGED.items()
    }
    return sizes | {"whole process": grown}


# -- the table -----------------------------------------------------------------------------------


def quantised(model: Path, name: str, folder: Path) -> Path:
    """``model`` in another quantisation (made from its own, so good for sizes only)."""
    silent = llama_cpp.llama_log_callback(lambda *_: None)
    llama_cpp.llama_log_set(silent, None)
    path = folder / f"{model.stem}-{name}.gguf"
    params = llama_cpp.llama_model_quantize_default_params()
    params.ftype, params.allow_requantize, params.nthread = FTYPES[name], True, 2
    failed = llama_cpp.llama_model_quantize(str(model).encode(), str(path).encode(), params)
    llama_cpp.llama_log_set(llama_cpp.llama_log_callback(), None)  # ours ends with this function
    if failed:
        raise SystemExit(f"{model} could not be quantised to {name}")
    return path


def features() -> list[str]:
    """Instruction sets of this CPU, as the kernel names them."""
    text = Path("/proc/cpuinfo").read_text(encoding="utf-8")
    found = re.search(r"^(?:flags|Features)\s*:(.*)$", text, re.MULTILINE)
    return found[1].split() if found else []


def show_head() -> None:
    """Two lines above the table."""
    columns = [*LOGGED, "whole process"]
    print(f"{'model':50} {'n_ctx':>6} {'cache':5} " + " ".join(f"{c:>24}" for c in columns))
    print(" " * 63 + " ".join(f"{'plan / real MiB, error':>24}" for _ in columns), flush=True)


def show(case: Case, flags: list[str], n_threads: int) -> float:
    """Print one row; the relative error of the whole."""
    plan, real = planned(case, flags), measured(case, n_threads)
    plan["whole process"] = sum(plan.values())
    cells = []
    for column in [*LOGGED, "whole process"]:
        ours, theirs = plan.get(column, 0), real[column]
        error = ours / theirs - 1 if theirs else 0.0
        cells.append(f"{ours / MIB:8.1f} /{theirs / MIB:7.1f} {error:+6.1%}")
    mark = "" if TOO_LOW <= error <= TOO_HIGH else "  <- outside the bounds"
    row = f"{case.name[:50]:50} {case.n_ctx:6} {case.cache:5} " + " ".join(cells) + mark
    print(row, flush=True)
    return error


def main() -> int:
    """Run the whole table."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("models", nargs="*", type=Path)
    parser.add_argument("--pair", nargs=2, type=Path, action="append", default=[])
    parser.add_argument("--contexts", default="2048,8192,32768")
    parser.add_argument("--caches", default="f16,q8_0")
    parser.add_argument("--quantise", default="", help=f"some of {', '.join(FTYPES)}")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.child:
        print(json.dumps(child(json.loads(args.child))))
        return 0
    contexts = [int(number) for number in args.contexts.split(",")]
    caches = args.caches.split(",")
    names = [name for name in args.quantise.split(",") if name]
    settings, flags = list(product(contexts, caches)), features()
    show_head()
    errors = []
    for target, draft in [*((model, None) for model in args.models), *args.pair]:
        errors += [show(Case(target, draft, *each), flags, args.threads) for each in settings]
    for model, name in product(args.models, names):
        with tempfile.TemporaryDirectory() as folder:
            path = quantised(model, name, Path(folder))
            errors += [show(Case(path, None, *each), flags, args.threads) for each in settings]
    low, high = min(errors), max(errors)
    print(f"{len(errors)} cases: the estimate of the whole is off by {low:+.1%} to {high:+.1%}")
    return 0 if low >= TOO_LOW and high <= TOO_HIGH else 1


if __name__ == "__main__":
    raise SystemExit(main())
