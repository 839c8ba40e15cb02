"""Loading what a plan says: weights and contexts, all of them or none."""

from __future__ import annotations

from dataclasses import dataclass, replace
from pathlib import Path

from localspec.errors import AllocationError, LocalspecError, ModelLoadError
from localspec.exact import ExactPlan
from localspec.files import Cancelled, Progress
from localspec.header import Header
from localspec.llama.context import Context, ContextSettings
from localspec.llama.model import Model
from localspec.llama.mtp import MtpHeads
from localspec.memory import Plan
from localspec.nextn import Heads
from localspec.planning import Planner
from localspec.session import Loaded


@dataclass(slots=True)
class Parts:
    """What is loaded. ``draft`` or ``heads`` drafts, or neither does; ``draft_error`` says why one
    that was planned is not there."""

    target: Loaded
    can_roll_back: bool = True
    draft: Loaded | None = None
    heads: MtpHeads | None = None
    draft_error: LocalspecError | None = None

    def close(self) -> None:
        """Free all of it."""
        for part in (self.heads, self.draft, self.target):
            if part is not None:
                part.close()


class Loader:
    """Loads a target and what drafts for it, reporting to ``progress``."""

    def __init__(self, planner: Planner, progress: Progress, cancelled: Cancelled) -> None:
        self._planner = planner
        self._progress = progress
        self._cancelled = cancelled

    def load(
        self,
        plan: Plan,
        target: Path,
        header: Header,
        draft: Path | None,
        heads: Heads | None,
        exact: ExactPlan | None,
    ) -> Parts:
        """All that ``plan`` names. ``heads``: MTP heads that draft, in ``draft`` or, if that is
        None, in the target's own file.

        Raises AllocationError when there is no memory for it (nothing is left loaded then),
        ModelLoadError for a target that llama.cpp refuses, KeyboardInterrupt when cancelled.
        """
        settings = self._planner.context_settings(plan.settings)
        n_gpu_layers = plan.settings.n_gpu_layers
        model = self._model(
            target,
            # llama.cpp counts from the last layer, heads included.
            n_gpu_layers + header.n_layer_nextn if n_gpu_layers else 0,
            repack=exact is None or exact.repack,
            load_mtp=heads is not None and draft is None,
        )
        parts = Parts(_with_context(model, exact.settings if exact is not None else settings))
        try:
            parts.can_roll_back = parts.target.context.can_roll_back()
            if parts.can_roll_back:
                self._load_draft(parts, plan, draft, heads)
        except BaseException:
            parts.close()
            raise
        return parts

    def _load_draft(
        self, parts: Parts, plan: Plan, draft: Path | None, heads: Heads | None
    ) -> None:
        planned = plan.draft_settings or plan.settings
        try:
            if heads is not None:
                parts.heads = self._heads(parts.target.context, heads, draft, planned.n_gpu_layers)
            elif draft is not None:
                settings = replace(self._planner.context_settings(planned), drafts=True)
                parts.draft = _with_context(self._model(draft, planned.n_gpu_layers), settings)
        except AllocationError:
            raise
        except ModelLoadError as error:
            parts.draft_error = error

    def _heads(
        self, target: Context, heads: Heads, path: Path | None, n_gpu_layers: int
    ) -> MtpHeads:
        """MTP heads: the target's own, or those in the file ``path``."""
        model = None
        if path is not None:
            model = self._model(path, n_gpu_layers, load_mtp=True)
        try:
            return MtpHeads(target, heads, model)
        except BaseException:
            if model is not None:
                model.close()
            raise

    def _model(
        self, path: Path, n_gpu_layers: int, *, repack: bool = True, load_mtp: bool = False
    ) -> Model:
        self._progress.start(f"Loading {path.name}", None)
        try:
            return Model(
                path,
                n_gpu_layers=n_gpu_layers,
                repack=repack,
                load_mtp=load_mtp,
                progress=lambda _share: not self._cancelled(),
            )
        except ModelLoadError:
            if self._cancelled():
                raise KeyboardInterrupt from None
            raise
        finally:
            self._progress.finish()


def _with_context(model: Model, settings: ContextSettings) -> Loaded:
    try:
        return Loaded(model, Context(model, settings))
    except BaseException:
        model.close()
        raise
