"""What a Hub means when it says no: one plain sentence for each case, and what to do about it."""

from __future__ import annotations

import re
from collections.abc import Mapping

from localspec.errors import (
    AccessError,
    DownloadError,
    HubUnreachableError,
    ModelNotFoundError,
    RateLimitError,
)
from localspec.terminal import duration, label

_LOGIN = 'Log in with "hf auth login", or set HF_TOKEN'


def wait_asked_for(headers: Mapping[str, str]) -> float | None:
    """Seconds that ``Retry-After`` or the Hub's ``RateLimit`` header asks for, None if neither."""
    asked = headers.get("retry-after", "").strip()
    if re.fullmatch(r"\d{1,6}", asked):
        return float(asked)
    limit = re.search(r"\bt=(\d{1,6})", headers.get("ratelimit", ""))
    return float(limit[1]) if limit else None


def refusal(
    status: int, headers: Mapping[str, str], *, endpoint: str, repo: str, name: str, had_token: bool
) -> DownloadError | ModelNotFoundError:
    """The error for an answer of 400 or more. ``had_token``: a token was sent (and, for 401, the
    same question without it was refused too)."""
    code = headers.get("x-error-code", "").lower()
    page = f"{endpoint}/{repo}"
    if status == 407 or (status in (403, 404, 410) and not _is_hub(headers)):
        return HubUnreachableError(
            f"{endpoint} answers with error {status}, but not as a Hugging Face Hub does.",
            hint="Perhaps a proxy or the sign-in page of this network is in the way, or "
            f"HF_ENDPOINT is wrong. See {page}",
        )
    if code == "gatedrepo":
        then = "" if had_token else f" {_LOGIN} (tokens: {endpoint}/settings/tokens)."
        return AccessError(
            f"{repo} is gated: its owner lets in only people who have accepted its conditions.",
            hint=f"Visit {page}, accept them, and run this again.{then}",
        )
    if status == 401 and had_token:
        return AccessError(
            f"the Hugging Face token was refused (wrong or expired), and without it {repo} cannot "
            "be read: it is private or does not exist.",
            hint=f"Make a new token at {endpoint}/settings/tokens, then "
            f'"hf auth login" or HF_TOKEN. For a public model, check the name at {page}.',
        )
    if status == 401:
        return AccessError(
            f"{repo} wants a login: it is private, or there is no such repository.",
            hint=f"Check the name at {page}. {_LOGIN} if it is private.",
        )
    if status == 403:
        return AccessError(
            f"the server forbids reading {repo}{_said(headers)}.",
            hint=f"See {page}; the token in use may not cover it.",
        )
    if status in (404, 410):
        if code == "revisionnotfound":
            return ModelNotFoundError(f"{repo} has no such revision.", hint=f"See {page}")
        if name and code != "reponotfound":
            return ModelNotFoundError(
                f'{repo} has no file "{label(name)}".', hint=f"See {page}/tree/main"
            )
        return ModelNotFoundError(f"there is no repository {repo} on {endpoint}.")
    if status == 429:
        wait = wait_asked_for(headers)
        when = f"in {duration(wait)}" if wait is not None else "in a few minutes"
        return RateLimitError(
            f"{endpoint} asks for fewer requests; try again {when}.",
            hint="" if had_token else f"Logged-in users may ask more often. {_LOGIN}.",
        )
    return DownloadError(
        f"the server refuses {label(name) or repo} with error {status}{_said(headers)}."
    )


def _is_hub(headers: Mapping[str, str]) -> bool:
    """Whether a refusal comes from a Hub rather than from something in between: a Hub says why."""
    names = ("x-error-code", "x-error-message", "x-repo-commit")
    return any(name in headers for name in names) or "huggingface" in headers.get(
        "x-powered-by", ""
    )


def _said(headers: Mapping[str, str]) -> str:
    said = label(headers.get("x-error-message", ""))[:200].strip()
    return f' ("{said}")' if said else ""
