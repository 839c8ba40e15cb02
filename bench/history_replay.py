"""The twelve tasks of ``bench.history_tasks``, replayed from recorded answers on cost curves."""

from __future__ import annotations

import json
from collections.abc import Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import geometric_mean

import numpy as np
import numpy.typing as npt
import yaml

from bench.replay import curves
from bench.replay.curves import Curve
from bench.replay.simulate import Clock
from bench.replay.traces import load as load_traces
from localspec.history import History
from localspec.spec.costs import Learned
from localspec.spec.drafter import MAX_WIDTH, Row
from localspec.spec.engine import Engine, Request
from localspec.spec.events import Step
from localspec.spec.fakes import FakeSampler, FakeVocabulary
from localspec.spec.history_drafter import HistoryDrafter
from localspec.spec.lookup import Lookup
from localspec.spec.pacer import AutoPacer

DATA = Path(__file__).parent / "data"
ANSWERS = DATA / "history_answers.json"
SEEDS = range(3)
MACHINES = (curves.LAPTOP, curves.CPU_Q8, curves.CPU_Q4)


@dataclass(frozen=True)
class Task:
    """One prompt of ``history_prompts.yaml``."""

    id: str
    session: int
    text: str


@dataclass(frozen=True)
class Answer:
    """A recorded answer: tokens of the prompt and of what the target said."""

    id: str
    session: int
    prompt: list[int]
    out: list[int]


def tasks() -> list[Task]:
    """The twelve prompts, in order."""
    found = []
    for entry in yaml.safe_load((DATA / "history_prompts.yaml").read_text("utf-8"))["prompts"]:
        text = entry["prompt"]
        if "document" in entry:
            text = f"{entry['document']}\n{text}"
        found.append(Task(entry["id"], entry["session"], text))
    return found


def load_answers() -> list[Answer]:
    """What ``record`` wrote."""
    recorded = json.loads(ANSWERS.read_text("utf-8"))["answers"]
    return [Answer(a["id"], a["session"], a["prompt"], a["out"]) for a in recorded]


class CurveDecoder:
    """A ``Decoder`` that says what was recorded and takes the time that a curve says."""

    def __init__(self, text: Sequence[int], n_vocab: int, curve: Curve, clock: Clock) -> None:
        self.n_ctx, self.n_vocab = len(text) + 64, n_vocab
        self.seen_s = 0.0
        self._text, self._curve, self._clock = text, curve, clock
        self._tokens: list[int] = []
        self._row: npt.NDArray[np.float32] = np.zeros(n_vocab, np.float32)
        self._n_rows = 0

    @property
    def tokens(self) -> Sequence[int]:
        """What was decoded."""
        return self._tokens

    def decode(self, tokens: Sequence[int], n_rows: int) -> None:
        """Time passes."""
        self.seen_s += self._clock.spend(self._curve.target(len(tokens)))
        self._tokens.extend(tokens)
        self._n_rows = n_rows

    def row(self, index: int) -> Row:
        """The recorded token; it depends on the position only, which is enough where a draft is
        rejected at its first wrong token."""
        at = len(self._tokens) - self._n_rows + index + 1
        self._row.fill(0.0)
        self._row[self._text[min(at, len(self._text) - 1)]] = 1.0
        return self._row

    def rollback(self, n_keep: int) -> bool:
        """Always possible."""
        del self._tokens[n_keep:]
        return True

    def clear(self) -> None:
        """Forget everything."""
        self._tokens.clear()


def replayed(
    answer: Answer, history: History, curve: Curve, clock: Clock, pacer: AutoPacer, n_vocab: int
) -> float:
    """Speed over plain decoding of one answer on ``curve``, without a draft model."""
    text = [*answer.prompt, *answer.out]
    target = CurveDecoder(text, n_vocab, curve, clock)
    engine = Engine(
        target,
        FakeVocabulary([b"x"] * n_vocab),
        [Lookup(), HistoryDrafter(history, history.calibration, n_vocab)],
        pacer,
        clock=lambda: target.seen_s,
    )
    request = Request(
        answer.prompt, FakeSampler(), np.random.default_rng(0), max_tokens=len(answer.out)
    )
    start, tokens = 0.0, list[int]()
    for event in engine.generate(request):
        if isinstance(event, Step):
            tokens += event.tokens
            if event.is_first:
                start = clock.true
    assert tokens == answer.out, "a draft changed the answer"
    return (len(answer.out) - 1) / (clock.true - start)


def _compact(answers: Sequence[Answer]) -> tuple[list[Answer], int]:
    """The same with token ids 0 .. n - 1, so that a row of logits is short."""
    ids = sorted({token for a in answers for token in [*a.prompt, *a.out]})
    number = {token: i for i, token in enumerate(ids)}
    return [
        replace(a, prompt=[number[t] for t in a.prompt], out=[number[t] for t in a.out])
        for a in answers
    ], len(ids)


def costs_known(earlier: Sequence[Answer], curve: Curve, n_vocab: int) -> Learned:
    """What the first session has taught about the machine; it is kept from run to run, with an
    index and without."""
    clock, pacer = Clock(99), AutoPacer({})
    with closing(History.in_memory()) as history:
        for answer in earlier:
            replayed(answer, history, curve, clock, pacer, n_vocab)
    return pacer.learned()


def speeds(
    answers: Sequence[Answer],
    earlier: Sequence[Answer],
    curve: Curve,
    known: Learned,
    n_vocab: int,
) -> list[float]:
    """Speed over plain of ``answers``, given one after the other, after ``earlier`` ones; the mean
    over ``SEEDS``."""
    sums = [0.0] * len(answers)
    for seed in SEEDS:
        with closing(History.in_memory()) as history:
            for answer in earlier:
                _replay_into(history, answer)
            for number, answer in enumerate(answers):
                clock, pacer = Clock(seed * 100 + number), AutoPacer({}, known)
                sums[number] += replayed(answer, history, curve, clock, pacer, n_vocab)
                history.remember([*answer.prompt, *answer.out], None)
    return [total / len(SEEDS) for total in sums]


def _replay_into(history: History, answer: Answer) -> None:
    """Learn an answer as a session does: calibration first, then the text."""
    drafter = HistoryDrafter(history, history.calibration, 1 << 31)
    drafter.begin(answer.prompt)
    drafter.commit(answer.out)
    history.remember([*answer.prompt, *answer.out], None)


def compare(
    answers: Sequence[Answer], machines: Sequence[Curve] = MACHINES
) -> dict[str, dict[str, dict[str, float]]]:
    """Curve -> suite -> numbers: speed over plain of the second session with a fresh index and with
    what the first session left, and of unrelated prompts in the same way."""
    unrelated = [Answer(t.name, 0, t.prompt, t.out) for t in load_traces() if t.mode == "g"]
    compacted, n_vocab = _compact([*answers, *unrelated])
    first = [a for a in compacted if a.session == 1]
    second = [a for a in compacted if a.session == 2]
    others = [a for a in compacted if a.session == 0]
    found = {}
    for curve in machines:
        known = costs_known(first, curve, n_vocab)

        def each(
            some: Sequence[Answer],
            earlier: Sequence[Answer],
            curve: Curve = curve,
            known: Learned = known,
        ) -> list[float]:
            return [speeds([one], earlier, curve, known, n_vocab)[0] for one in some]

        in_a_row = [speeds(second, earlier, curve, known, n_vocab) for earlier in ([], first)]
        found[curve.name] = {
            "second session": _numbers(each(second, []), each(second, first)),
            "second session, in a row": _numbers(*in_a_row),
            "unrelated": _numbers(each(others, []), each(others, [*first, *second])),
        }
    return found


def _numbers(fresh: Sequence[float], with_index: Sequence[float]) -> dict[str, float]:
    gains = [b / a for a, b in zip(fresh, with_index, strict=True)]
    return {
        "fresh": geometric_mean(fresh),
        "with_index": geometric_mean(with_index),
        "gain": geometric_mean(gains),
        "least": min(gains),
    }


# -- what there is to gain, and whether chances come true -----------------------------------------

SHARED_GRAM = 8
"""Tokens count as shared where so many in a row are in an earlier text, too."""
BINS = (0.2, 0.4, 0.6, 0.8, 0.9, 1.0)


def shared(answer: Answer, earlier: Sequence[Answer]) -> float:
    """Share of the tokens of an answer that stand in a run of ``SHARED_GRAM`` which is in an
    earlier prompt or answer."""
    known = {
        tuple(text[i : i + SHARED_GRAM])
        for text in ([*one.prompt, *one.out] for one in earlier)
        for i in range(len(text) - SHARED_GRAM + 1)
    }
    covered = set[int]()
    for i in range(len(answer.out) - SHARED_GRAM + 1):
        if tuple(answer.out[i : i + SHARED_GRAM]) in known:
            covered |= set(range(i, i + SHARED_GRAM))
    return len(covered) / max(1, len(answer.out))


def foresight(answer: Answer, earlier: Sequence[Answer], curve: Curve) -> float:
    """Speed over plain of one that always knows where the next tokens stand, in the text so far or
    in earlier ones, and how many of them to verify: no copying drafter can do better."""
    texts = [[*one.prompt, *one.out] for one in earlier]
    own = [*answer.prompt, *answer.out]
    at, cost = 1, 0.0
    while at < len(answer.out):
        coming = answer.out[at : at + MAX_WIDTH - 1]
        so_far = own[: len(answer.prompt) + at]
        n = max(_longest(coming, text) for text in [so_far, *texts])
        n = min(n, len(answer.out) - at - 1)
        n = min(range(n + 1), key=lambda n: curve.target(n + 1) / (n + 1))
        cost += curve.target(n + 1)
        at += n + 1
    return (len(answer.out) - 1) / cost


def _longest(coming: Sequence[int], text: Sequence[int]) -> int:
    best = 0
    for start, token in enumerate(text):
        if token == coming[0]:
            n = 1
            while n < len(coming) and start + n < len(text) and text[start + n] == coming[n]:
                n += 1
            best = max(best, n)
    return best


def calibrated(
    answers: Sequence[Answer], earlier: Sequence[Answer]
) -> list[tuple[float, float, float, int]]:
    """(upper end of the bin, mean chance that was promised, share that was right, number) of the
    first drafted token, at every token of ``answers`` where the history drafter offers one."""
    seen: list[tuple[float, bool]] = []
    with closing(History.in_memory()) as history:
        for answer in earlier:
            _replay_into(history, answer)
        for answer in answers:
            drafter = HistoryDrafter(history, history.calibration, 1 << 31)
            drafter.begin(answer.prompt)
            drafter.commit(answer.out[:1])
            for token in answer.out[1:]:
                offer = drafter.offer()
                if offer is not None:
                    draft = drafter.propose(1, lambda _n, _c: True, lambda: False)
                    seen.append((offer.chances[0], draft.tokens == [token]))
                drafter.commit([token])
            history.remember([*answer.prompt, *answer.out], None)
    found, low = [], 0.0
    for high in BINS:
        some = [(chance, hit) for chance, hit in seen if low < chance <= high]
        if some:
            chances, hits = zip(*some, strict=True)
            found.append((high, sum(chances) / len(some), sum(hits) / len(some), len(some)))
        low = high
    return found
