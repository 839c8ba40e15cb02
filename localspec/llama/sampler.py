"""llama.cpp's own samplers, asked for a distribution instead of a token.

The links are the native ones, in llama.cpp's order, without the last (the draw). What is left after
truncation is a short list of candidates; its softmax is the distribution p that verification needs.
The draw itself is ours, because the rejection rule needs p.

p is defined so: penalties, DRY and logit bias change single logits; tokens that the grammar forbids
are taken out; then top-n-sigma, top-k, typical, top-p, min-p, XTC and temperature see what is left.
Candidates with probability 0 are dropped between the links: llama.cpp's typical sampler would make
NaN of them, and its dynamic temperature would count them. Where top-k comes first, only the best
candidates are handed over.
"""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

import llama_cpp
import numpy as np
import numpy.typing as npt

from localspec.errors import DecodeError
from localspec.llama import links
from localspec.llama.model import Model
from localspec.spec.drafter import Dist, Row
from localspec.spec.race import Race
from localspec.spec.sampling import Sampling

_CANDIDATE = np.dtype([("id", np.int32), ("logit", np.float32), ("p", np.float32)])
Candidates = npt.NDArray[Any]
"""A structured array [k] of ``id``, ``logit``, ``p``: llama_token_data."""

N_BEST = 128
"""So many of the best candidates are shown to a grammar before the whole vocabulary is."""
_GROUP = 128
"""So many logits make a group, of which only the best is looked at to bound the ``n``th best."""
_MARGIN = 1e-5  # llama.cpp adds probabilities in single precision


class Chain:
    """The ``Sampler`` of ``localspec.spec`` over native samplers.

    ``prompt``: the tokens before the answer; penalties look back into them, a grammar does not.
    ``native_seed``: for the samplers that draw themselves (XTC, mirostat), where the settings name
    none. Raises UsageError for a grammar that llama.cpp cannot read.
    """

    def __init__(
        self, model: Model, settings: Sampling, prompt: Sequence[int], native_seed: int = 0
    ) -> None:
        self.settings = settings
        self.greedy = settings.temperature <= 0
        self.seeded = settings.seed is not None
        self._race = None if settings.seed is None else Race(settings.seed)
        self._place = 0
        self._model = model
        self._scratch = _Scratch(model.n_vocab)
        self._grammar: Any = None
        self._sigma: Any = None
        self._choice: Any = None
        self._history = links.history(model, settings, len(prompt))
        self._mirostat = settings.mirostat > 0 and not self.greedy
        # Only these ids can be changed by the history links; the others need not be shown to them.
        self._touched = set(settings.logit_bias)
        try:
            if settings.grammar:
                self._grammar = links.grammar(model, settings.grammar)
            if not self.greedy:
                self._sigma = links.sigma(settings)
                self._choice = links.choice(model, settings, native_seed)
        except BaseException:
            self.close()
            raise
        if self._history is not None:
            for token in prompt[-links.look_back(settings, len(prompt)) :]:
                self._remember(token)

    # -- Sampler ------------------------------------------------------------------------------

    def best(self, row: Row) -> int:
        row = self._weighed(row)
        token = int(row.argmax())
        if self._grammar is None or self._allows(token):
            return token
        allowed = self._permitted(self._scratch.best(row, N_BEST))
        if not len(allowed):
            allowed = self._permitted(self._scratch.fill(row))
        if not len(allowed):
            raise DecodeError("the grammar allows none of this model's tokens here")
        return int(allowed["id"][int(allowed["logit"].argmax())])

    def distribution(self, row: Row) -> Dist:
        row = self._weighed(row)
        left = self._allowed(row) if self._grammar is not None else self._kept(row)
        if self._sigma is not None:
            left = _possible(self._scratch.apply(self._sigma, left)[0])
        left, selected = self._scratch.apply(self._choice, left)
        if self._mirostat:
            left = left[selected : selected + 1]
        if len(left) == 1:  # as often as not, where the model is sure
            return Dist(left["id"].copy(), np.ones(1))
        logits = left["logit"].astype(np.float64)
        probs = np.exp(logits - logits.max())
        probs /= probs.sum()
        return Dist(left["id"].copy(), probs)

    def draw(self, dist: Dist) -> int:
        if self._race is None:
            raise ValueError("nothing to draw with: these settings name no seed")
        return self._race.winner(dist, self._place)

    def accept(self, token: int) -> None:
        self._place += 1
        if self._history is not None:
            self._remember(token)
        if self._grammar is not None:
            # llama.cpp ends the process when a grammar is told a token that it forbids.
            if not self._allows(token):
                raise DecodeError(f"token {token} does not fit the grammar")
            llama_cpp.llama_sampler_accept(self._grammar, token)

    def fork(self) -> Chain:
        copy = Chain.__new__(Chain)
        copy.settings, copy.greedy, copy._mirostat = self.settings, self.greedy, self._mirostat
        copy.seeded, copy._race, copy._place = self.seeded, self._race, self._place
        copy._model, copy._scratch = self._model, self._scratch
        copy._touched = set(self._touched)
        for name in ("_history", "_grammar", "_sigma", "_choice"):
            handle = getattr(self, name)
            clone = llama_cpp.llama_sampler_clone(handle) if handle is not None else None
            setattr(copy, name, clone)
        return copy

    def close(self) -> None:
        """Free the native samplers. Safe to repeat."""
        for name in ("_history", "_grammar", "_sigma", "_choice"):
            handle = getattr(self, name, None)
            if handle is not None:
                setattr(self, name, None)
                llama_cpp.llama_sampler_free(handle)

    def __del__(self) -> None:
        # Forks live as long as one draft; freeing them by hand would clutter the drafter.
        self.close()

    # -- history ------------------------------------------------------------------------------

    def _remember(self, token: int) -> None:
        self._touched.add(token)
        llama_cpp.llama_sampler_accept(self._history, token)

    def _weighed(self, row: Row) -> Row:
        """``row`` after bias, penalties and DRY; a copy if they change anything."""
        ids = [token for token in self._touched if token < len(row)]
        if self._history is None or not ids:
            return row
        some = np.zeros(len(ids), dtype=_CANDIDATE)
        some["id"] = ids
        some["logit"] = row[some["id"]]
        changed, _ = self._scratch.apply(self._history, some)
        weighed: Row = row.copy()
        weighed[changed["id"]] = changed["logit"]
        return weighed

    # -- truncation ---------------------------------------------------------------------------

    def _kept(self, row: Row) -> Candidates:
        """Candidates without those that top-k takes out, where it comes first."""
        settings = self.settings
        if self._sigma is not None or self._mirostat or settings.top_k <= 0:
            return self._scratch.fill(row)
        return self._scratch.at_least(row, settings.top_k)

    # -- grammar ------------------------------------------------------------------------------

    def _allows(self, token: int) -> bool:
        one = np.zeros(1, dtype=_CANDIDATE)
        one["id"] = token
        return len(self._permitted(one)) == 1

    def _permitted(self, candidates: Candidates) -> Candidates:
        """Those that the grammar allows, in the same order."""
        return _possible(self._scratch.apply(self._grammar, candidates)[0])

    def _allowed(self, row: Row) -> Candidates:
        """Candidates that the grammar allows: all that can have a probability above 0 in the end.

        A grammar takes milliseconds for a whole vocabulary. Where the truncation after it leaves
        only candidates among the best ones, whatever it says about the others, they are enough.
        """
        if self._sigma is None and _truncates_from_the_top(self.settings):
            best = self._scratch.best(row, N_BEST)
            lowest = float(best["logit"][-1])
            allowed = self._permitted(best)
            n_more = len(row) - len(best)
            if decided(allowed["logit"].astype(np.float64), lowest, n_more, self.settings):
                return allowed
        allowed = self._permitted(self._scratch.fill(row))
        if not len(allowed):
            raise DecodeError("the grammar allows none of this model's tokens here")
        return allowed


def _truncates_from_the_top(settings: Sampling) -> bool:
    return settings.typical_p >= 1 and settings.mirostat == 0


def decided(
    allowed: npt.NDArray[np.float64], lowest: float, n_more: int, settings: Sampling
) -> bool:
    """Whether top-k, top-p and min-p keep the same candidates whatever the grammar says about
    ``n_more`` others with logits of at most ``lowest``.

    ``allowed``: logits of the allowed ones seen so far, in descending order.
    """
    n = len(allowed)
    if n == 0:
        return n_more == 0
    if settings.top_k > 0:
        n_more = min(n_more, settings.top_k - n)
    if n_more <= 0:
        return True
    weights = np.exp(allowed - allowed[0])
    heaviest = float(np.exp(lowest - allowed[0]))
    beyond_min_p = heaviest < settings.min_p * (1 - _MARGIN)
    n_min_p = int((weights >= settings.min_p).sum())
    if settings.top_p >= 1:
        return beyond_min_p
    # top-p keeps the fewest that reach p of the total: with nothing more, and with all the more.
    sums = np.cumsum(weights)
    fewest = int((sums < (settings.top_p - _MARGIN) * sums[-1]).sum()) + 1
    total = sums[-1] + n_more * heaviest
    most = int((sums < (settings.top_p + _MARGIN) * total).sum()) + 1
    if most > n and not beyond_min_p:
        return False
    return min(fewest, n_min_p) == min(most, n_min_p)


def _possible(candidates: Candidates) -> Candidates:
    """Without those of logit -inf; a copy, which later use of the scratch does not change."""
    possible: Candidates = candidates[candidates["logit"] > -np.inf]
    return possible


class _Scratch:
    """The array that native samplers work on, allocated once per vocabulary size."""

    def __init__(self, n_vocab: int) -> None:
        self._array = np.zeros(n_vocab, dtype=_CANDIDATE)
        self._ids = np.arange(n_vocab, dtype=np.int32)
        self._top: dict[int, Any] = {}

    def fill(self, row: Row) -> Candidates:
        """The possible tokens of ``row``, as a view that is valid until the next call."""
        # By index on plain arrays: a mask over the structured one takes ten times as long.
        if row.min() == -np.inf:
            ids = np.flatnonzero(row > -np.inf)
            return self._put(ids, row[ids])
        n = len(row)
        if n > len(self._ids):
            self._ids = np.arange(n, dtype=np.int32)
        return self._put(self._ids[:n], row)

    def _put(self, ids: npt.NDArray[Any], logits: Row) -> Candidates:
        if len(ids) > len(self._array):
            self._array = np.zeros(len(ids), dtype=_CANDIDATE)
        array = self._array[: len(ids)]
        array["id"] = ids
        array["logit"] = logits
        return array

    def best(self, row: Row, n: int) -> Candidates:
        """The ``n`` best tokens in descending order, a copy."""
        if n not in self._top:
            self._top[n] = llama_cpp.llama_sampler_init_top_k(n)
        return self.apply(self._top[n], self.at_least(row, n))[0].copy()

    def at_least(self, row: Row, n: int) -> Candidates:
        """The ``n`` best tokens of ``row`` and a few more, in the order of their ids; all that
        ``fill`` gives where there are not so many. A view as that of ``fill``.

        At least ``n`` logits are as high as the ``n``th highest of the groups' best ones, and few
        more than those. Finding them so takes a fifth of the time of handing over a vocabulary.
        """
        n_groups = len(row) // _GROUP
        if n_groups < n:
            return self.fill(row)
        peaks = row[: n_groups * _GROUP].reshape(_GROUP, n_groups).max(axis=0)
        bound = np.partition(peaks, n_groups - n)[n_groups - n]
        if bound == -np.inf:
            return self.fill(row)
        ids = np.flatnonzero(row >= bound)
        return self._put(ids, row[ids])

    def apply(self, sampler: Any, array: Candidates) -> tuple[Candidates, int]:
        """(candidates after ``sampler``, index of the selected one). Works in ``array``; what it
        returns is a view that is valid until the sampler is used again."""
        if len(array) == 0:
            return array, -1
        native = llama_cpp.llama_token_data_array(
            data=ctypes.cast(array.ctypes.data, llama_cpp.llama_token_data_p),
            size=len(array),
            selected=-1,
            sorted=False,
        )
        llama_cpp.llama_sampler_apply(sampler, ctypes.byref(native))
        address = ctypes.cast(native.data, ctypes.c_void_p).value or 0
        if address == array.ctypes.data:
            return array[: native.size], int(native.selected)
        # Samplers may point `data` elsewhere; it stays theirs until they are used again.
        raw = (ctypes.c_char * (native.size * _CANDIDATE.itemsize)).from_address(address)
        return np.frombuffer(raw, dtype=_CANDIDATE, count=native.size), int(native.selected)

    def __del__(self) -> None:
        for sampler in self._top.values():
            llama_cpp.llama_sampler_free(sampler)
