"""What runs when no model is named and the profile's pair does not fit now."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers_catalog import budget, shipped

from localspec.config import Config
from localspec.errors import MemoryPlanError, ModelNotFoundError
from localspec.files import ModelFile
from localspec.select import Selection, select
from localspec.smaller import smaller_than
from localspec.store import Store

PAIR = "qwen2.5-coder-1.5b"
TARGET, DRAFT, TINY = f"{PAIR}-q4_k_m", "qwen2.5-coder-0.5b-q4_k_m", "smollm2-135m-q4_1"


class Shelf(Store):
    """A store with these models of the catalog on the disk."""

    def __init__(self, *names: str, offline: bool = True) -> None:
        super().__init__(source="hub", offline=offline)
        self.names = names

    def find(self, file: ModelFile) -> Path | None:
        return Path("/nowhere") / file.id if file.id in self.names else None


def chosen(gib: float, store: Store) -> Selection:
    return select(Config(), shipped(), store, budget(gib), PAIR)


def test_the_pair_when_it_fits() -> None:
    found = chosen(8, Shelf(TARGET, DRAFT))
    assert (found.target.id, found.draft and found.draft.id) == (TARGET, DRAFT)


@pytest.mark.parametrize("offline", [True, False])
def test_its_target_when_only_that_fits_and_the_draft_stays_a_candidate(offline: bool) -> None:
    found = chosen(2.2, Shelf(TARGET, DRAFT, TINY, offline=offline))
    # The memory plan decides about the draft, and says why it is left out.
    assert (found.target.id, found.draft and found.draft.id) == (TARGET, DRAFT)


def test_a_smaller_model_that_is_here_goes_before_a_download() -> None:
    found = chosen(1, Shelf(TARGET, TINY, offline=False))
    assert found.target.id == TINY
    assert re.fullmatch(
        rf"The profile's choice, {PAIR}, does not fit \(it needs 2\.\d\d GiB of memory and "
        rf"1\.00 GiB can be used\): {TINY} instead\.",
        found.choice,
    )


def test_why_it_is_not_the_profile_s_choice() -> None:
    assert chosen(8, Shelf(TARGET, DRAFT)).choice == ""
    assert chosen(2.2, Shelf(TARGET, DRAFT, TINY)).choice == "", "its target is, the plan tells why"
    assert chosen(8, Shelf(TINY)).choice == (
        f"The profile's choice, {PAIR}, is not on this computer: {TINY} instead."
    )


def test_models_that_are_here_but_do_not_fit_are_not_called_missing() -> None:
    with pytest.raises(MemoryPlanError, match="none of the models on this computer fits"):
        chosen(0.05, Shelf(TARGET, DRAFT))
    with pytest.raises(ModelNotFoundError, match="no model of the catalog is on this computer"):
        chosen(8, Shelf())


def test_what_could_be_named_instead() -> None:
    catalog = shipped()
    target = catalog.model("qwen2.5-coder-7b")
    here = smaller_than(target, catalog, Shelf(TINY, DRAFT))
    assert [model.id for model in here] == [DRAFT, TINY]  # offline: only what is here
    more = [model.id for model in smaller_than(target, catalog, Shelf(TINY, offline=False))]
    assert more == [TINY, "qwen2.5-coder-3b-q4_k_m", TARGET, DRAFT]
    assert all((model.n_bytes or 0) < (target.n_bytes or 0) for model in here)
    assert smaller_than(ModelFile("unknown", ()), catalog, Shelf(TINY)) == ()
