"""The first picture comes before anything that is only needed to run a model is even imported."""

from __future__ import annotations

import json
import subprocess
import sys

HEAVY = {
    "llama_cpp", "numpy", "jinja2", "huggingface_hub", "httpx", "psutil",
    "markdown_it", "pygments", "localspec.tui.markdown", "yaml",
    "localspec.opening", "localspec.session", "localspec.catalog",
}  # fmt: skip
CODE = """
import json, sys
from localspec.cli import chat
from localspec.cli.options import config_from
from localspec.tui.app import ChatApp

seen = {}

def begin(app):
    lines = app.screen._compositor.render_strips()
    seen["screen"] = "\\n".join("".join(part.text for part in line) for line in lines)
    seen["modules"] = sorted(sys.modules)
    app.exit(0)

run = ChatApp.run
ChatApp._begin = begin
ChatApp.run = lambda app: run(app, headless=True, size=(100, 30))
code = chat._chat(config_from({}), {}, None, None, saves=True)
print(json.dumps(seen))
sys.exit(code)
"""


def test_the_first_picture_needs_nothing_that_runs_models() -> None:
    found = subprocess.run(
        [sys.executable, "-c", CODE], capture_output=True, timeout=120, check=False
    )
    assert found.returncode == 0, found.stderr.decode()
    seen = json.loads(found.stdout)
    assert "Choosing a model for this computer" in seen["screen"]
    assert "Ask anything" in seen["screen"]
    modules = set(seen["modules"])
    assert {"textual", "localspec.tui.app", "localspec.sessions"} <= modules
    assert not HEAVY & modules
