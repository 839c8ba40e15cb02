"""Whole machines: the profile, pair, threads and budget that each gets, word for word."""

from __future__ import annotations

from pathlib import Path

import pytest
from helpers_fleet import MACHINES, Expected, Machine
from helpers_machines import GIB, FakeDevice, cores, cuda, linux, mac, metal

from localspec.hardware import detect
from localspec.profiles import choose, load_profiles


@pytest.mark.parametrize("machine", MACHINES, ids=lambda machine: machine.name)
def test_what_each_machine_gets(tmp_path: Path, machine: Machine) -> None:
    hardware = detect(machine.devices, machine.probe(tmp_path))
    profile, reason = choose(hardware, load_profiles(users=tmp_path / "none"))
    chosen = profile.pair_for(hardware)
    assert chosen is not None
    found = Expected(
        profile.name,
        reason,
        chosen[0].pair,
        chosen[1],
        hardware.cpu.threads,
        hardware.cpu.threads_reason,
        tuple((d.name, d.n_bytes_free, d.source) for d in hardware.budget().devices),
    )
    assert found == machine.expected
    assert hardware.warning is None


def test_what_is_shared_is_marked(tmp_path: Path) -> None:
    apple = detect([metal(10, 9, "Apple M2")], mac(tmp_path, 16, 12, 4, 4, "Apple M2"))
    assert [d.shared_with_cpu for d in apple.budget().devices] == [False, True]
    # A memory limit binds what is shared, too, but not a card's own memory.
    assert [d.n_bytes_free for d in apple.budget(GIB).devices] == [GIB, GIB]
    card = detect([cuda(0, "RTX", 7, 8)], linux(tmp_path, 16, 12, cores(2)))
    assert [d.n_bytes_free for d in card.budget(GIB).devices] == [GIB, 7 * GIB]
    assert [d.shared_with_cpu for d in card.budget().devices] == [False, False]


@pytest.mark.parametrize(
    ("description", "shared"),
    [
        ("Intel(R) UHD Graphics 620 (KBL GT2)", True),
        ("Intel(R) Iris(R) Xe Graphics", True),
        ("Intel(R) Arc(TM) Graphics (MTL)", True),
        ("Intel(R) Arc(TM) A770 Graphics (DG2)", False),
        ("AMD Radeon Graphics (RADV RENOIR)", True),
        ("AMD Radeon(TM) Graphics", True),
        ("AMD Radeon 8060S (RADV GFX1151)", True),
        ("AMD Radeon RX 7900 XTX (RADV NAVI31)", False),
        ("NVIDIA GeForce GTX 860M", False),
    ],
)
def test_graphics_inside_a_processor(tmp_path: Path, description: str, shared: bool) -> None:
    device = FakeDevice("Vulkan0", description, "vulkan", 4 * GIB, 8 * GIB)
    found = detect([device], linux(tmp_path, 16, 12, cores(2)))
    assert found.devices[0].is_shared is shared
