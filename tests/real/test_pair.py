"""The default pair, for real: every mode says what plain decoding says, or differs where the
plain run's two best tokens were nearly equal."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import yaml

from localspec.chat import Message
from localspec.config import Config
from localspec.files import NoProgress
from localspec.opening import open_session
from localspec.session import Session
from localspec.spec.events import Finished, Step
from localspec.spec.sampling import Sampling

pytestmark = pytest.mark.real

GREEDY = Sampling(temperature=0.0, seed=1)
N_TOKENS = 64
NEAR_TIE = 0.5
"""Bound on the gap between the two best logits where a differing batch width may tip the scale."""

PROMPTS = yaml.safe_load(
    (Path(__file__).parents[2] / "bench" / "data" / "prompts.yaml").read_text(encoding="utf-8")
)
CHOSEN = [
    "code-lru", "edit-rename", "extract-json", "rewrite-proofread",
    "translate-ja", "qa-reasoning", "creative-poem", "shell-oneliners",
]  # fmt: skip


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    opened = open_session(Config(model="qwen2.5-coder-1.5b", n_ctx=2048), NoProgress())
    yield opened
    opened.close()


def answer(session: Session, text: str) -> tuple[list[int], Finished]:
    tokens: list[int] = []
    events = list(session.ask([Message("user", text)], GREEDY, max_tokens=N_TOKENS))
    for event in events:
        if isinstance(event, Step):
            tokens += event.tokens
    assert isinstance(events[-1], Finished)
    return tokens, events[-1]


def gap_at(session: Session, text: str, tokens: list[int], n: int) -> float:
    """Gap between the target's two best logits after ``n`` answer tokens, decoded one by one."""
    context = session.target_context
    prompt = session.tokenize(session.template.prompt_for([Message("user", text)]))
    context.clear()
    context.decode(prompt, 1)
    for token in tokens[:n]:
        context.decode([token], 1)
    best = np.sort(context.row(0))[-2:]
    context.clear()
    return float(best[1] - best[0])


@pytest.mark.parametrize("name", CHOSEN)
def test_greedy_text_is_plain_text_or_forks_at_a_near_tie(session: Session, name: str) -> None:
    text = next(prompt["prompt"] for prompt in PROMPTS if prompt["id"] == name)
    session.set_mode("off")
    plain, _ = answer(session, text)
    for mode in ("lookup", "draft"):
        session.set_mode(mode, 3)
        tokens, finished = answer(session, text)
        assert session.status.mode == mode
        if mode == "draft":
            assert finished.stats.n_accepted > 0
        if tokens == plain:
            continue
        first = next(i for i in range(min(len(plain), len(tokens))) if plain[i] != tokens[i])
        gap = gap_at(session, text, plain, first)
        print(f"{name}, {mode}: differs at token {first}, gap {gap:.3f}")
        assert gap < NEAR_TIE


def test_the_same_seed_gives_the_same_text(session: Session) -> None:
    session.set_mode("draft", 3)
    sampling = Sampling(temperature=0.8, seed=42)
    texts = []
    for _ in range(2):
        # Without what is left in the cache: a reused prompt prefix may round differently.
        session.target_context.clear()
        events = list(session.ask([Message("user", "Name a colour.")], sampling, max_tokens=24))
        texts.append("".join(e.text for e in events if isinstance(e, (Step, Finished))))
    assert texts[0] == texts[1]


def test_both_models_tokenize_the_prompt_alike(session: Session) -> None:
    """F22: the same ids on every path, no BOS where the model has none."""
    prompt = session.template.prompt_for([Message("user", "hi")])
    assert session._draft is not None
    one = session.tokenize(prompt)
    other = session._draft.model.tokenize(
        prompt.text, add_special=prompt.add_special, parse_special=True
    )
    assert one == other
    assert session.target_model.bos not in one
