"""The reader, the vocabulary check and the memory plan on the real default pair."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest

from bench import memory_table
from localspec import catalog
from localspec.gguf import read_header
from localspec.memory import Shape
from localspec.store import Store
from localspec.vocab import compare

pytestmark = pytest.mark.real


@pytest.fixture(scope="module")
def pair():
    """Paths of the target and the draft, fetched if they are not here."""
    found = catalog.load().pair("qwen2.5-coder-1.5b")
    return Store().fetch(list(found.files))


def test_the_default_pair_has_one_vocabulary(pair):
    target, draft = (read_header(path) for path in pair)
    match = compare(target, draft)
    assert match.verdict == "same"
    assert match.n_target == 151936
    # Rows behind the last real token are padding and must not be drafted.
    assert match.never_propose.min() == 151665
    assert len(match.never_propose) == 271


def test_headers_have_the_numbers_that_llama_cpp_prints(pair):
    target, draft = (read_header(path) for path in pair)
    assert (target.n_layer, target.n_embd, target.n_head[0], target.n_head_kv[0]) == (
        28, 1536, 12, 2,
    )  # fmt: skip
    assert (draft.n_layer, draft.n_embd, draft.n_head[0], draft.n_head_kv[0]) == (24, 896, 14, 2)
    assert target.special("eos") == draft.special("eos") == 151645
    assert round(target.weight_bytes / 2**20, 2) == 1059.89  # "CPU_Mapped model buffer size"
    repacked = Shape.of(target, {"Q4_K", "Q4_0"})
    assert round(sum(layer.repacked_bytes for layer in repacked.layers) / 2**20, 2) == 596.53


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc for the real use")
def test_the_plan_of_the_draft_is_what_a_process_uses(pair):
    case = memory_table.Case(pair[1], None, 2048, "q8_0")
    plan = memory_table.planned(case, memory_table.features())
    real = memory_table.measured(case, n_threads=2)
    error = sum(plan.values()) / real["whole process"] - 1
    assert memory_table.TOO_LOW <= error <= memory_table.TOO_HIGH
    assert plan["KV cache"] == real["KV cache"]


def test_check_loads_no_weights(pair):
    """The command reads two headers: no native library, and an answer for programs."""
    code = (
        "import sys\n"
        "from localspec.__main__ import main\n"
        f"code = main(['check', {str(pair[0])!r}, {str(pair[1])!r}, '--json'])\n"
        "assert 'llama_cpp' not in sys.modules\n"
        "sys.exit(code)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert json.loads(done.stdout)["verdict"] == "same"
