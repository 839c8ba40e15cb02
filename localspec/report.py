"""The numbers of an answer under the names that scripts rely on (``run --json``, ``bench``)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from localspec.spec.events import Finished

if TYPE_CHECKING:
    from localspec.session import Status


def as_dict(finished: Finished, text: str, status: Status, seed: int | None) -> dict[str, Any]:
    """All of it as plain values; rates are null when nothing was measured. Keys are never renamed
    or removed, only added."""
    stats = finished.stats
    return {
        "text": text,
        "model": status.model,
        "draft": status.draft,
        "mode": status.mode,
        "reason": status.reason,
        "exactness": status.exactness,
        "finish_reason": finished.reason,
        "finish_detail": finished.detail,
        "seed": seed,
        "n_prompt": stats.n_prompt,
        "n_reused": stats.n_reused,
        "n_tokens": stats.n_tokens,
        "n_steps": stats.n_steps,
        "n_drafted": stats.n_drafted,
        "n_verified": stats.n_verified,
        "n_accepted": stats.n_accepted,
        "acceptance_rate": stats.acceptance_rate,
        "mean_accepted_length": stats.mean_accepted_length,
        "per_position": stats.per_position,
        "prompt_s": stats.prompt_s,
        "first_token_s": stats.first_token_s,
        "generate_s": stats.generate_s,
        "tokens_per_s": stats.tokens_per_s,
        "baseline_tokens_per_s": stats.baseline_tokens_per_s,
        "gain": stats.gain,
        "saved_s": stats.saved_s,
        "drafters": {
            name: {
                "n_drafted": drafter.n_drafted,
                "n_verified": drafter.n_verified,
                "n_accepted": drafter.n_accepted,
                "seconds": drafter.seconds,
            }
            for name, drafter in stats.drafters.items()
        },
    }
