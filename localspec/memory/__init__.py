"""What fits into memory, where, and what to do when it does not: pure arithmetic, no I/O."""

from localspec.budget import Budget, DeviceMemory
from localspec.memory.cascade import choose_plan, first_fit
from localspec.memory.layers import Layer
from localspec.memory.parts import Part, Settings, kv_cells, plan_memory
from localspec.memory.plan import Candidate, Mode, Plan, PlanView, Request, Shortfall, Step
from localspec.memory.repack import repacked_types
from localspec.memory.shape import Shape

__all__ = [
    "Budget",
    "Candidate",
    "DeviceMemory",
    "Layer",
    "Mode",
    "Part",
    "Plan",
    "PlanView",
    "Request",
    "Settings",
    "Shape",
    "Shortfall",
    "Step",
    "choose_plan",
    "first_fit",
    "kv_cells",
    "plan_memory",
    "repacked_types",
]
