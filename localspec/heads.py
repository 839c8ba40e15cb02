"""The header of a model wherever it is: on this disk whole, else the first bytes from the Hub."""

from __future__ import annotations

from localspec.errors import ModelFileError
from localspec.files import ModelFile
from localspec.gguf import FIRST_READ, NeedMore, join_headers, parse_header, read_header
from localspec.header import Header
from localspec.store import Store


def header_of(file: ModelFile, store: Store) -> Header:
    """The header of ``file``; of a split model that is not here, its first part's.

    Raises ModelNotFoundError, ModelFileError, and DownloadError when it has to be asked for.
    """
    path = file.path or store.find(file)  # a file that was named is read whatever is in it
    if path is None:
        return _remote(file, store)
    first = read_header(path)
    if first.split_count == 1 or len(file.shards) != first.split_count:
        return first
    names = [shard.name.rpartition("/")[2] for shard in file.shards[1:]]
    return join_headers([first, *(read_header(path.parent / name) for name in names)])


def _remote(file: ModelFile, store: Store) -> Header:
    shard = file.shards[0]
    name = f"{file.repo}/{shard.name}" if file.repo else shard.name
    wanted = FIRST_READ
    while True:
        data = store.read_head(file, wanted)
        n_bytes = shard.n_bytes
        if len(data) < wanted:  # that is all there is
            if n_bytes is not None and len(data) < min(n_bytes, wanted):
                raise ModelFileError(f"The server sent only {len(data)} bytes of {name}.")
            n_bytes = len(data)
        try:
            return parse_header(data, n_bytes, name=name)
        except NeedMore as more:
            wanted = more.n_bytes
