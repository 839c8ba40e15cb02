"""Profiles: shipped, extended, replaced, chosen; mistakes name file, line and setting."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from helpers_machines import GIB, cores, cuda, linux

from localspec import catalog, paths
from localspec.config import Config
from localspec.errors import ConfigError
from localspec.hardware import Hardware, detect
from localspec.profiles import Profile, check_pair, choose, customised, load_profiles


@pytest.fixture
def users(tmp_path: Path) -> Path:
    folder = tmp_path / "profiles"
    folder.mkdir()
    return folder


@pytest.fixture
def plain(tmp_path: Path) -> Hardware:
    return detect([], linux(tmp_path / "machine", 16, 12, cores(4)))


@pytest.fixture
def gpu(tmp_path: Path) -> Hardware:
    machine = linux(tmp_path / "gpu", 16, 12, cores(4))
    return detect([cuda(0, "RTX", 7, 8)], machine)


def fault(users: Path, text: str, name: str = "mine.yaml") -> str:
    (users / name).write_text(text, encoding="utf-8")
    with pytest.raises(ConfigError) as caught:
        load_profiles(users=users)
    return " | ".join(filter(None, (caught.value.message, caught.value.hint)))


def test_the_shipped_profiles_are_whole(users: Path) -> None:
    profiles = load_profiles(users=users)
    assert list(profiles) == ["cpu", "cuda", "metal"]
    kinds = [kind for profile in profiles.values() for kind in profile.backends]
    assert sorted(kinds) == sorted({"cpu", "cuda", "metal", "vulkan", "rocm", "sycl", "other"})
    for name, profile in profiles.items():
        assert profile.name == name
        assert profile.path == paths.profiles_dir() / f"{name}.yaml"
        assert profile.description
        assert profile.pairs[0].memory == 0  # every machine gets something


def test_every_setting_of_the_cpu_profile_has_its_comment() -> None:
    text = (paths.profiles_dir() / "cpu.yaml").read_text("utf-8")
    settings = re.findall(r"^([a-z_]+):", text, re.MULTILINE)
    assert set(settings) == set(Profile.__dataclass_fields__) - {"name", "path"}
    for name in settings:
        before = text[: text.index(f"\n{name}:")].rstrip().splitlines()[-1]
        assert before.startswith("#") or name == "cache_type_v", name


def test_pairs_are_in_the_catalog(users: Path) -> None:
    known = catalog.load()
    for profile in load_profiles(users=users).values():
        for choice in profile.pairs:
            assert known.find(choice.pair)


def test_a_user_s_profile_extends_a_shipped_one(users: Path) -> None:
    (users / "cpu.yaml").write_text("extends: cpu\nthreads: 08\nn-batch: 1e3\n", "utf-8")
    found = load_profiles(users=users)["cpu"]
    assert (found.threads, found.n_batch) == (8, 1000)
    assert found.backends == ("cpu",)
    assert found.pairs
    assert found.path == users / "cpu.yaml"


def test_a_user_s_profile_replaces_a_shipped_one(users: Path, plain: Hardware) -> None:
    (users / "cpu.yaml").write_text("backends: cpu\nflash_attn: off\n", "utf-8")
    profiles = load_profiles(users=users)
    found = profiles["cpu"]
    assert (found.flash_attn, found.pairs) == ("off", ())
    assert choose(plain, profiles)[0] is found
    assert found.pair_for(plain) is None


def test_a_chain(users: Path) -> None:
    (users / "a.yaml").write_text("extends: b\ndraft_max: 2\n", "utf-8")
    (users / "b.yml").write_text("extends: cpu\ndraft_max: 3\nn_ctx: 4096\n", "utf-8")
    found = load_profiles(users=users)["a"]
    assert (found.draft_max, found.n_ctx, found.name) == (2, 4096, "a")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("\nthread: 2", 'mine.yaml, line 2: "thread" is not a setting | Did you mean "threads"?'),
        ("extends: cpuu", 'line 1: there is no profile "cpuu" to extend | Did you mean "cpu"?'),
        ("extends: [cpu]", 'line 1: "extends" must be the name of one profile'),
        ("extends: mine", 'line 1: the profile "mine" cannot extend itself'),
        ("n_batch: 64\nn_ubatch: 128", '"n_ubatch" is 128, but it cannot be larger than "n_batch"'),
        ("threads: fast", '"threads" is "fast", but it must be auto, physical, logical or a whole'),
        (
            "cache_type_k: q8",
            'mine.yaml, line 1: "cache_type_k" cannot be "q8"; it is one of f32, f16, bf16, '
            'q8_0, q5_1, q5_0, q4_1, q4_0, iq4_nl | Did you mean "q8_0"?',
        ),
        ("pairs: [{memory: 8, pair: x}]", '"memory" is 8, but of what?'),
        ("pairs:\n  - memory: 8GB", 'mine.yaml, line 2: "pair" is missing'),
        ("backends: [nvidia]", '"backends" cannot be "nvidia"'),
        ("name: x", '"name" is not a setting'),
        ("allow_kv_quant: sure", '"allow_kv_quant" is "sure", but it must be on or off'),
    ],
)
def test_mistakes(users: Path, text: str, expected: str) -> None:
    assert expected in fault(users, text)


def test_the_line_of_settings_that_contradict_each_other(users: Path) -> None:
    path = users / "mine.yaml"
    path.write_text("extends: cpu\nthreads: 2\nn-batch: 64\n", "utf-8")
    with pytest.raises(ConfigError) as caught:
        load_profiles(users=users)
    assert caught.value.message.startswith(f'{path}, line 3: "n_ubatch" is 512, but it cannot be ')


def test_a_pair_that_the_catalog_lacks_is_named_with_its_line(users: Path) -> None:
    path = users / "mine.yaml"
    path.write_text(
        "extends: cpu\npairs:\n  - {memory: 0, pair: qwen2.5-coder-1.5b}\n"
        "  - {memory: 1GiB, pair: qwen2.5-coder-1.5x}\n",
        "utf-8",
    )
    good, bad = load_profiles(users=users)["mine"].pairs
    check_pair(good, catalog.load())
    with pytest.raises(ConfigError) as caught:
        check_pair(bad, catalog.load())
    assert caught.value.message == (
        f'{path}, line 4: the catalog has no pair or model called "qwen2.5-coder-1.5x"'
    )
    assert caught.value.hint.startswith("Did you mean qwen2.5-coder-1.5b")


def test_a_circle(users: Path) -> None:
    (users / "a.yaml").write_text("extends: b\n", "utf-8")
    assert '"a" extends this profile already' in fault(users, "extends: a\n", "b.yaml")


def test_bad_names(users: Path) -> None:
    assert "a profile's name is made of" in fault(users, "", "my profile.yaml")


def test_two_files_of_one_name(users: Path) -> None:
    (users / "x.yml").write_text("", "utf-8")
    assert 'there are two profiles "x"' in fault(users, "", "x.yaml")


def test_other_files_are_left_alone(users: Path) -> None:
    (users / "notes of mine.txt").write_text("x", "utf-8")
    assert len(load_profiles(users=users)) == 3


def test_without_any_profile(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="there are no profiles"):
        load_profiles(tmp_path / "a", tmp_path / "b")


def test_a_profile_that_was_asked_for(users: Path, plain: Hardware, gpu: Hardware) -> None:
    profiles = load_profiles(users=users)
    found, reason = choose(gpu, profiles, "CPU", "from --profile")
    assert (found.name, reason) == ("cpu", "from --profile")
    with pytest.raises(ConfigError) as caught:
        choose(plain, profiles, "cuda", "from LOCALSPEC_PROFILE")
    assert caught.value.message == (
        'the profile "cuda" (from LOCALSPEC_PROFILE) is for cuda, vulkan, rocm, sycl, other, '
        "and llama.cpp finds no such device here"
    )
    with pytest.raises(ConfigError) as caught:
        choose(plain, profiles, "cdua", "from --profile")
    assert caught.value.message == 'there is no profile "cdua" (from --profile)'
    assert caught.value.hint == 'Did you mean "cuda"?'


def test_the_cpu_profile_on_a_gpu_machine_counts_the_computer_s_memory(
    users: Path, gpu: Hardware
) -> None:
    profile = load_profiles(users=users)["cpu"]
    chosen = profile.pair_for(gpu)
    assert chosen is not None
    assert chosen[1] == "the profile's choice from 3.00 GiB on; there is 16.0 GiB of memory"


def test_a_device_no_profile_is_meant_for(users: Path, gpu: Hardware) -> None:
    (users / "cuda.yaml").write_text("extends: cuda\nbackends: vulkan\n", "utf-8")
    found, reason = choose(gpu, load_profiles(users=users))
    assert (found.name, reason) == ("cpu", "no profile is meant for cuda devices")


def test_settings_go_over_the_profile(users: Path, plain: Hardware) -> None:
    profile = load_profiles(users=users)["cpu"]
    config = Config(threads=3, memory_limit=2 * GIB, allow_kv_quant=True, n_ctx=2048)
    found = customised(profile, config)
    assert (found.threads, found.n_ctx, found.allow_kv_quant) == (3, 2048, True)
    assert (found.name, found.draft_max) == ("cpu", None)
    # The longest draft may be changed while a model is loaded; the profile's stays a bound.
    assert customised(profile, Config(draft_max=4)).draft_max == profile.draft_max
    chosen = found.pair_for(plain)
    assert chosen is not None
    assert chosen[0].pair == "qwen2.5-coder-0.5b"
    assert chosen[1] == "the profile's smallest choice; there is a memory limit of 2.00 GiB"
