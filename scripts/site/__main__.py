"""Write every generated page and picture of docs/, and the navigation: `python -m scripts.site`."""

from __future__ import annotations

import sys

from scripts.site.generated import DOCS, generated
from scripts.site.navigation import FILE, navigation


def main() -> int:
    """Write what differs, and name it."""
    for name, text in generated().items():
        path = DOCS / name
        if not path.exists() or path.read_text(encoding="utf-8") != text:
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, encoding="utf-8")
            print(f"wrote docs/{name}")
    text = navigation()
    if FILE.read_text(encoding="utf-8") != text:
        FILE.write_text(text, encoding="utf-8")
        print(f"wrote {FILE.name}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
