"""What model files weigh and cache, for memory plans: from their headers, else from the catalog."""

from __future__ import annotations

from collections.abc import Collection
from pathlib import Path

from localspec.errors import DownloadError, LocalspecError, ModelNotFoundError
from localspec.files import ModelFile
from localspec.header import Header
from localspec.heads import header_of
from localspec.memory import Shape
from localspec.nextn import heads_of
from localspec.pairs import heads_by_size, shape_by_numbers
from localspec.store import Store


class Shapes:
    """Headers are read once; those of files that are not here come by a range request.

    ``repacked``: the tensor types that llama.cpp keeps rearranged copies of on this CPU.
    """

    def __init__(self, store: Store, repacked: Collection[str] = ()) -> None:
        self._store = store
        self.repacked = frozenset(repacked)
        self._headers: dict[tuple[str, Path | None], Header] = {}

    def header(self, file: ModelFile) -> Header | None:
        """The header, None if the file is not here and the Hub does not give its beginning.

        Raises ModelFileError for a file that is here and broken.
        """
        # By path too: once it is downloaded, the whole header takes the place of its beginning.
        key = (file.id, self._store.find(file))
        found = self._headers.get(key)
        if found is None:
            try:
                found = self._headers[key] = header_of(file, self._store)
            except (DownloadError, ModelNotFoundError):
                if key[1] is not None:
                    raise
                return None
        return found

    def of(self, file: ModelFile, header: Header | None) -> Shape | None:
        """By ``header`` if there is one, else by the catalog; None: too little is known."""
        if header is None:
            return self.by_numbers(file)
        shape = Shape.of(header, self.repacked)
        whole = file.n_bytes
        is_first_part = header.split_count > 1 and len(file.shards) > 1
        return shape.scaled_to(whole) if is_first_part and whole else shape

    def by_numbers(self, file: ModelFile) -> Shape | None:
        """By what the catalog knows, without looking at the file; None: too little is known."""
        return shape_by_numbers(file, repacks=bool(self.repacked))

    def of_draft(self, file: ModelFile, header: Header | None, target: Shape) -> Shape | None:
        """The same for a draft: of a file with MTP heads only, the heads."""
        if header is None:
            return self.by_numbers(file) or heads_by_size(file, target)
        found = heads_of(header)
        if found is not None and found.kind != "inside":
            return Shape.of_heads(header, self.repacked)
        return self.of(file, header)

    def forget(self, file: ModelFile) -> None:
        """Give back what its header takes: a vocabulary has megabytes."""
        self._headers.pop((file.id, self._store.find(file)), None)

    def header_here(self, file: ModelFile) -> Header | None:
        """The header of a file that is here, without asking the network. None also for a broken
        one: what is wrong with it is said when it is opened."""
        if self._store.find(file) is None:
            return None
        try:
            return self.header(file)
        except LocalspecError:
            return None
