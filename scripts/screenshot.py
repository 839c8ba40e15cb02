"""Make the pictures of the chat view in docs/: the view itself over a scripted session.

python scripts/screenshot.py [FOLDER]
"""

from __future__ import annotations

import asyncio
import sys
from collections.abc import Sequence
from pathlib import Path

ROOT = Path(__file__).parent.parent
sys.path.insert(0, str(ROOT))

from localspec.chat import Message  # noqa: E402
from localspec.config import Config  # noqa: E402
from localspec.spec.sampling import Sampling  # noqa: E402
from localspec.tui.app import ChatApp  # noqa: E402
from localspec.tui.fakes import Script, ScriptedOpener, ScriptedStatus, words  # noqa: E402
from localspec.tui.settings import Settings  # noqa: E402

QUESTION = "How do I read a CSV file and sum a column in Python?"
ANSWER = '''Use the `csv` module; it copes with quotes and commas inside of fields:

```python
import csv

def total(path: str, column: str) -> float:
    """The sum of one column."""
    with open(path, newline="") as file:
        return sum(float(row[column]) for row in csv.DictReader(file))
```

1. `DictReader` takes the **names** from the first line.
2. `newline=""` leaves line ends to the reader.
'''
SIZE = (120, 36)


def answer(_: Sequence[Message]) -> Sequence[str]:
    return words(ANSWER)


async def picture(path: Path, *, coloured: bool) -> None:
    """Ask the question, and save the screen as SVG."""
    status = ScriptedStatus(
        model="qwen2.5-coder-1.5b-instruct-q4_k_m", draft="qwen2.5-coder-0.5b-instruct-q4_k_m"
    )
    script = Script(answer, accepted=(4, 3, 4, None, 2, 4, 1, 4), status=status)
    config = Config(colour_tokens=coloured)
    app = ChatApp(ScriptedOpener(script), Settings(config, Sampling()))
    app.inference._n_bytes_used = lambda: 2_254_857_830  # the same picture each time
    app.keeper.title = "Sum a CSV column"
    async with app.run_test(size=SIZE) as pilot:
        while app.status is None:
            await pilot.pause()
        await app.send(QUESTION)
        while app.running is not None or app.queued:
            await pilot.pause()
        app.clear_notifications()
        await pilot.pause()
        path.write_text(app.export_screenshot(title="localspec chat"), encoding="utf-8")
    app.inference.quit(5)


def main() -> None:
    folder = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs"
    folder.mkdir(parents=True, exist_ok=True)
    asyncio.run(picture(folder / "chat.svg", coloured=False))
    asyncio.run(picture(folder / "chat-colours.svg", coloured=True))


if __name__ == "__main__":
    main()
