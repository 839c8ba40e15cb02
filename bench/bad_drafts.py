"""Never slower with a draft model that is no help: useless, as large as the target, or starved.

    python -m bench.bad_drafts --model FILE --draft FILE [--tokens 300] [--rounds 5]
                               [--prompts code-lru,explain-tcp,creative-lighthouse] [--json]

*Useless*: the draft file with the blocks of each of its weight matrices in random order, so random
weights of the right sizes and vocabulary. *Large*: the target's own file as its draft. *Starved*:
the draft, with as many busy processes as it has threads, which run while it decodes and only then.
Each is compared with plain decoding side by side, nothing learned from before.
Exit code 1 if one of them is slower than 0.97 of plain on a prompt (medians of the ratios within
the rounds).
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from contextlib import closing, contextmanager, nullcontext
from dataclasses import replace
from pathlib import Path
from statistics import median

import numpy as np

from bench.side_by_side import Task, session_answers, side_by_side
from localspec.benchmark import BenchPrompt, choose, load
from localspec.config import Config
from localspec.files import NoProgress
from localspec.gguf import read_header
from localspec.llama.context import Context
from localspec.opening import open_session

FLOOR = 0.97
PROMPTS = "code-lru,explain-tcp,creative-lighthouse"
BUSY = "while True: pass"


def scramble(source: Path, target: Path, seed: int = 0) -> None:
    """A copy of the model ``source`` whose matrices have their blocks in random order."""
    shutil.copyfile(source, target)
    header = read_header(source)
    data = np.memmap(target, np.uint8, "r+")
    rng = np.random.default_rng(seed)
    for tensor in header.tensors:
        if len(tensor.shape) < 2:
            continue  # norms and biases stay: without them everything would be infinite
        size = tensor.type.n_bytes
        start = header.data_offset + tensor.offset
        blocks = data[start : start + tensor.n_bytes].reshape(-1, size)
        blocks[:] = blocks[rng.permutation(len(blocks))]
    data.flush()


@contextmanager
def starved(context: Context, n_threads: int) -> Iterator[None]:
    """While ``context`` decodes, so many processes keep the cores busy."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY]) for _ in range(n_threads)]
    native = context.decode

    def tell(sign: int) -> None:
        for process in busy:
            os.kill(process.pid, sign)

    def decode(tokens: Sequence[int], n_rows: int) -> None:
        tell(signal.SIGCONT)
        try:
            native(tokens, n_rows)
            if n_rows:
                context.row(0)  # waits until the result is there
        finally:
            tell(signal.SIGSTOP)

    context.decode = decode  # type: ignore[method-assign]
    tell(signal.SIGSTOP)
    try:
        yield
    finally:
        context.decode = native  # type: ignore[method-assign]
        for process in busy:
            process.kill()
            process.wait()


def measure(
    model: Path, draft: Path, prompts: Sequence[BenchPrompt], options: argparse.Namespace, hog: bool
) -> dict[str, list[float]]:
    """prompt -> speed over plain in each round."""
    config = Config(
        model=str(model), draft=str(draft), history=False, learn=False, n_ctx=2048, mode="draft"
    )
    found: dict[str, list[float]] = {prompt.id: [] for prompt in prompts}
    with (
        closing(open_session(config, NoProgress())) as auto,
        closing(open_session(replace(config, mode="off", draft=None), NoProgress())) as plain,
    ):
        assert auto.status.mode == "draft", auto.status.reason
        n_threads = auto.status.n_threads
        contenders = session_answers(plain, "off"), session_answers(auto, "auto")
        for number in range(options.rounds):
            for prompt in prompts:
                task = Task(prompt, [], options.tokens, 0.0, 0)
                answers = [each(task) for each in contenders]
                # Plain steps have the cores to themselves: the busy ones wait meanwhile.
                with starved(auto.contexts[1], n_threads) if hog else nullcontext():
                    off, fast = side_by_side(answers)
                if off and fast:
                    found[prompt.id].append(fast.speed / off.speed)
                    told = f"{prompt.id}: {off.speed:.1f} -> {fast.speed:.1f} tok/s"
                    print(f"  round {number + 1}, {told}", file=sys.stderr)
    return found


def main() -> int:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__.splitlines()[0], formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--draft", type=Path, required=True)
    parser.add_argument("--tokens", type=int, default=300)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--prompts", default=PROMPTS)
    parser.add_argument("--kinds", default="useless,large,starved")
    parser.add_argument("--json", action="store_true")
    options = parser.parse_args()
    prompts = choose(load(), options.prompts)
    results: dict[str, dict[str, list[float]]] = {}
    with tempfile.TemporaryDirectory() as folder:
        for kind in options.kinds.split(","):
            draft = options.draft
            if kind == "useless":
                draft = Path(folder) / "useless.gguf"
                scramble(options.draft, draft)
            elif kind == "large":
                draft = options.model
            print(f"{kind}: {draft.name}", file=sys.stderr)
            results[kind] = measure(options.model, draft, prompts, options, kind == "starved")
    medians = {kind: {p: median(r) for p, r in by.items() if r} for kind, by in results.items()}
    if options.json:
        print(json.dumps(results, indent=1))
    else:
        print(f"| draft | {' | '.join(prompt.id for prompt in prompts)} |")
        print(f"|---|{'---:|' * len(prompts)}")
        for kind, by in medians.items():
            cells = [f"{by[p.id]:.3f}" if p.id in by else "–" for p in prompts]
            print(f"| {kind} | {' | '.join(cells)} |")
    return int(any(ratio < FLOOR for by in medians.values() for ratio in by.values()))


if __name__ == "__main__":
    sys.exit(main())
