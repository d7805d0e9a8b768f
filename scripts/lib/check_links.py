"""Checks that relative links in the given Markdown files lead to something. Exit code 1 if one does not."""

import pathlib
import re
import sys

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def main():
    broken = 0
    for name in sys.argv[1:]:
        page = pathlib.Path(name)
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target and not (page.parent / target).exists():
                print(f"{page}: {target} leads nowhere")
                broken += 1
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
