"""File < environment < flag, and every value knows where it came from."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from localspec.config import Config, load_config, setting_names
from localspec.errors import ConfigError


def config(tmp_path: Path, text: str = "", env: dict[str, str] | None = None) -> Config:
    path = tmp_path / "config.yaml"
    if text:
        path.write_text(text, encoding="utf-8")
    return load_config(env or {}, path)


def test_without_file_and_environment_all_is_default(tmp_path: Path) -> None:
    assert config(tmp_path) == Config()
    assert Config().source_of("threads") == "the default"


def test_file_environment_and_flag(tmp_path: Path) -> None:
    text = "threads: 2\nmode: no\nmemory-limit: 8 GiB\ntop_p: 0.9\n"
    found = config(tmp_path, text, {"LOCALSPEC_THREADS": "04", "LOCALSPEC_SYSTEM": ""})
    assert (found.threads, found.mode, found.memory_limit) == (4, "off", 8 * 2**30)
    assert found.system is None
    assert found.source_of("threads") == "from LOCALSPEC_THREADS"
    assert found.source_of("mode") == "from config.yaml, line 2"
    flagged = found.with_flags({"threads": 1, "mode": None, "top_p": 0.5})
    assert (flagged.threads, flagged.mode, flagged.top_p) == (1, "off", 0.5)
    assert flagged.source_of("top_p") == "from --top-p"
    assert flagged.source_of("mode") == "from config.yaml, line 2"


def test_a_mistake_in_the_file_counts_even_below_an_environment_value(tmp_path: Path) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, "\nthread: 2\n", {"LOCALSPEC_THREADS": "4"})
    assert caught.value.message.endswith('config.yaml, line 2: "thread" is not a setting')
    assert caught.value.hint == 'Did you mean "threads"?'


@pytest.mark.parametrize(
    ("text", "env", "expected"),
    [
        ("", {"LOCALSPEC_THREADS": "0"}, 'LOCALSPEC_THREADS: "threads" is 0, but it must be'),
        ("", {"LOCALSPEC_MODE": "fast"}, 'LOCALSPEC_MODE: "mode" cannot be "fast"'),
        ("top_p: 1.2", {}, 'config.yaml, line 1: "top_p" is 1.2, but it must be between 0 and 1'),
        ("seed: -1", {}, 'line 1: "seed" is -1, but it must be between 0 and 4294967295'),
        ("n_ctx: 8k", {}, 'line 1: "n_ctx" is "8k", but it must be a whole number'),
        ("just text", {}, "line 1: expected settings"),
        ("sources: {}", {}, '"sources" is not a setting'),
        ("top-k: 1\ntop_k: 2", {}, 'line 2: "top_k" is set twice'),
    ],
)
def test_mistakes_name_their_place(
    tmp_path: Path, text: str, env: dict[str, str], expected: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        config(tmp_path, text, env)
    assert expected in caught.value.message


def test_directories(tmp_path: Path) -> None:
    found = config(tmp_path, "model_dirs: [~/models, /data]\n")
    assert found.model_dirs == (Path("~/models").expanduser(), Path("/data"))
    both = os.pathsep.join(["/a", "/b"])
    found = config(tmp_path, "model_dirs: /x\n", {"LOCALSPEC_MODEL_DIRS": both})
    assert found.model_dirs == (Path("/a"), Path("/b"))


def test_offline_is_heard_from_the_hub_s_own_switch(tmp_path: Path) -> None:
    found = config(tmp_path, "", {"HF_HUB_OFFLINE": "1"})
    assert found.offline
    assert found.source_of("offline") == "from HF_HUB_OFFLINE"
    assert not config(tmp_path, "", {"HF_HUB_OFFLINE": "1", "LOCALSPEC_OFFLINE": "off"}).offline
    assert not config(tmp_path, "", {"HF_HUB_OFFLINE": "perhaps"}).offline


def test_a_misspelt_variable_is_reported_not_fatal(tmp_path: Path) -> None:
    env = {"LOCALSPEC_THREAD": "2", "LOCALSPEC_HOME": "/x", "LOCALSPEC_ZZZZ": "1"}
    assert config(tmp_path, "", env).warnings == (
        'LOCALSPEC_THREAD is set, but there is no such setting. Did you mean "THREADS"?',
    )


def test_the_default_file_is_the_one_of_paths(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LOCALSPEC_HOME", str(tmp_path))
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "config.yaml").write_text("theme: nord\n", encoding="utf-8")
    assert load_config().theme == "nord"


def test_every_setting_is_explained_in_the_source() -> None:
    source = (Path(__file__).parent.parent / "localspec" / "config.py").read_text("utf-8")
    for name in setting_names():
        _, _, after = source.partition(f"\n    {name}: ")
        assert after.split("\n", 2)[1].strip().startswith('"""'), name
