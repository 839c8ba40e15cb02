"""Every directory and file the program owns or reads; nothing else builds such a path.

``LOCALSPEC_HOME`` moves all of localspec's own directories below one root (tests use it). Model
files live in the Hugging Face cache, so that other programs share them.
"""

from __future__ import annotations

import json
import os
import tempfile
from pathlib import Path

import platformdirs

APP = "localspec"


def _own(kind: str) -> Path:
    root = os.environ.get("LOCALSPEC_HOME")
    if root:
        return Path(root).expanduser() / kind
    found = {
        "config": platformdirs.user_config_path,
        "data": platformdirs.user_data_path,
        "cache": platformdirs.user_cache_path,
        "log": platformdirs.user_log_path,
    }[kind]
    return found(APP, appauthor=False)


def config_dir() -> Path:
    """The user's settings, profiles and catalog."""
    return _own("config")


def config_file() -> Path:
    """The user's settings file; it need not exist."""
    return config_dir() / "config.yaml"


def user_profiles_dir() -> Path:
    """Profiles that add to or replace the shipped ones."""
    return config_dir() / "profiles"


def user_catalog_file() -> Path:
    """The user's own models and pairs; it need not exist."""
    return config_dir() / "models.yaml"


def data_dir() -> Path:
    """Saved chats, learned costs, history index."""
    return _own("data")


def chats_file() -> Path:
    """The database of saved chats."""
    return data_dir() / "chats.sqlite3"


def learned_dir() -> Path:
    """What was measured about speed on this machine; deleting it is harmless."""
    return data_dir() / "learned"


def history_dir() -> Path:
    """The index of earlier texts that the history drafter reads."""
    return data_dir() / "history"


def cache_dir() -> Path:
    """Anything that can be made again."""
    return _own("cache")


def log_file() -> Path:
    """Where llama.cpp's own messages and our warnings go."""
    return _own("log") / "localspec.log"


def hub_cache() -> Path:
    """The Hugging Face cache, found the way huggingface_hub and llama.cpp find it."""
    for name in ("HF_HUB_CACHE", "HUGGINGFACE_HUB_CACHE"):
        if os.environ.get(name):
            return Path(os.environ[name]).expanduser()
    if os.environ.get("HF_HOME"):
        return Path(os.environ["HF_HOME"]).expanduser() / "hub"
    base = os.environ.get("XDG_CACHE_HOME")
    root = Path(base).expanduser() if base else Path.home() / ".cache"
    return root / "huggingface" / "hub"


def _shipped(name: str, in_repository: str = "") -> Path:
    """A file of the repository (at its top, or as named), which a wheel carries below
    ``localspec/data``."""
    inside = Path(__file__).parent / "data" / name
    return inside if inside.exists() else Path(__file__).parent.parent / (in_repository or name)


def catalog_file() -> Path:
    """The shipped catalog, ``models.yaml``."""
    return _shipped("models.yaml")


def bench_prompts_file() -> Path:
    """The shipped prompts of ``localspec bench``: ``bench/data/prompts.yaml`` of the repository."""
    return _shipped("prompts.yaml", "bench/data/prompts.yaml")


def profiles_dir() -> Path:
    """The shipped profiles."""
    return _shipped("profiles")


def make_private_dir(path: Path) -> Path:
    """Make ``path`` (and its parents); a directory that we make is readable by its owner only."""
    if not path.is_dir():
        path.mkdir(parents=True, exist_ok=True)
        path.chmod(0o700)
    return path


def write_private(path: Path, content: bytes) -> None:
    """Replace ``path`` by ``content`` in one step, readable by its owner only.

    A reader sees the old file or the new one, never a part. Raises OSError.
    """
    make_private_dir(path.parent)
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")  # mode 0600
    temporary = Path(name)
    try:
        with os.fdopen(handle, "wb") as stream:
            stream.write(content)
            stream.flush()
            os.fsync(stream.fileno())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def llama_cpp_caches() -> list[Path]:
    """Where llama.cpp keeps what it downloaded: LLAMA_CACHE, else its directory for this system."""
    if os.environ.get("LLAMA_CACHE"):
        return [Path(os.environ["LLAMA_CACHE"]).expanduser()]
    if os.name == "nt":  # llama.cpp does not use the "Cache" directory that platformdirs names
        local = os.environ.get("LOCALAPPDATA")
        return [Path(local) / "llama.cpp"] if local else []
    return [platformdirs.user_cache_path("llama.cpp", appauthor=False)]


def lm_studio_dirs() -> list[Path]:
    """Where LM Studio keeps models: its home as its pointer file names it, and the usual places.

    The directory may have been moved in its settings (``downloadsFolder``).
    """
    homes = [Path.home() / ".lmstudio", Path.home() / ".cache" / "lm-studio"]
    try:
        pointer = (Path.home() / ".lmstudio-home-pointer").read_text(encoding="utf-8")[:4096]
        homes.insert(0, Path(pointer.strip()))
    except (OSError, UnicodeDecodeError):
        pass
    found = []
    for home in homes:
        found.append(home / "models")
        try:
            settings = json.loads((home / "settings.json").read_bytes()[: 1 << 20])
            moved = settings.get("downloadsFolder")
        except (OSError, ValueError, AttributeError):
            continue
        if isinstance(moved, str) and moved and "\0" not in moved:
            found.append(Path(moved).expanduser())
    return found


def ollama_dirs() -> list[Path]:
    """Where Ollama keeps models: OLLAMA_MODELS, the user's directory, and that of its service."""
    if os.environ.get("OLLAMA_MODELS"):
        return [Path(os.environ["OLLAMA_MODELS"]).expanduser()]
    service = Path("/usr/share/ollama/.ollama/models")
    return [Path.home() / ".ollama" / "models", service]
