"""The real downloader against a local server that behaves like a Hub, and misbehaves."""

from __future__ import annotations

import errno
import random
import shutil
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers_store import (
    COMMIT,
    NAME,
    REPO,
    Answer,
    Asked,
    FakeHub,
    Recorder,
    fake_hub,
    model,
    sha256,
)

from localspec.errors import (
    AccessError,
    ConfigError,
    DiskSpaceError,
    DownloadCancelledError,
    DownloadError,
    HubUnreachableError,
    IntegrityError,
    LocalspecError,
    ModelNotFoundError,
    RateLimitError,
)
from localspec.files import ModelFile, Shard
from localspec.store import Store
from localspec.store.hub import settings_from_environment
from localspec.store.partial import PartialFile

CONTENT = random.Random(1).randbytes(300_000)
TOKEN = "hf_secretsecretsecret"


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def store(cache: Path, hub: FakeHub, token: str | None = None, **options: object) -> Store:
    options.setdefault("source", "hub")
    return Store(cache, hub=hub.settings(token), **options)  # type: ignore[arg-type]


def leftovers(cache: Path) -> list[str]:
    return [p.name for p in cache.rglob("*") if ".incomplete" in p.name]


def test_file_appears_in_the_layout_that_other_programs_read(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    progress = Recorder()
    path = store(cache, hub, progress=progress).fetch([model(CONTENT)])[0]
    repo = cache / "models--someone--Tiny-GGUF"
    assert path == repo / "snapshots" / COMMIT / NAME
    assert path.read_bytes() == CONTENT
    assert path.resolve() == (repo / "blobs" / sha256(CONTENT)).resolve()
    assert (repo / "refs" / "main").read_text() == COMMIT
    assert leftovers(cache) == []
    assert progress.totals == [len(CONTENT)]
    assert progress.n_done == len(CONTENT)
    assert progress.n_finished == 1


def test_huggingface_hub_finds_what_we_fetched(cache: Path, hub: FakeHub) -> None:
    huggingface_hub = pytest.importorskip("huggingface_hub")
    hub.files[REPO, NAME] = CONTENT
    path = store(cache, hub).fetch([model(CONTENT)])[0]
    for revision in (COMMIT, "main"):
        found = huggingface_hub.try_to_load_from_cache(REPO, NAME, cache, revision)
        assert Path(found) == path
    scanned = huggingface_hub.scan_cache_dir(cache)
    assert [repo.repo_id for repo in scanned.repos] == [REPO]
    assert list(scanned.warnings) == []


def test_warm_cache_asks_nothing(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    first = store(cache, hub).fetch([model(CONTENT)])
    hub.asked.clear()
    again = store(cache, hub, offline=True)
    assert again.fetch([model(CONTENT)]) == first
    assert again.read_head(model(CONTENT), 10) == CONTENT[:10]
    assert again.resolve_hub(REPO, "Q4_K_M").revision == COMMIT
    assert again.missing_bytes([model(CONTENT)]) == 0
    assert hub.asked == []


def test_offline_with_a_cold_cache_says_so(
    cache: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_HUB_OFFLINE", "1")
    with pytest.raises(HubUnreachableError, match="offline mode is on"):
        store(cache, hub).fetch([model(CONTENT)])
    assert hub.asked == []


@pytest.mark.parametrize("seed", range(50))
def test_cut_at_random_bytes_loses_nothing(cache: Path, hub: FakeHub, seed: int) -> None:
    chance = random.Random(seed)
    content = chance.randbytes(chance.randrange(1, 60_000))
    hub.files[REPO, NAME] = content
    hub.cut_bodies(*(chance.randrange(0, len(content)) for _ in range(chance.randrange(1, 4))))
    progress = Recorder()
    path = store(cache, hub, progress=progress).fetch([model(content)])[0]
    assert path.read_bytes() == content
    assert progress.n_done == len(content)
    assert leftovers(cache) == []
    n_sent = 0
    for asked in hub.bodies()[1:]:
        start = int(asked.range.removeprefix("bytes=").rstrip("-") or 0)
        assert start >= n_sent, "what had arrived was asked for again"
        n_sent = start


def test_second_run_goes_on_where_the_first_was_cut(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.cut_bodies(120_000, 0, 0, 0, 0, 0)
    with pytest.raises(HubUnreachableError, match="keeps breaking"):
        store(cache, hub).fetch([model(CONTENT)])
    assert not (cache / "models--someone--Tiny-GGUF" / "snapshots").exists()
    hub.faults.clear()
    hub.asked.clear()
    progress = Recorder()
    again = store(cache, hub, progress=progress)
    assert again.missing_bytes([model(CONTENT)]) == len(CONTENT) - 120_000
    assert again.fetch([model(CONTENT)])[0].read_bytes() == CONTENT
    assert [asked.range for asked in hub.bodies()] == ["bytes=120000-"]
    assert progress.totals == [len(CONTENT) - 120_000]
    assert progress.n_done == len(CONTENT) - 120_000
    assert "going on with" in progress.notes[0]


def test_wrong_bytes_are_refused_and_leave_nothing(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.say(Answer(body=b"x" * len(CONTENT)), method="GET", host="storage")
    hub.faults[-1:] = [_body(b"x" * len(CONTENT))]
    with pytest.raises(IntegrityError, match="wrong content"):
        store(cache, hub).fetch([model(CONTENT)])
    assert leftovers(cache) == []
    assert store(cache, hub).find(model(CONTENT)) is None


def _body(content: bytes, times: int = 100) -> object:
    left = [content] * times

    def fault(asked: Asked) -> Answer | None:
        return Answer(body=left.pop()) if left and asked.host == "storage" else None

    return fault


def test_too_many_bytes_stop_at_the_promise(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.faults = [_body(CONTENT + b"more")]  # type: ignore[list-item]
    with pytest.raises(IntegrityError, match="more than the promised"):
        store(cache, hub).fetch([model(CONTENT)])
    assert store(cache, hub).find(model(CONTENT)) is None


def test_spoilt_saved_part_is_fetched_again(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    blobs = cache / "models--someone--Tiny-GGUF" / "blobs"
    blobs.mkdir(parents=True)
    (blobs / f"{sha256(CONTENT)}.incomplete").write_bytes(b"z" * 1000)
    progress = Recorder()
    path = store(cache, hub, progress=progress).fetch([model(CONTENT)])[0]
    assert path.read_bytes() == CONTENT
    assert any("starting over" in note for note in progress.notes)
    assert progress.n_done == len(CONTENT) - 1000


def test_file_that_changed_between_runs_starts_over(cache: Path, hub: FakeHub) -> None:
    unpinned = ModelFile(id="x", shards=(Shard(NAME),), repo=REPO)
    hub.files[REPO, NAME] = CONTENT
    hub.cut_bodies(1000, 0, 0, 0, 0, 0)
    with pytest.raises(HubUnreachableError):
        store(cache, hub).fetch([unpinned])
    changed = CONTENT[::-1]
    hub.files[REPO, NAME], hub.commit = changed, "b" * 40
    hub.faults.clear()
    progress = Recorder()
    path = store(cache, hub, progress=progress).fetch([unpinned])[0]
    assert path.read_bytes() == changed
    assert any("has changed on the server" in note for note in progress.notes)
    assert leftovers(cache) == []


def test_hub_file_that_is_not_the_catalogs_is_refused_before_a_byte(
    cache: Path, hub: FakeHub
) -> None:
    hub.files[REPO, NAME] = CONTENT[::-1]
    with pytest.raises(IntegrityError, match="not the file that the catalog describes"):
        store(cache, hub).fetch([model(CONTENT)])
    assert hub.bodies() == []


def test_server_without_ranges_starts_over_and_says_so(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.ranges = False
    hub.cut_bodies(50_000)
    progress = Recorder()
    path = store(cache, hub, progress=progress).fetch([model(CONTENT)])[0]
    assert path.read_bytes() == CONTENT
    assert any("starting over" in note for note in progress.notes)
    assert progress.n_done == len(CONTENT)


def test_refused_range_starts_over(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.cut_bodies(50_000)

    def refuse(asked: Asked) -> Answer | None:
        return Answer(status=416) if asked.host == "storage" and asked.range else None

    hub.faults.insert(0, refuse)
    assert store(cache, hub).fetch([model(CONTENT)])[0].read_bytes() == CONTENT


def test_server_errors_are_retried(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.say(Answer(status=503), Answer(status=500))
    hub.say(Answer(status=502), Answer(status=500), method="GET", host="storage")
    assert store(cache, hub).fetch([model(CONTENT)])[0].read_bytes() == CONTENT


def test_server_errors_do_not_go_on_for_ever(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.say(*[Answer(status=503)] * 50)
    with pytest.raises(HubUnreachableError, match="error 503"):
        store(cache, hub).fetch([model(CONTENT)])
    assert len(hub.asked) <= 5


def test_token_stays_with_its_host(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.good_tokens, hub.private = {TOKEN}, {REPO}
    assert store(cache, hub, TOKEN).fetch([model(CONTENT)])[0].read_bytes() == CONTENT
    sent = {asked.host: "authorization" in asked.headers for asked in hub.asked}
    assert sent == {"hub": True, "storage": False}
    assert TOKEN not in repr(hub.settings(TOKEN))


def test_renamed_repository_is_followed_with_the_token(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.good_tokens, hub.private = {TOKEN}, {REPO}

    def moved(asked: Asked) -> Answer | None:
        if asked.path.startswith("/old/name/"):
            return Answer(307, {"Location": asked.path.replace("old/name", REPO)})
        return None

    hub.faults.append(moved)
    file = model(CONTENT, repo="old/name")
    assert store(cache, hub, TOKEN).fetch([file])[0].read_bytes() == CONTENT


def test_endpoint_that_passes_on_to_another_hub_keeps_the_token(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    with fake_hub() as front:
        other = hub.endpoint.replace("127.0.0.1", "localhost")
        front.faults.append(lambda asked: Answer(308, {"Location": other + asked.path}))
        assert store(cache, front, TOKEN).fetch([model(CONTENT)])[0].read_bytes() == CONTENT
        assert all("authorization" in asked.headers for asked in front.asked)
    assert not any("authorization" in asked.headers for asked in hub.asked)


def test_redirects_in_circles(cache: Path, hub: FakeHub) -> None:
    hub.faults.append(lambda asked: Answer(302, {"Location": asked.path}))
    with pytest.raises(DownloadError, match="in circles"):
        store(cache, hub).fetch([model(CONTENT)])


@pytest.mark.parametrize("token", ["hf_ümlaut", "hf_with a blank"])
def test_token_that_can_be_none(monkeypatch: pytest.MonkeyPatch, token: str) -> None:
    monkeypatch.setenv("HF_TOKEN", token)
    with pytest.raises(ConfigError) as error:
        settings_from_environment()
    assert token not in error.value.message + error.value.hint


def test_settings_of_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "https://hub.example.org/")
    monkeypatch.setenv("HF_TOKEN", TOKEN)
    settings = settings_from_environment()
    assert (settings.endpoint, settings.token) == ("https://hub.example.org", TOKEN)
    monkeypatch.setenv("HF_HUB_DISABLE_IMPLICIT_TOKEN", "1")
    assert settings_from_environment().token is None
    monkeypatch.setenv("HF_ENDPOINT", "hub.example.org")
    with pytest.raises(ConfigError, match="not a web address"):
        settings_from_environment()


def test_expired_token_on_a_public_model_is_named_and_left_out(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    progress = Recorder()
    path = store(cache, hub, TOKEN, progress=progress).fetch([model(CONTENT)])[0]
    assert path.read_bytes() == CONTENT
    (note,) = progress.notes
    assert "token was refused" in note
    assert TOKEN not in note
    assert sum("authorization" in asked.headers for asked in hub.asked) == 1


def message(error: LocalspecError) -> str:
    return f"{error.message} {error.hint}"


def test_five_refusals_have_five_plain_messages(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    said = []
    hub.private = {REPO}
    with pytest.raises(AccessError, match="token was refused") as expired:
        store(cache, hub, TOKEN).fetch([model(CONTENT)])
    with pytest.raises(AccessError, match="private, or there is no such") as private:
        store(cache, hub).fetch([model(CONTENT)])
    hub.private, hub.gated, hub.good_tokens = set(), {REPO}, {TOKEN}
    with pytest.raises(AccessError, match="gated") as gated:
        store(cache, hub, TOKEN).fetch([model(CONTENT)])
    hub.gated = set()
    with pytest.raises(ModelNotFoundError, match="has no file") as missing:
        store(cache, hub).fetch([model(CONTENT, "other.gguf")])
    hub.say(*[Answer(status=429, headers={"Retry-After": "300"})] * 5)
    with pytest.raises(RateLimitError, match="in 5 min 0 s") as limited:
        store(cache, hub).fetch([model(CONTENT)])
    said = [message(e.value) for e in (expired, private, gated, missing, limited)]
    assert len(set(said)) == 5
    assert not any(TOKEN in text for text in said)
    assert f"{hub.endpoint}/{REPO}" in said[2]
    assert f"{hub.endpoint}/settings/tokens" in said[0]
    assert not cache.exists() or leftovers(cache) == []


def test_missing_repository(cache: Path, hub: FakeHub) -> None:
    hub.good_tokens = {TOKEN}
    with pytest.raises(ModelNotFoundError, match="no repository nobody/nothing"):
        store(cache, hub, TOKEN).fetch([model(CONTENT, repo="nobody/nothing")])


def test_short_wait_is_honoured(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.say(Answer(status=429, headers={"Retry-After": "0"}))
    assert store(cache, hub).fetch([model(CONTENT)])[0].read_bytes() == CONTENT


def test_web_page_in_place_of_the_hub(cache: Path, hub: FakeHub) -> None:
    hub.say(*[Answer(status=200, headers={"Content-Type": "text/html"})] * 9)
    with pytest.raises(HubUnreachableError, match="not as a Hugging Face Hub"):
        store(cache, hub).fetch([model(CONTENT)])


def test_web_page_in_place_of_the_file(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    page = Answer(status=200, headers={"Content-Type": "text/html"}, body=b"<html>")
    hub.say(page, method="GET", host="storage")
    with pytest.raises(IntegrityError, match="web page"):
        store(cache, hub).fetch([model(CONTENT)])
    assert store(cache, hub).find(model(CONTENT)) is None


def test_unknown_size_and_no_catalog_facts(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.sizes_known = False
    unpinned = ModelFile(id="x", shards=(Shard(NAME),), repo=REPO)
    progress = Recorder()
    assert store(cache, hub, progress=progress).fetch([unpinned])[0].read_bytes() == CONTENT
    assert progress.totals == [None]


def test_nobody_answers_is_found_out_once(cache: Path, hub: FakeHub) -> None:
    hub.say(*[Answer(stall_s=60.0)] * 9)
    settings = hub.settings(notice_s=1.0)
    quiet = Store(cache, source="hub", hub=settings)
    for _ in range(3):
        with pytest.raises(HubUnreachableError, match="does not answer"):
            quiet.fetch([model(CONTENT)])
    assert len(hub.asked) == 1


def test_target_and_draft_share_one_total(cache: Path, hub: FakeHub) -> None:
    other = CONTENT[:1000]
    hub.files[REPO, NAME] = CONTENT
    hub.files[REPO, "draft.gguf"] = other
    progress = Recorder()
    files = [model(CONTENT), model(other, "draft.gguf"), model(CONTENT)]
    paths = store(cache, hub, progress=progress).fetch(files)
    assert [path.read_bytes() for path in paths] == [CONTENT, other, CONTENT]
    assert progress.totals == [len(CONTENT) + len(other)]
    assert progress.labels == [f"Downloading {NAME} and 1 more"]
    assert progress.n_done == len(CONTENT) + len(other)


def test_full_disk_is_noticed_before_the_first_byte(
    cache: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.files[REPO, "draft.gguf"] = CONTENT[:1000]
    looked_at: list[Path] = []

    def disk_usage(path: Path) -> SimpleNamespace:
        looked_at.append(Path(path))
        return SimpleNamespace(free=16 << 20)

    monkeypatch.setattr(shutil, "disk_usage", disk_usage)
    files = [model(CONTENT), model(CONTENT[:1000], "draft.gguf")]
    with pytest.raises(DiskSpaceError) as error:
        store(cache, hub).fetch(files)
    assert str(cache) in error.value.message
    assert "16.0 MiB free" in error.value.message
    assert looked_at == [cache.parent]  # the nearest directory of the real cache that exists
    assert hub.bodies() == []
    assert not cache.exists()
    assert store(cache, hub, check_room=False).fetch(files)[0].read_bytes() == CONTENT


def test_cached_part_counts_for_the_room(
    cache: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.files[REPO, "draft.gguf"] = CONTENT[:1000]
    store(cache, hub).fetch([model(CONTENT)])
    free = (16 << 20) + 2000
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=free))
    files = [model(CONTENT), model(CONTENT[:1000], "draft.gguf")]
    assert len(store(cache, hub).fetch(files)) == 2


def test_disk_that_fills_up_keeps_what_arrived(
    cache: Path, hub: FakeHub, monkeypatch: pytest.MonkeyPatch
) -> None:
    hub.files[REPO, NAME] = CONTENT
    real = PartialFile.append

    def append(self: PartialFile, data: bytes) -> None:
        real(self, data[:70_000])
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(PartialFile, "append", append)
        with pytest.raises(DiskSpaceError, match="is full"):
            store(cache, hub).fetch([model(CONTENT)])
    assert store(cache, hub).find(model(CONTENT)) is None
    hub.asked.clear()
    assert store(cache, hub).fetch([model(CONTENT)])[0].read_bytes() == CONTENT
    assert hub.bodies()[0].range.startswith("bytes=")


def test_unwritable_cache(cache: Path, hub: FakeHub) -> None:
    cache.write_text("a file where the directory should be")
    hub.files[REPO, NAME] = CONTENT
    with pytest.raises(DownloadError, match="cannot write to"):
        store(cache, hub).fetch([model(CONTENT)])


def test_cancel_ends_a_stalled_download(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.hold_bodies(1000)
    progress = Recorder()
    with pytest.raises(DownloadCancelledError):
        store(cache, hub, progress=progress, cancelled=lambda: bool(hub.bodies())).fetch(
            [model(CONTENT)]
        )
    assert not hub.go_on.is_set()  # the server was still silent
    assert progress.n_finished == 1
    assert store(cache, hub).find(model(CONTENT)) is None


def test_cancel_while_nobody_answers(cache: Path, hub: FakeHub) -> None:
    hub.say(Answer(stall_s=60.0))
    with pytest.raises(DownloadCancelledError):
        store(cache, hub, cancelled=lambda: bool(hub.asked)).fetch([model(CONTENT)])


def test_head_of_a_remote_file_without_a_download(cache: Path, hub: FakeHub) -> None:
    hub.files[REPO, NAME] = CONTENT
    assert store(cache, hub).read_head(model(CONTENT), 5000) == CONTENT[:5000]
    assert [asked.range for asked in hub.bodies()] == ["bytes=0-4999"]
    hub.ranges = False
    assert store(cache, hub).read_head(model(CONTENT), 5000) == CONTENT[:5000]
    assert not cache.exists()


@pytest.mark.parametrize("name", ["../x.gguf", "/etc/x.gguf", "a/../../x.gguf", "C:x", "a\\b", ""])
def test_names_that_would_leave_the_cache(cache: Path, hub: FakeHub, name: str) -> None:
    with pytest.raises(DownloadError, match="not safe"):
        store(cache, hub).fetch([model(CONTENT, name)])
    assert not cache.exists()


def test_parts_of_a_split_model_come_together_or_not_at_all(cache: Path, hub: FakeHub) -> None:
    names = [f"big-Q4_K_M-0000{i}-of-00003.gguf" for i in (1, 2, 3)]
    contents = [CONTENT[i * 1000 : i * 1000 + 900] for i in range(3)]
    shards = tuple(Shard(n, len(c), sha256(c)) for n, c in zip(names, contents, strict=True))
    split = ModelFile(id="big", shards=shards, repo=REPO, revision=COMMIT)
    for name, content in list(zip(names, contents, strict=True))[:2]:
        hub.files[REPO, name] = content
    with pytest.raises(ModelNotFoundError, match="00003-of-00003"):
        store(cache, hub).fetch([split])
    assert hub.bodies() == []
    hub.files[REPO, names[2]] = contents[2]
    assert store(cache, hub).fetch([split])[0].name == names[0]
    (cache / "models--someone--Tiny-GGUF" / "snapshots" / COMMIT / names[1]).unlink()
    assert store(cache, hub).find(split) is None
    hub.asked.clear()
    assert store(cache, hub).fetch([split])[0].name == names[0]
    assert hub.bodies() == []  # the bytes were still there, only the name was gone
