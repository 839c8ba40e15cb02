"""The llama.cpp wrapper on a real file: logs, tokens, rows, cancelling, misuse."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from localspec.errors import DecodeError, ModelLoadError
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.spec.drafter import MAX_WIDTH, Interrupted

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def model(model_file: Callable[[str], Path]) -> Iterator[Model]:
    loaded = Model(model_file("smollm2-135m"))
    yield loaded
    loaded.close()


@pytest.fixture
def context(model: Model) -> Iterator[Context]:
    made = Context(model, ContextSettings(n_ctx=512, n_batch=256, n_threads=1))
    yield made
    made.close()


def test_nothing_native_reaches_the_terminal_and_the_log_has_it(
    model_file: Callable[[str], Path], own_home: Path
) -> None:
    """F33: two models loaded, an error, and stdout and stderr stay ours."""
    code = """
import sys
from pathlib import Path
from localspec.errors import ModelLoadError
from localspec.llama.model import Model
from localspec.llama.context import Context, ContextSettings
path = Path(sys.argv[1])
one, two = Model(path), Model(path)
Context(one, ContextSettings(n_ctx=64, n_threads=1)).decode([1, 2], 1)
broken = path.parent / "x.gguf"
try:
    Model(Path(sys.argv[2]))
except ModelLoadError as error:
    print("refused:", error.message)
print("out"); print("err", file=sys.stderr)
"""
    bad = own_home / "bad.gguf"
    bad.write_bytes(b"GGUF" + b"\\0" * 60)
    found = subprocess.run(
        [sys.executable, "-c", code, str(model_file("smollm2-135m")), str(bad)],
        capture_output=True, text=True, check=True, env=dict(os.environ), timeout=120,
    )  # fmt: skip
    lines = found.stdout.splitlines()
    assert lines[0].startswith("refused: llama.cpp could not load")
    assert lines[1:] == ["out"]
    assert found.stderr == "err\n"
    log = (own_home / "log" / "localspec.log").read_text(encoding="utf-8")
    assert "llama_model_loader" in log


def test_a_refused_file_says_why(tmp_path: Path) -> None:
    bad = tmp_path / "bad.gguf"
    bad.write_bytes(b"GGUF\x03\0\0\0" + b"\0" * 16)
    with pytest.raises(ModelLoadError, match=r"could not load .*bad\.gguf: "):
        Model(bad)


def test_tokens_and_pieces_are_the_text(model: Model) -> None:
    text = "Füße, 日本 and 🧑‍🚀!"
    tokens = model.tokenize(text, add_special=False, parse_special=True)
    assert b"".join(model.piece(token) for token in tokens).decode() == text


def test_control_tokens_are_not_text_and_end_answers(model: Model) -> None:
    (end,) = model.tokenize("<|im_end|>", add_special=False, parse_special=True)
    assert model.piece(end) == b""
    assert model.is_end(end)
    assert len(model.tokenize("<|im_end|>", add_special=False, parse_special=False)) > 1


def test_rows_are_those_of_single_decodes(model: Model, context: Context) -> None:
    tokens = model.tokenize("one two three four five", add_special=False, parse_special=False)
    context.decode(tokens[:2], 1)
    context.decode(tokens[2:], len(tokens) - 2)
    wide = [context.row(i).copy() for i in range(len(tokens) - 2)]
    context.clear()
    context.decode(tokens[:2], 1)
    for index, token in enumerate(tokens[2:]):
        context.decode([token], 1)
        row = context.row(0)
        assert row.shape == (model.n_vocab,)
        assert np.abs(row - wide[index]).max() < 1.0
        assert int(row.argmax()) == int(wide[index].argmax())


def test_rolling_back_and_going_on_gives_the_same_logits(model: Model, context: Context) -> None:
    tokens = model.tokenize("the quick brown fox jumps", add_special=False, parse_special=False)
    context.decode(tokens, 1)
    wanted = context.row(0).copy()
    context.decode([5, 6, 7], 3)
    assert context.rollback(len(tokens) - 1)
    context.decode(tokens[-1:], 1)
    assert np.abs(context.row(0) - wanted).max() < 0.5
    assert list(context.tokens) == tokens


def test_misuse_raises_instead_of_ending_the_process(model: Model, context: Context) -> None:
    for tokens, n_rows in [
        ([], 0),
        ([1] * 257, 1),
        ([1, 2], 3),
        ([1] * (MAX_WIDTH + 1), MAX_WIDTH + 1),
        ([-1], 1),
        ([model.n_vocab], 1),
    ]:
        with pytest.raises(DecodeError):
            context.decode(tokens, n_rows)
    context.decode([1, 2, 3], 1)
    with pytest.raises(DecodeError):
        context.row(1)
    assert not context.rollback(9)
    for _ in range(3):
        context.decode([1] * 169, 1) if len(context.tokens) < 510 else None
    with pytest.raises(DecodeError, match="do not fit a context of 512"):
        context.decode([1] * 9, 1)


def test_a_long_decode_stops_when_asked_and_the_context_goes_on(
    model: Model, context: Context
) -> None:
    """F34: within one micro-batch, and what is in the cache is known."""
    asked = 0

    def cancelled() -> bool:
        nonlocal asked
        asked += 1
        return asked > 3

    context.watch(cancelled)
    with pytest.raises(Interrupted):
        context.decode([2] * 200, 1)
    context.watch(None)
    assert len(context.tokens) < 200
    context.clear()
    context.decode([2, 3], 1)
    assert list(context.tokens) == [2, 3]


def test_the_compute_buffer_does_not_grow_with_context_times_vocabulary(
    model: Model, own_home: Path
) -> None:
    """F16: logits for the rows that are verified, not for every position."""
    made = Context(model, ContextSettings(n_ctx=8192, n_batch=512, n_threads=1))
    made.close()
    assert made._max_rows == MAX_WIDTH
