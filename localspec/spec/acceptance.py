"""How likely drafted tokens are to be accepted, learned while they are."""

from __future__ import annotations

import math
from collections.abc import Sequence
from itertools import accumulate
from operator import mul

from localspec.spec.planning import Outlook

DECAY = 0.98
"""What was seen counts for this much less with each new observation (about the last fifty)."""

MIN_SURVIVAL = 0.03
"""Copies are not planned beyond this chance of being right to the end."""
PROMISE_WEIGHT = 12.0
PROMISE_DECAY = 0.9
"""Copied tokens that were expected and that were right, of the last ten copies or so."""

SURE = 0.8
"""A drafted token to which the draft model gives at least this probability is called sure."""
VERY_SURE = 0.97
STATE_PRIORS = (0.44, 0.62, 0.86, 0.50)
"""How often a token is sure after an unsure or wrong one, a sure one, a very sure one, and where
the draft model was not asked for a while: easy and hard places come in runs. Measured on the
recorded answers with a good draft; a weak one and sampling lie a tenth lower."""
TARGET_SURE = 0.7
"""At so large a share of sure places of the target the priors above are right: where the target is
sure, a draft mostly is. On the recorded answers the two shares correlate with 0.97."""
CAUTION, CAUTIOUS_SURE = 0.06, 0.4
"""While little is known of a text, that share is taken to be so much lower for each plain decode
that is to be paid for a draft in advance, down to the second value."""
TEXT_WEIGHT = 8.0
"""How many tokens such a prior counts for."""
N_STATES = len(STATE_PRIORS)
FRESH = 3
STATE_WEIGHT = 6.0
"""How many observations of its kind such a prior counts for: answers differ much."""
STALE = 3
"""After so many tokens without it, what the draft model last said tells nothing of the next."""
SURE_CHANCE, UNSURE_CHANCE = 0.985, 0.6
"""Acceptance of sure and unsure tokens while little is known."""
SHAPE_WEIGHT = 24.0
TRUST_WEIGHT = 6.0
"""More would be steadier, but a draft that is sure and always wrong must be found out at once."""
TRUST_FADING = 0.9
"""And with each answer it counts for this much less: a draft that was unlucky a few times looks too
bad to be read for, so nothing would ever be learned of it again."""
FORGET_AFTER = 256
"""Committed tokens without a draft after which what was learned of a model is half forgotten."""


class CopyAcceptance:
    """For a drafter that copies: how far the chances that it tells itself can be trusted here.
    Copies are chosen where a model is unsure, and there they are less often right, too."""

    def __init__(self) -> None:
        self._promised, self._delivered = PROMISE_WEIGHT, PROMISE_WEIGHT

    def survival(self, chances: Sequence[float], n: int) -> list[float]:
        """survival[i]: the chance that the first i + 1 of ``n`` tokens are all right. Tokens beyond
        ``chances`` are as likely as the last of these, until it is below ``MIN_SURVIVAL``."""
        if not chances:
            return []
        first = chances[0] * min(1.0, self._delivered / self._promised)
        found = list(accumulate((first, *chances[1:n]), mul))
        while len(found) < n and found[-1] >= MIN_SURVIVAL:
            found.append(found[-1] * chances[-1])
        return found

    def copied(self, promised: float, delivered: int) -> None:
        """Of a copy so many tokens were expected to be right, and so many were."""
        self._promised = self._promised * PROMISE_DECAY + promised
        self._delivered = self._delivered * PROMISE_DECAY + delivered


class ModelAcceptance:
    """For a drafter that gives probabilities: how far they can be trusted, and what to expect
    before they are known.

    ``trust`` = accepted over claimed corrects a pair that is over- or under-confident; it belongs
    to the pair and is kept, though it fades. The rest belongs to the text and starts afresh with
    each answer.
    """

    def __init__(self) -> None:
        self.accepted = self.claimed = 0.0
        self.begin(temperature=0.0)

    def begin(self, temperature: float) -> None:
        """A new text. Above temperature 0 the draft's tokens are drawn."""
        self.accepted *= TRUST_FADING
        self.claimed *= TRUST_FADING
        self._sampled = temperature > 0
        self._n_sure, self._n_seen = [0.0] * N_STATES, [0.0] * N_STATES
        self._state = FRESH
        self._sure = [SURE_CHANCE * SHAPE_WEIGHT, SHAPE_WEIGHT]
        self._unsure = [UNSURE_CHANCE * SHAPE_WEIGHT / 2, SHAPE_WEIGHT / 2]
        self._idle = 0
        self._text = [0.0, 0.0]

    @property
    def trust(self) -> float:
        """Accepted tokens over claimed ones."""
        return (TRUST_WEIGHT + self.accepted) / (TRUST_WEIGHT + self.claimed)

    def chance(self, confidence: float) -> float:
        """The chance that a drafted token of this probability is accepted."""
        return min(0.999, self.trust * self.claim(confidence))

    def claim(self, confidence: float) -> float:
        """The draft's own probability, read as acceptance. A drawn token is accepted with
        min(1, p/q): an improbable one is not as bad as it looks."""
        return max(confidence, 0.42 + 0.3 * confidence) if self._sampled else confidence

    def drafted(self, confidence: float) -> None:
        """A token with this probability was drafted."""
        claim = self.claim(confidence)
        sure = claim >= SURE
        self._n_sure[self._state] = self._n_sure[self._state] * DECAY + sure
        self._n_seen[self._state] = self._n_seen[self._state] * DECAY + 1
        self._state = 0 if not sure else 1 if claim < VERY_SURE else 2
        mean = self._sure if sure else self._unsure
        mean[0] = mean[0] * DECAY + claim
        mean[1] = mean[1] * DECAY + 1
        self._idle = 0

    def target_was(self, confidence: float) -> None:
        """The target gave its own best token this probability."""
        self._text[0] = self._text[0] * DECAY + (confidence >= SURE)
        self._text[1] = self._text[1] * DECAY + 1

    def verified(self, confidences: tuple[float, ...], n_accepted: int) -> None:
        """Tokens were verified; only those up to the first wrong one say anything."""
        for position, confidence in enumerate(confidences[: n_accepted + 1]):
            self.claimed = self.claimed * DECAY + self.claim(confidence)
            self.accepted = self.accepted * DECAY + (position < n_accepted)
        if confidences and n_accepted < len(confidences):
            self._state = 0

    def passed(self, n_tokens: int) -> None:
        """Tokens were committed without this drafter."""
        self._idle += n_tokens
        if self._idle > STALE:
            self._state = FRESH
        if self._idle >= FORGET_AFTER:
            self._idle = 0
            self._n_sure = [n / 2 for n in self._n_sure]
            self._n_seen = [n / 2 for n in self._n_seen]

    def outlook(self, text_sure: float = 0.0) -> Outlook:
        """What to expect of the next drafted tokens. ``text_sure``: the priors are moved by how
        sure the target was of this text, which is known before anything was drafted; so sure it is
        taken to be while little is known of it."""
        shift = 0.0
        if text_sure:
            share = (text_sure * TEXT_WEIGHT + self._text[0]) / (TEXT_WEIGHT + self._text[1])
            shift = _logit(share) - _logit(TARGET_SURE)
        after_sure = self._share_after(2, shift)
        if self._state != 2:
            after_sure = (self._share_after(1, shift) + after_sure) / 2
        return Outlook(
            self._share_after(self._state, shift), after_sure, self.chance_sure, self.chance_unsure
        )

    def _share_after(self, state: int, shift: float) -> float:
        """Expected share of sure tokens after one of this state."""
        prior = STATE_PRIORS[state]
        if shift:
            prior = 1 / (1 + math.exp(-_logit(prior) - shift))
        return (prior * STATE_WEIGHT + self._n_sure[state]) / (STATE_WEIGHT + self._n_seen[state])

    @property
    def chance_sure(self) -> float:
        """Expected acceptance of a sure token."""
        return min(0.999, self.trust * self._sure[0] / self._sure[1])

    @property
    def chance_unsure(self) -> float:
        """Expected acceptance of an unsure token."""
        return min(0.999, self.trust * self._unsure[0] / self._unsure[1])


def expected_sure(price: float) -> float:
    """What share of a text the target is taken to be sure of while little of it is known, when so
    many plain decodes are to be paid for drafting it."""
    return max(CAUTIOUS_SURE, TARGET_SURE - CAUTION * price)


def _logit(chance: float) -> float:
    return math.log(chance / (1 - chance))
