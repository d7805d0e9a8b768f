"""Checks that relative links in the given Markdown files lead to something, and that drawings among it are XML. Exit code 1
if something is wrong."""

import pathlib
import re
import sys
import xml.etree.ElementTree

LINK = re.compile(r"\]\(([^)#\s]+)(?:#[^)]*)?\)")


def complaint(path):
    """What is wrong with what a link leads to, or nothing."""
    if not path.exists():
        return "leads nowhere"
    if path.suffix == ".svg":
        try:
            xml.etree.ElementTree.parse(path)
        except xml.etree.ElementTree.ParseError as error:
            return f"is no drawing: {error}"
    return ""


def main():
    broken = 0
    for name in sys.argv[1:]:
        page = pathlib.Path(name)
        for target in LINK.findall(page.read_text(encoding="utf-8")):
            if "://" not in target and (wrong := complaint(page.parent / target)):
                print(f"{page}: {target} {wrong}")
                broken += 1
    sys.exit(1 if broken else 0)


if __name__ == "__main__":
    main()
