from pathlib import Path

import pytest
from helpers_gguf import byte_metadata, byte_vocab, llama_metadata, write_gguf, write_tiny_llama

from localspec.errors import ModelFileError
from localspec.files import ModelFile, Shard
from localspec.gguf import join_headers, read_header
from localspec.heads import header_of
from localspec.store import local_model


class RemoteStore:
    """Gives prefixes of ``data`` and counts what was asked for."""

    def __init__(self, data: bytes) -> None:
        self.data = data
        self.asked: list[int] = []

    def find(self, _file: ModelFile) -> Path | None:
        return None

    def read_head(self, _file: ModelFile, n_bytes: int) -> bytes:
        self.asked.append(n_bytes)
        return self.data[:n_bytes]


class DiskStore:
    def find(self, file: ModelFile) -> Path | None:
        return file.path


def remote(n_bytes: int | None) -> ModelFile:
    return ModelFile("m", (Shard("m.gguf", n_bytes),), repo="owner/m")


def test_only_as_much_is_fetched_as_the_header_needs(tmp_path):
    tokens = [f"token number {n:08d}" for n in range(60_000)]
    head = write_gguf(tmp_path / "m.gguf", llama_metadata(), tokens=tokens).read_bytes()
    store = RemoteStore(head + b"\0" * (64 << 20))
    header = header_of(remote(len(store.data)), store)
    assert len(header.tokens) == 60_000
    assert store.asked == [1 << 20, 8 << 20]


@pytest.mark.parametrize("known", [True, False])
def test_a_small_remote_file_is_read_whole(tmp_path, known):
    data = write_tiny_llama(tmp_path / "m.gguf").read_bytes()
    assert header_of(remote(len(data) if known else None), RemoteStore(data)).n_vocab == 258


def test_what_a_server_sends_instead_of_a_model_is_named():
    with pytest.raises(ModelFileError, match=r"owner/m/m\.gguf is a web page"):
        header_of(remote(None), RemoteStore(b"<!doctype html><title>Sign in</title>"))


def test_a_server_that_sends_less_than_it_promised_is_named(tmp_path):
    data = write_tiny_llama(tmp_path / "m.gguf").read_bytes()
    with pytest.raises(ModelFileError, match="sent only 500 bytes"):
        header_of(remote(len(data)), RemoteStore(data[:500]))


def split(folder: Path) -> list[Path]:
    """A model in two parts: the tensors of the whole one, divided."""
    tokens, types = byte_vocab()
    whole = write_tiny_llama(folder / "whole.gguf")
    names = [tensor.name for tensor in read_header(whole).tensors]
    import gguf as package  # noqa: PLC0415 - only to copy tensors

    tensors = {t.name: t.data for t in package.GGUFReader(whole).tensors}
    paths = []
    for part, some in enumerate((names[:5], names[5:])):
        meta = {"split.no": part, "split.count": 2}
        path = folder / f"m-{part + 1:05d}-of-00002.gguf"
        extra = llama_metadata() | byte_metadata() if part == 0 else {}
        paths.append(
            write_gguf(
                path,
                extra | meta,
                {name: tensors[name] for name in some},
                tokens=tokens if part == 0 else None,
                token_types=types if part == 0 else None,
            )
        )
    return paths


def test_a_split_model_on_the_disk_is_joined(tmp_path):
    paths = split(tmp_path)
    whole = read_header(tmp_path / "whole.gguf")
    header = header_of(local_model(paths[1]), DiskStore())
    assert {t.name for t in header.tensors} == {t.name for t in whole.tensors}
    assert header.weight_bytes == whole.weight_bytes
    assert header.n_vocab == 258
    assert header.file_bytes == sum(path.stat().st_size for path in paths)


def test_a_missing_part_is_named(tmp_path):
    first = read_header(split(tmp_path)[0])
    with pytest.raises(ModelFileError, match="has 2 parts but only 1 of them"):
        join_headers([first])
