"""``localspec show``: what a model file says about itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

if TYPE_CHECKING:
    from localspec.files import ModelFile
    from localspec.header import Header
    from localspec.store import Store

_ROLES = ("bos", "eos", "eot", "padding", "unknown")


@click.command()
@click.argument("name")
@click.option("--template", is_flag=True, help="Print the chat template and nothing else.")
@click.option("--offline", is_flag=True, default=None, help="Never use the network.")
@click.option("--json", "as_json", is_flag=True, help="One JSON object on standard output.")
def command(name: str, template: bool, offline: bool | None, as_json: bool) -> None:
    """Show a model's header: size, layers, vocabulary, template, licence, capabilities.

    NAME is a .gguf file, a model or pair of the catalog, a name that localspec list shows, or
    owner/repo:quant on the Hugging Face Hub; of a model that is not here only the first bytes are
    fetched.
    """
    from localspec import catalog
    from localspec.catalog import Pair
    from localspec.cli import output
    from localspec.config import load_config
    from localspec.errors import UsageError
    from localspec.heads import header_of
    from localspec.select import find_model, looks_like_path
    from localspec.store import Store
    from localspec.terminal import clean

    config = load_config().with_flags({"offline": offline})
    store = Store(source=config.source, offline=config.offline, extra_dirs=config.model_dirs)
    entry = None if looks_like_path(name) else store.locate(name)
    found: ModelFile | Pair = entry.file if entry else find_model(name, catalog.load(), store)
    files = list(found.files) if isinstance(found, Pair) else [found]
    headers = [header_of(file, store) for file in files]
    if template:
        if not headers[0].chat_template:
            raise UsageError(f"{files[0].id} has no chat template.")
        click.echo(clean(headers[0].chat_template))
        return
    shown = [_facts(file, header, store) for file, header in zip(files, headers, strict=True)]
    if as_json:
        output.data(shown[0] if len(shown) == 1 else {"models": shown})
        return
    for number, facts in enumerate(shown):
        if number:
            output.text("")
        for title, value in _rows(facts):
            output.text(f"{title:<16}  {value}")


def _facts(file: ModelFile, header: Header, store: Store) -> dict[str, Any]:
    path = store.find(file)
    n_bytes = header.file_bytes or file.n_bytes
    return {
        "id": file.id,
        "path": str(path) if path else None,
        "name": header.name or None,
        "n_bytes": n_bytes,
        "licence": header.licence or file.licence or None,
        "architecture": header.architecture,
        "tensor_types": _tensor_types(header),
        "n_layer": header.n_layer,
        "n_embd": header.n_embd,
        "n_head": max(header.n_head, default=0),
        "n_head_kv": max(header.n_head_kv, default=0),
        "n_ctx_train": header.n_ctx_train,
        "n_vocab": header.n_vocab,
        "tokenizer": header.tokenizer_model,
        "tokenizer_pre": header.tokenizer_pre or None,
        "special_tokens": _special(header),
        "add_bos": header.add_bos,
        "add_eos": header.add_eos,
        "has_chat_template": bool(header.chat_template),
        "n_files": header.split_count,
        "capabilities": _capabilities(header),
    }


def _tensor_types(header: Header) -> dict[str, int]:
    """Bytes of each type, the largest first."""
    sums: dict[str, int] = {}
    for tensor in header.tensors:
        sums[tensor.type.name] = sums.get(tensor.type.name, 0) + tensor.n_bytes
    return dict(sorted(sums.items(), key=lambda item: -item[1]))


def _special(header: Header) -> dict[str, dict[str, Any]]:
    found = {}
    for role in _ROLES:
        token = header.special(role)
        if token is not None and token < len(header.tokens):
            text = header.tokens[token][:80].decode("utf-8", "replace")
            found[role] = {"id": token, "text": text}
    return found


def _capabilities(header: Header) -> list[str]:
    from localspec.memory import Shape
    from localspec.nextn import heads_of

    shape = Shape.of(header)
    n_windows = sum(layer.window > 0 for layer in shape.layers)
    n_states = sum(layer.state_bytes > 0 for layer in shape.layers)
    found = []
    if n_windows:
        window = max(layer.window for layer in shape.layers)
        found.append(f"sliding window of {window} tokens in {n_windows} of {header.n_layer} layers")
    if n_states:
        found.append(f"recurrent state in {n_states} of {header.n_layer} layers")
    if header.is_mla:
        found.append("compressed keys and values (MLA)")
    if header.n_expert:
        found.append(f"{header.n_expert} experts, {header.n_expert_used} used for each token")
    heads = heads_of(header)
    if heads is not None:
        only = "only " * (heads.kind != "inside")
        layers = "layer that predicts" if heads.n == 1 else "layers that predict"
        use = f"cannot be used: {heads.unusable}" if heads.unusable else "can draft for it"
        if only and not heads.unusable:
            use = "draft for another model"
        found.append(f"{only}{heads.n} {layers} further tokens (MTP; {use})")
    elif header.n_layer_nextn:
        found.append("MTP heads named in its settings, but not in the file")
    return found


def _rows(facts: dict[str, Any]) -> list[tuple[str, str]]:
    from localspec.terminal import size

    types = ", ".join(f"{name} {size(n)}" for name, n in facts["tensor_types"].items())
    special = ", ".join(
        f"{role} {token['id']} {token['text']}" for role, token in facts["special_tokens"].items()
    )
    heads = f"{facts['n_head']} heads, {facts['n_head_kv']} for keys and values"
    tokenizer = facts["tokenizer"] + (
        f" ({facts['tokenizer_pre']})" if facts["tokenizer_pre"] else ""
    )
    adds = [name for name, key in (("BOS", "add_bos"), ("EOS", "add_eos")) if facts[key]]
    rows = [
        ("Model", facts["id"]),
        ("File", facts["path"] or "not on this computer"),
        ("Name", facts["name"] or "-"),
        ("Size", size(facts["n_bytes"]) if facts["n_bytes"] else "?"),
        ("Files", str(facts["n_files"])),
        ("Licence", facts["licence"] or "not stated"),
        ("Architecture", facts["architecture"] or "not stated"),
        ("Weights", types or "none"),
        ("Layers", f"{facts['n_layer']} of width {facts['n_embd']}, {heads}"),
        ("Trained context", f"{facts['n_ctx_train']} tokens"),
        ("Vocabulary", f"{facts['n_vocab']} tokens"),
        ("Tokenizer", tokenizer or "not stated"),
        ("Special tokens", special or "none"),
        ("Adds to a prompt", " and ".join(adds) or "nothing"),
        ("Chat template", "yes" if facts["has_chat_template"] else "no"),
        ("Capabilities", "; ".join(facts["capabilities"]) or "-"),
    ]
    return [row for row in rows if row != ("Files", "1")]
