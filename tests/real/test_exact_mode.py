"""--exact on real files: the probe tells exact settings from others, and texts are the same bit for
bit."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from localspec.__main__ import main
from localspec.chat import Message
from localspec.config import Config
from localspec.exact import EXACT, judge, plan_exact
from localspec.gguf import read_header
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.llama.probe import width_differences
from localspec.opening import open_session
from localspec.report import as_dict
from localspec.session import FIXED_LENGTH, MIROSTAT, Session
from localspec.spec.events import Finished, Step
from localspec.spec.sampling import Sampling

pytestmark = pytest.mark.real

# Short, so that only the check near the start runs: one beyond 256 tokens takes its time.
SETTINGS = ContextSettings(n_ctx=256, n_batch=128)


@pytest.fixture
def probe() -> Iterator[Callable[[Path, ContextSettings, bool], dict[int, float] | None]]:
    opened: list[Model | Context] = []

    def run(path: Path, settings: ContextSettings, repack: bool) -> dict[int, float] | None:
        model = Model(path, repack=repack)
        context = Context(model, settings)
        opened.extend([context, model])
        return width_differences(context, 7)

    yield run
    for part in opened:
        part.close()


def test_attention_without_flash_is_found_out(model_file, probe) -> None:  # type: ignore[no-untyped-def]
    path = model_file("smollm2-135m")
    found = judge(probe(path, replace(SETTINGS, flash_attn="off"), True))
    assert not found.usable
    assert "rounding (max difference" in found.text
    assert judge(probe(path, replace(SETTINGS, flash_attn="on"), True)).text == EXACT


def test_k_quants_are_exact_only_when_not_repacked(model_file, probe) -> None:  # type: ignore[no-untyped-def]
    path = model_file("gemma-3-270m")
    plan = plan_exact(read_header(path), SETTINGS)
    assert not plan.repack
    found = judge(probe(path, plan.settings, plan.repack))
    assert (found.text, found.max_width) == (EXACT, plan.max_width)


def test_several_threads_get_a_cache_that_is_not_split(model_file) -> None:  # type: ignore[no-untyped-def]
    header = read_header(model_file("smollm2-135m"))
    one, two = (plan_exact(header, replace(SETTINGS, n_threads=n)) for n in (1, 2))
    assert (one.settings.type_k, two.settings.type_k, two.settings.type_v) == (
        "f16",
        "bf16",
        "bf16",
    )
    assert one.settings.flash_attn == two.settings.flash_attn == "on"
    kept = plan_exact(header, replace(SETTINGS, n_threads=2, type_k="q8_0", type_v="q8_0"))
    assert kept.settings.type_k == "q8_0"


@pytest.fixture(scope="module")
def session(model_file) -> Iterator[Session]:  # type: ignore[no-untyped-def]
    path = str(model_file("smollm2-135m"))
    config = Config(model=path, draft=path, exact=True, threads=1, n_ctx=512, history=False)
    opened = open_session(config)
    yield opened
    opened.close()


def answer(session: Session, prompt: str, sampling: Sampling) -> tuple[list[int], Finished]:
    events = list(session.ask([Message("user", prompt)], sampling, max_tokens=40))
    tokens = [token for event in events if isinstance(event, Step) for token in event.tokens]
    assert isinstance(events[-1], Finished)
    return tokens, events[-1]


def test_exact_mode_gives_plain_text_in_every_mode(session: Session) -> None:
    assert session.status.exactness == EXACT
    greedy = Sampling(temperature=0.0, seed=1)
    prompt = "Repeat exactly: one two three four five, one two three four five, one two three."
    session.set_mode("off")
    plain, finished = answer(session, prompt, greedy)
    assert as_dict(finished, "", session.status, 1)["exactness"] == EXACT
    n_verified = 0
    for mode in ("lookup", "draft", "auto", "draft"):
        session.set_mode(mode, FIXED_LENGTH[mode])  # type: ignore[arg-type]
        tokens, finished = answer(session, prompt, greedy)
        n_verified += finished.stats.n_verified
        assert tokens == plain, mode
        assert finished.stats.n_reused == 0
    assert n_verified > 8


def test_a_seed_gives_plain_text_in_every_mode(session: Session) -> None:
    prompt = "Tell me a long story about a fox, a dog, and the fox again."
    sampling = Sampling(temperature=0.8, seed=5)
    session.set_mode("off")
    plain, _ = answer(session, prompt, sampling)
    n_verified = 0
    for mode in ("lookup", "draft", "auto"):
        session.set_mode(mode, FIXED_LENGTH[mode])  # type: ignore[index, arg-type]
        tokens, finished = answer(session, prompt, sampling)
        n_verified += finished.stats.n_verified
        assert tokens == plain, mode
    assert n_verified > 8


def test_mirostat_is_not_drafted_for_and_says_so(session: Session) -> None:
    session.set_mode("draft", 4)
    before = session.status
    steady = Sampling(temperature=0.8, seed=3, mirostat=2)
    texts = [answer(session, "Tell me a story.", steady) for _ in range(2)]
    assert texts[0][0] == texts[1][0]
    assert texts[0][1].stats.n_drafted == 0
    assert (session.status.mode, session.status.reason) == ("off", MIROSTAT)
    _, finished = answer(session, "Tell me a story.", Sampling(temperature=0.8, seed=3))
    assert finished.stats.n_drafted > 0
    assert session.status == before


def test_an_answer_that_is_cut_is_not_called_complete(
    model_file,  # type: ignore[no-untyped-def]
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO()))
    path = str(model_file("smollm2-135m"))
    options = ["-m", path, "--mode", "lookup", "-t", "1", "-c", "256", "--temp", "0", "--json"]
    schema = '{"type": "array", "items": {"enum": ["red", "green"]}, "minItems": 4, "maxItems": 4}'
    for limit, complete in (("6", False), ("60", True)):
        assert main(["run", *options, "-j", schema, "-n", limit, "Name colours."]) == 0
        captured = capsys.readouterr()
        value = json.loads(captured.out)
        assert value["grammar_complete"] is complete
        assert ("not complete" in captured.err) is not complete
    assert len(json.loads(value["text"])) == 4
