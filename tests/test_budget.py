import pytest

from localspec.budget import Budget, DeviceMemory

CPU = DeviceMemory("CPU", "cpu", 8_000, "free memory")
GPU = DeviceMemory("GPU 0", "cuda", 6_000, "reported by the driver")
METAL = DeviceMemory("Apple M1", "metal", 5_000, "working set limit", shared_with_cpu=True)


def test_the_cpu_comes_first_and_only_once():
    assert Budget((CPU, GPU)).accelerators == (GPU,)
    for devices in ((), (GPU,), (GPU, CPU), (CPU, CPU)):
        with pytest.raises(ValueError, match="one CPU device"):
            Budget(devices)


def test_a_limit_lowers_the_cpu_and_what_shares_its_memory_only():
    limited = Budget((CPU, GPU, METAL)).limited_to(5_500, "--memory-limit")
    assert [device.n_bytes_free for device in limited.devices] == [5_500, 6_000, 5_000]
    assert limited.cpu.source == "--memory-limit"
    assert limited.devices[2].source == "working set limit"
    assert Budget((CPU, METAL)).limited_to(100, "x").devices[1].n_bytes_free == 100


def test_a_limit_above_what_is_free_changes_nothing():
    assert Budget((CPU,)).limited_to(9_000, "--memory-limit") == Budget((CPU,))
