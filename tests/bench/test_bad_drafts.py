"""The bench of bad drafts: its model is useless, its busy processes run when they should."""

from __future__ import annotations

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any, cast

import numpy as np
import psutil
import pytest

from bench.bad_drafts import scramble, starved
from localspec.gguf import read_header
from tests.helpers_gguf import write_tiny_llama


def test_scrambled_weights_are_the_same_blocks_elsewhere(tmp_path: Path) -> None:
    write_tiny_llama(tmp_path / "whole.gguf")
    scramble(tmp_path / "whole.gguf", tmp_path / "useless.gguf")
    before, after = (read_header(tmp_path / f"{name}.gguf") for name in ("whole", "useless"))
    assert before.tensors == after.tensors
    old, new = ((tmp_path / f"{name}.gguf").read_bytes() for name in ("whole", "useless"))
    assert old[: before.data_offset] == new[: before.data_offset]
    for tensor in before.tensors:
        start = before.data_offset + tensor.offset
        place = slice(start, start + tensor.n_bytes)
        if len(tensor.shape) < 2:
            assert old[place] == new[place]
            continue
        assert old[place] != new[place]
        blocks = [np.frombuffer(d[place], np.uint8).reshape(-1, 4).tolist() for d in (old, new)]
        assert sorted(blocks[0]) == sorted(blocks[1])


@pytest.mark.skipif(sys.platform == "win32", reason="Windows cannot pause a process by a signal")
def test_busy_processes_run_while_the_draft_decodes_and_end_afterwards() -> None:
    states: list[str] = []

    class Decoder:
        def decode(self, tokens: Sequence[int], n_rows: int) -> None:
            states.extend(child.status() for child in psutil.Process().children())

        def row(self, at: int) -> None:
            pass

    decoder = Decoder()
    before = len(psutil.Process().children())
    with starved(cast(Any, decoder), 2):
        assert len(psutil.Process().children()) == before + 2
        decoder.decode([1], 1)
    assert psutil.STATUS_STOPPED not in states
    assert len(psutil.Process().children()) == before
