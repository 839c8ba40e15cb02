"""Models that other programs keep, the list of all, and what may be removed."""

from __future__ import annotations

import json
import os
import random
from pathlib import Path

import pytest
from click.testing import CliRunner, Result
from helpers_store import COMMIT, NAME, REPO, FakeHub, model, sha256

from localspec import paths
from localspec.__main__ import main
from localspec.cli import cli
from localspec.errors import DownloadError, UsageError
from localspec.files import ModelFile, Shard
from localspec.store import Store

CONTENT = random.Random(4).randbytes(5000)


def put(path: Path, content: bytes = CONTENT) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)
    return path


def ollama(root: Path, name: str, content: bytes, *, kind: str = "model") -> Path:
    """A model as Ollama lays it out; returns the blob."""
    digest = sha256(content)
    layers = [
        {"mediaType": "application/vnd.ollama.image.template", "digest": "sha256:" + "0" * 64},
        {"mediaType": f"application/vnd.ollama.image.{kind}", "digest": f"sha256:{digest}"},
    ]
    put(root / "manifests" / name, json.dumps({"layers": layers}).encode())
    return put(root / "blobs" / f"sha256-{digest}", content)


@pytest.fixture
def home() -> Path:
    return Path(os.environ["HOME"])


def test_models_are_found_where_their_programs_keep_them(home: Path, tmp_path: Path) -> None:
    flat = put(paths.llama_cpp_caches()[0] / "ggml-org_tiny-GGUF_tiny-Q8_0.gguf", b"1" * 10)
    put(flat.with_name("ggml-org_tiny-GGUF_mmproj-F16.gguf"))
    put(flat.with_name("ggml-org_tiny-GGUF_tiny-Q8_0.gguf.json"))
    studio = put(home / ".lmstudio" / "models" / REPO / NAME, b"2" * 10)
    put(studio.with_name("mmproj-tiny-F16.gguf"))
    blob = ollama(home / ".ollama/models", "registry.ollama.ai/library/tiny/1b", b"3" * 10)
    ollama(home / ".ollama/models", "registry.ollama.ai/me/other/latest", b"4" * 10)
    ollama(home / ".ollama/models", "hf.co/x/y/Q4_K_M", b"5" * 10)
    ollama(home / ".ollama/models", "registry.ollama.ai/library/eyes/1", b"6", kind="projector")
    put(home / ".ollama/models/manifests/registry.ollama.ai/library/broken/1", b"{not json")
    first = put(tmp_path / "mine" / "deep" / "big-00001-of-00002.gguf", b"7" * 10)
    put(first.with_name("big-00002-of-00002.gguf"), b"8" * 5)
    put(first.with_name("half-00001-of-00002.gguf"), b"9")
    put(first.with_name("empty.gguf"), b"")
    store = Store(tmp_path / "cache", extra_dirs=[tmp_path / "mine"])
    found = {(e.name, e.origin, e.path, e.n_bytes) for e in store.inventory()}
    assert found == {
        (flat.name, "llama.cpp", flat, 10),
        (f"{REPO}:Q4_K_M", "lmstudio", studio, 10),
        ("ollama:tiny:1b", "ollama", blob, 10),
        ("ollama:me/other:latest", "ollama", _blob(home, b"4" * 10), 10),
        ("ollama:hf.co/x/y:Q4_K_M", "ollama", _blob(home, b"5" * 10), 10),
        (str(first), "directory", first, 15),
    }
    assert not any(entry.removable for entry in store.inventory())


def _blob(home: Path, content: bytes) -> Path:
    return home / ".ollama/models/blobs" / f"sha256-{sha256(content)}"


def test_directories_that_were_moved(
    home: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama"))
    monkeypatch.setenv("OLLAMA_MODELS", str(tmp_path / "ollama"))
    settings = json.dumps({"downloadsFolder": str(tmp_path / "studio")})
    put(home / "elsewhere" / "settings.json", settings.encode())
    put(home / ".lmstudio-home-pointer", str(home / "elsewhere").encode())
    put(tmp_path / "llama" / "a_b_c-Q8_0.gguf", b"1")
    ollama(tmp_path / "ollama", "registry.ollama.ai/library/tiny/1b", b"2")
    put(tmp_path / "studio" / REPO / NAME, b"3")
    origins = {entry.origin for entry in Store(tmp_path / "cache").inventory()}
    assert origins == {"llama.cpp", "ollama", "lmstudio"}


def test_llama_cpp_cache_in_the_hub_layout(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("LLAMA_CACHE", str(tmp_path / "llama"))
    hub.files[REPO, NAME] = CONTENT
    path = Store(tmp_path / "llama", source="hub", hub=hub.settings()).fetch([model(CONTENT)])[0]
    store = Store(tmp_path / "cache")
    assert [entry.path for entry in store.inventory()] == [path]
    assert store.find(model(CONTENT)) == path


@pytest.mark.parametrize("where", ["ollama", "lmstudio", "llama.cpp", "mine"])
def test_catalog_file_that_is_here_already_is_used_in_place(
    home: Path, tmp_path: Path, where: str
) -> None:
    if where == "ollama":
        path = ollama(home / ".ollama/models", "registry.ollama.ai/library/t/1", CONTENT)
    else:
        folder, name = {
            "lmstudio": (home / ".lmstudio/models" / REPO, NAME),
            "llama.cpp": (paths.llama_cpp_caches()[0], f"{REPO.replace('/', '_')}_{NAME}"),
            "mine": (tmp_path / "mine", NAME),
        }[where]
        path = put(folder / name)
    store = Store(tmp_path / "cache", offline=True, extra_dirs=[tmp_path / "mine"])
    assert store.fetch([model(CONTENT)]) == [path]
    assert not (tmp_path / "cache").exists()


def test_same_name_with_another_size_is_another_file(home: Path, tmp_path: Path) -> None:
    put(home / ".lmstudio/models" / REPO / NAME, CONTENT + b"x")
    assert Store(tmp_path / "cache").find(model(CONTENT)) is None


def test_cut_file_in_the_cache_is_not_taken_for_whole(tmp_path: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    store = Store(tmp_path / "cache", source="hub", hub=hub.settings())
    path = store.fetch([model(CONTENT)])[0]
    path.resolve().write_bytes(CONTENT[:-1])
    assert store.find(model(CONTENT)) is None
    assert store.fetch([model(CONTENT)])[0].read_bytes() == CONTENT


def test_other_content_under_the_pinned_name_is_not_taken(tmp_path: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT[::-1]
    store = Store(tmp_path / "cache", source="hub", hub=hub.settings())
    store.fetch([model(CONTENT[::-1])])
    assert store.find(model(CONTENT)) is None


def test_without_links_the_file_itself_moves(
    tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object) -> None:
        raise OSError("A required privilege is not held by the client")

    monkeypatch.setattr(Path, "symlink_to", refuse)
    hub.files[REPO, NAME] = CONTENT
    store = Store(tmp_path / "cache", source="hub", hub=hub.settings())
    path = store.fetch([model(CONTENT)])[0]
    assert path.is_file()
    assert not path.is_symlink()
    hub.asked.clear()
    assert store.fetch([model(CONTENT)]) == [path]
    assert hub.asked == []
    (entry,) = store.inventory()
    assert store.remove(entry) == len(CONTENT)
    assert list((tmp_path / "cache").glob("models--*")) == []


def test_names_of_hub_models(tmp_path: Path, hub: FakeHub) -> None:
    names = ["a-Q4_K_M.gguf", "b-Q4_K_M.gguf", "b-Q8_0.gguf"]
    for i, name in enumerate(names):
        hub.files[REPO, name] = CONTENT[i:]
    store = Store(tmp_path / "cache", source="hub", hub=hub.settings())
    store.fetch([model(CONTENT[i:], name) for i, name in enumerate(names)])
    listed = [entry.name for entry in store.inventory()]
    assert listed == [f"{REPO}:{names[0]}", f"{REPO}:{names[1]}", f"{REPO}:Q8_0"]
    located = store.locate(f"{REPO}:q8_0")
    assert located is not None
    assert located.path.name == "b-Q8_0.gguf"
    assert located.file.path == located.path
    assert store.locate("b-Q8_0") == located
    assert store.locate("nothing") is None
    put(tmp_path / "mine" / "b-Q8_0.gguf")
    with pytest.raises(UsageError, match="fits several"):
        Store(tmp_path / "cache", extra_dirs=[tmp_path / "mine"]).locate("b-Q8_0")


def test_resolve_from_the_servers_list(tmp_path: Path, hub: FakeHub) -> None:
    for name in ("m-IQ4_K_M.gguf", "m-Q4_K_M.gguf", "mmproj-Q4_K_M.gguf", "README.md"):
        hub.files[REPO, name] = CONTENT
    store = Store(tmp_path / "cache", source="hub", hub=hub.settings())
    found = store.resolve_hub(REPO, "Q4_K_M")
    assert found.shards == (Shard("m-Q4_K_M.gguf", len(CONTENT), sha256(CONTENT)),)
    assert (found.repo, found.revision, found.quant) == (REPO, COMMIT, "Q4_K_M")
    assert store.fetch([found])[0].read_bytes() == CONTENT


def test_resolve_falls_back_to_the_cache(tmp_path: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    cache = tmp_path / "cache"
    Store(cache, source="hub", hub=hub.settings()).fetch([model(CONTENT)])
    hub.close()
    store = Store(cache, source="hub", hub=hub.settings())
    found = store.resolve_hub(REPO, "Q4_K_M", refresh=True)
    assert store.find(found) is not None


def test_remove_only_what_is_ours(tmp_path: Path, hub: FakeHub, home: Path) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.files[REPO, "other-Q8_0.gguf"] = CONTENT[::-1]
    cache = tmp_path / "cache"
    store = Store(cache, source="hub", hub=hub.settings())
    store.fetch([model(CONTENT), model(CONTENT[::-1], "other-Q8_0.gguf")])
    record = cache / "models--someone--Tiny-GGUF" / ".localspec.json"
    record.write_text(json.dumps({"files": {f"{COMMIT}/{NAME}": sha256(CONTENT)}}))
    studio = put(home / ".lmstudio" / "models" / "a/b" / "c-Q8_0.gguf")
    by_name = {entry.path.name: entry for entry in store.inventory()}
    for name in ("other-Q8_0.gguf", "c-Q8_0.gguf"):
        with pytest.raises(DownloadError, match="left alone"):
            store.remove(by_name[name])
    assert studio.exists()
    assert store.remove(by_name[NAME]) == len(CONTENT)
    assert store.find(model(CONTENT)) is None
    assert store.find(model(CONTENT[::-1], "other-Q8_0.gguf")) is not None


def test_blob_in_a_store_shared_by_repositories(tmp_path: Path, hub: FakeHub) -> None:
    """huggingface_hub may put the bytes into ``blobs/xx/<another hash>`` and link to them."""
    repo = tmp_path / "cache" / "models--someone--Tiny-GGUF"
    shared = put(tmp_path / "cache" / "blobs" / "ab" / ("ab" * 32))
    for folder in ("blobs", f"snapshots/{COMMIT}"):
        (repo / folder).mkdir(parents=True)
    (repo / "blobs" / sha256(CONTENT)).symlink_to(f"../../blobs/ab/{'ab' * 32}")
    pointer = repo / "snapshots" / COMMIT / NAME
    pointer.symlink_to(f"../../blobs/{sha256(CONTENT)}")
    store = Store(tmp_path / "cache", source="hub", hub=hub.settings())
    assert store.fetch([model(CONTENT)]) == [pointer]
    # The same bytes in a new commit: linked, not fetched, and still not ours.
    hub.files[REPO, NAME], hub.commit = CONTENT, "b" * 40
    newer = store.fetch([model(CONTENT, revision="b" * 40)])[0]
    assert newer.read_bytes() == CONTENT
    assert hub.bodies() == []
    (entry,) = store.inventory()
    with pytest.raises(DownloadError, match="left alone"):
        store.remove(entry)
    assert shared.exists()


def test_remove_keeps_bytes_that_another_name_needs(tmp_path: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = hub.files[REPO, "twin-Q8_0.gguf"] = CONTENT
    store = Store(tmp_path / "cache", source="hub", hub=hub.settings())
    store.fetch([model(CONTENT), model(CONTENT, "twin-Q8_0.gguf")])
    assert len(hub.bodies()) == 1
    repo = store.check_removable(store.inventory()[0])
    assert repo.remove({NAME}) == 0
    assert store.find(model(CONTENT, "twin-Q8_0.gguf")) is not None
    assert repo.remove({"twin-Q8_0.gguf"}) == len(CONTENT)
    assert not repo.folder.exists()


def test_unfinished_downloads_are_shown_and_ours_removed(tmp_path: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.cut_bodies(100, *[0] * 9)
    store = Store(tmp_path / "cache", source="hub", hub=hub.settings())
    with pytest.raises(DownloadError):
        store.fetch([model(CONTENT)])
    foreign = put(store.leftovers()[0].path.with_name("abc.1234abcd.incomplete"), b"x")
    shown = {(left.n_bytes, left.is_ours) for left in store.leftovers()}
    assert shown == {(100, True), (1, False)}
    assert store.remove_leftovers() == 100
    assert [left.path for left in store.leftovers()] == [foreign]


@pytest.fixture
def cached(tmp_path: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch) -> ModelFile:
    """One model that localspec downloaded into the cache that the commands use."""
    monkeypatch.setenv("HF_HUB_CACHE", str(tmp_path / "cache"))
    hub.files[REPO, NAME] = CONTENT
    Store(source="hub", hub=hub.settings()).fetch([model(CONTENT)])
    return model(CONTENT)


def run(*args: str, stdin: str | None = None) -> Result:
    return CliRunner().invoke(cli, args, input=stdin)


@pytest.mark.usefixtures("cached")
def test_list_command() -> None:
    result = run("list")
    assert result.exit_code == 0
    assert f"{REPO}:Q4_K_M" in result.stdout
    found = json.loads(run("list", "--json").stdout)
    (only,) = found["models"]
    assert only["name"] == f"{REPO}:Q4_K_M"
    assert only["n_bytes"] == len(CONTENT)
    assert only["origin"] == "hub"
    assert only["removable"] is True
    assert found["unfinished"] == []


def test_list_of_nothing() -> None:
    result = run("list")
    assert result.stdout == ""
    assert "no models" in result.stderr


def test_rm_command(cached: ModelFile, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["rm", f"{REPO}:Q4_K_M"]) == 2  # nobody to ask
    assert "--yes" in capsys.readouterr().err
    assert Store().find(cached) is not None
    assert main(["rm", f"{REPO}:Q4_K_M", "--yes"]) == 0
    assert "4.88 KiB freed" in capsys.readouterr().err
    assert Store().find(cached) is None
    assert main(["rm", f"{REPO}:Q4_K_M", "--yes"]) == 1
    assert main(["rm"]) == 2


def test_rm_leaves_other_programs_alone(home: Path, capsys: pytest.CaptureFixture[str]) -> None:
    blob = ollama(home / ".ollama/models", "registry.ollama.ai/library/tiny/1b", CONTENT)
    assert main(["rm", "--yes", "ollama:tiny:1b"]) == 3
    assert "belongs to Ollama" in capsys.readouterr().err
    assert blob.exists()


@pytest.mark.usefixtures("cached")
def test_pull_command_for_a_model_that_is_here(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    assert main(["pull", f"{REPO}:Q4_K_M"]) == 0
    assert capsys.readouterr().out.strip().endswith(NAME)
    assert main(["pull", "nothing-like-it"]) == 1
    assert main(["pull", "a/b/c"]) == 2
