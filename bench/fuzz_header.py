"""Damaged and hostile GGUF headers: the reader, the vocabulary check and the memory plan must not
hang, crash or grow, whatever the bytes are.

    python -m bench.fuzz_header [--n 100000] [--seed 1] [--start 0] [--seconds 600]

Case ``i`` of a seed is always the same input, so a run can be continued with --start, and one case
repeated with --start I --n 1. The exit code is 1 when a case fails.
"""

from __future__ import annotations

import argparse
import random
import struct
import sys
import time
import traceback
from collections import Counter

from localspec.budget import DeviceMemory
from localspec.errors import ModelFileError
from localspec.gguf import NeedMore, parse_header
from localspec.header import Header
from localspec.memory import Settings, Shape, plan_memory, repacked_types
from localspec.vocab import compare

MAX_SECONDS = 1.0
MAX_GROWTH = 50_000_000
CPU = DeviceMemory("CPU", "cpu", 1 << 40, "fuzz")
TYPES = repacked_types(["avx2"])
_INTERESTING = [0, 1, 2, 7, 8, 9, 12, 13, 255, 256, 65535, 1 << 20, 1 << 31, 1 << 32, 1 << 62]
_INTERESTING += [(1 << 32) - 1, (1 << 63) - 1, 1 << 63, (1 << 64) - 1, (1 << 64) - 9]
_NAMES = [b"general.alignment", b"llama.block_count", b"tokenizer.ggml.tokens", b"split.count"]


def _text(value: bytes) -> bytes:
    return struct.pack("<Q", len(value)) + value


def _number(key: str, value: int) -> bytes:
    return _text(key.encode()) + struct.pack("<II", 4, value)


def _string(key: str, value: bytes) -> bytes:
    return _text(key.encode()) + struct.pack("<I", 8) + _text(value)


def _array(key: str, kind: int, count: int, content: bytes) -> bytes:
    return _text(key.encode()) + struct.pack("<IIQ", 9, kind, count) + content


def seeds() -> list[bytes]:
    """Good headers of different make: dense, sliding window, hybrid with experts."""
    result = []
    for name, extra in (
        ("llama", {}),
        ("gemma3", {"attention.sliding_window": 512}),
        ("qwen35", {"ssm.conv_kernel": 4, "ssm.inner_size": 64, "ssm.state_size": 16}),
        ("qwen3moe", {"expert_count": 8, "expert_used_count": 2, "nextn_predict_layers": 1}),
    ):
        numbers = {
            "block_count": 4,
            "context_length": 4096,
            "embedding_length": 64,
            "attention.head_count": 4,
            "attention.head_count_kv": 2,
            "feed_forward_length": 128,
        } | extra
        words = b"".join(_text(b"token%d" % n) for n in range(40))
        settings = [
            _string("general.architecture", name.encode()),
            *(_number(f"{name}.{key}", value) for key, value in numbers.items()),
            _string("tokenizer.ggml.model", b"gpt2"),
            _array("tokenizer.ggml.tokens", 8, 40, words),
            _array("tokenizer.ggml.token_type", 5, 40, struct.pack("<40i", *[1] * 35, *[5] * 5)),
            _array("tokenizer.ggml.merges", 8, 3, _text(b"a b") * 3),
            _array(f"{name}.attention.sliding_window_pattern", 7, 4, b"\1\0\1\0"),
            _number("tokenizer.ggml.eos_token_id", 3),
        ]
        tensors, offset = [], 0
        for layer in range(4):
            tensors.append(
                _text(b"blk.%d.attn_q.weight" % layer) + struct.pack("<IqqIQ", 2, 64, 64, 2, offset)
            )
            offset += 64 * 64 // 32 * 18
        head = b"GGUF" + struct.pack("<IQQ", 3, len(tensors), len(settings))
        result.append(head + b"".join(settings) + b"".join(tensors) + b"\0" * 64)
    return result


def mutated(data: bytes, rng: random.Random, others: list[bytes]) -> bytes:
    """``data`` after a few random changes."""
    changed = bytearray(data)
    for _ in range(rng.choice((1, 1, 1, 2, 3, 8))):
        if not changed:
            break
        place, kind = rng.randrange(len(changed)), rng.randrange(9)
        if kind == 0:
            changed[place] ^= 1 << rng.randrange(8)
        elif kind == 1:
            changed[place] = rng.randrange(256)
        elif kind == 2:
            changed[place : place + 8] = struct.pack("<Q", rng.choice(_INTERESTING))
        elif kind == 3:
            changed[place : place + 4] = struct.pack("<I", rng.choice(_INTERESTING) & 0xFFFFFFFF)
        elif kind == 4:
            del changed[place:]
        elif kind == 5:
            del changed[place : place + rng.randrange(1, 40)]
        elif kind == 6:
            changed[place:place] = changed[place : place + rng.randrange(1, 200)]
        elif kind == 7:
            other = rng.choice(others)
            changed[place:] = other[rng.randrange(len(other)) :]
        else:
            changed[place:place] = _text(rng.choice(_NAMES))
    return bytes(changed)


def run_case(data: bytes, file_bytes: int | None, reference: Header) -> str:
    """Do all that is done with a header before a model is loaded; what it ended with."""
    try:
        header = parse_header(data, file_bytes, name="fuzz")
    except NeedMore:
        return "asked for more"
    except ModelFileError as error:
        if "\n" in error.message or len(error.message) > 500:
            raise AssertionError(f"not one short sentence: {error.message!r}") from error
        return "refused"
    compare(reference, header)
    compare(header, reference)
    shape = Shape.of(header, TYPES)
    parts = plan_memory(shape, Settings(4096, n_gpu_layers=3), [CPU], shape, Settings(2048))
    if any(part.n_bytes < 0 for part in parts):
        raise AssertionError("a part of the plan is negative")
    return "read"


def case(number: int, seed: int, good: list[bytes]) -> tuple[bytes, int | None]:
    """Input ``number`` of ``seed``: the bytes, and the file's length as it would be known."""
    rng = random.Random(f"{seed}:{number}")
    data = mutated(rng.choice(good), rng, good)
    return data, rng.choice([len(data), None, 1 << 40, 1 << 40])


def resident_peak() -> int:
    """The most memory this process has had, in bytes; 0 where the system does not say."""
    try:
        import resource  # noqa: PLC0415 - not on Windows
    except ImportError:
        return 0
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (
        1 if sys.platform == "darwin" else 1024
    )


def main() -> int:
    """Run cases until their number or the time is up."""
    parser = argparse.ArgumentParser(description="Damaged and hostile GGUF headers.")
    parser.add_argument("--n", type=int, default=100_000)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--start", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=600.0)
    args = parser.parse_args()
    good = seeds()
    reference = parse_header(good[0])
    outcomes: Counter[str] = Counter()
    before, started, slowest = resident_peak(), time.monotonic(), (0.0, 0)
    number = args.start
    while number < args.start + args.n and time.monotonic() - started < args.seconds:
        data, file_bytes = case(number, args.seed, good)
        begun = time.process_time()  # not the clock: the machine may be busy with other things
        try:
            outcomes[run_case(data, file_bytes, reference)] += 1
        except Exception:  # noqa: BLE001 - what a fuzzer is for
            traceback.print_exc()
            print(f"case {number} of seed {args.seed} failed")
            return 1
        slowest = max(slowest, (time.process_time() - begun, number))
        number += 1
    growth = resident_peak() - before
    print(
        f"{number - args.start} inputs of seed {args.seed} in {time.monotonic() - started:.0f} s: "
        + ", ".join(f"{count} {what}" for what, count in sorted(outcomes.items()))
    )
    print(f"slowest: case {slowest[1]}, {slowest[0] * 1000:.1f} ms of CPU")
    print(f"memory grew by {growth / 1e6:.1f} MB")
    if number < args.start + args.n:
        print(f"the time is up; continue with --start {number}")
    return 0 if slowest[0] < MAX_SECONDS and growth < MAX_GROWTH else 1


if __name__ == "__main__":
    raise SystemExit(main())
