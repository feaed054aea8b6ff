"""Clean text of what Debian packages hold: sections of books, manual pages, code, entries of a dictionary."""

from __future__ import annotations

import gzip
import re
from collections.abc import Iterator
from html import unescape
from itertools import pairwise
from pathlib import Path

Document = tuple[str, str]
"""A name, and the text."""


def _text(path: Path) -> str:
    raw = path.read_bytes()
    return (gzip.decompress(raw) if path.suffix in (".gz", ".dz") else raw).decode("utf-8", "ignore")


def files(folder: Path, pattern: str, without: str = r"(?!)") -> Iterator[Document]:
    """Yield relative names and texts of files, without those whose name matches an expression."""
    for path in sorted(folder.glob(pattern)):
        name = path.relative_to(folder).as_posix()
        if path.is_file() and not path.is_symlink() and not re.search(without, name):
            yield name, _text(path)


def tidy(text: str) -> str:
    """Return text without control characters, trailing space, runs of blank lines and long rules."""
    text = re.sub(r"[^\n\t -~\u00a1-\uffff]", " ", text)
    text = re.sub(r"([-=~^*_.#+])\1{4,}", r"\1\1\1\1", text)
    return re.sub(r"\n{3,}", "\n\n", re.sub(r"[ \t]+\n", "\n", text)).strip()


def prose(text: str) -> str:
    """Return tidy text whose lines neither are indented nor hold runs of spaces."""
    return tidy(re.sub(r" *\n *", "\n", re.sub(r"[ \t\u00a0\u202f]+", " ", text)))


def page(text: str, start: str, end: str) -> str:
    """Return the prose of an HTML page between two expressions."""
    text = re.split(end, re.split(start, text, maxsplit=1, flags=re.S)[-1], maxsplit=1)[0]
    text = re.sub(r'<div class="toc">.*?</div>|<(script|style|button)\b.*?</\1>', "", text, flags=re.S)
    text = re.sub(r"<(br|/?li|/?tr)\b[^>]*>", "\n", text)
    text = re.sub(r"</?(blockquote|d[dlt]|div|h[1-6]|[ou]l|p|pre|table)\b[^>]*>", "\n\n", text)
    return prose(unescape(re.sub(r"<[^>]*>", "", text)))


def handbook(folder: Path) -> Iterator[Document]:
    """Yield the sections of Debian's handbook."""
    for name, text in files(folder, "usr/share/doc/debian-handbook/html/en-US/*.html", r"/(index|ix\d+)\.html"):
        yield name, page(text, r'<ul class="docnav top">.*?</ul>', r'<ul class="docnav">')


def office_help(folder: Path) -> Iterator[Document]:
    """Yield the pages of LibreOffice's help."""
    for name, text in files(folder, "usr/share/libreoffice/help/en-US/text/**/*.html"):
        yield name, page(text, r'<div id="DisplayArea"[^>]*>', r'<div id="SearchFrame">')


# What stands for troff's escapes, in the order in which they are replaced.
ESCAPES = (
    (r"\\\".*", ""),
    (r"\\[fFmMgkn*](\[[^]]*\]|\(..|.)|\\s[-+]?\d", ""),
    (r"\\[hvwlLoxDbX]'[^'\n]*'", " "),
    (r"\\\[(..)\]", r"\\(\1"),
    (r"\\\([aco]q", "'"),
    (r"\\\([lrd]q", '"'),
    (r"\\\((en|em|hy|mi)", "-"),
    (r"\\\(ha", "^"),
    (r"\\\(ti", "~"),
    (r"\\\(rs|\\e", "\x00"),
    (r"\\\(..|\\\[[^]]*\]", ""),
    (r"\\[ ~0t]", " "),
    (r"\\([-'`.])", r"\1"),
    (r"\\.?", ""),
    ("\x00", r"\\"),
)
# Words that neither French nor German has.
ENGLISH = frozenset(
    ("the", "of", "to", "is", "and", "be", "are", "this", "for", "with", "if", "not", "that", "or", "it")
)
SKIPPED = {".de": "..", ".de1": "..", ".am": "..", ".ig": "..", ".TS": ".TE"}


def manual_page(text: str) -> str:
    """Return the prose of a troff page: requests, tables and definitions of macros are dropped."""
    lines: list[str] = []
    end = ""
    for line in text.replace("\t", " ").splitlines():
        request, _, rest = line.partition(" ")
        words = [quoted or plain for quoted, plain in re.findall(r'"([^"]*)"|((?:\\.|\S)+)', rest)]
        if end or request in SKIPPED:
            end = SKIPPED.get(request, end) if request != end else ""
        elif request in (".SH", ".SS"):
            lines += ["", " ".join(words), ""]
        elif request in (".PP", ".P", ".LP", ".sp", ".TP", ".HP", ".IP"):
            # Of .IP the first argument is a tag; all others are indentations.
            lines += ["", *words[: request == ".IP"]]
        elif request in (".B", ".I", ".SM", ".SB", ".UR", ".MT"):
            lines.append(" ".join(words))
        elif request in (".BR", ".RB", ".BI", ".IB", ".IR", ".RI"):
            lines.append("".join(words))
        elif not line.startswith((".", "'")):
            lines.append(line)
    text = "\n".join(lines)
    for pattern, by in ESCAPES:
        text = re.sub(pattern, by, text)
    return prose(text)


def _english(paragraph: str) -> bool:
    words = re.findall(r"\w+", paragraph.lower())
    return sum(word in ENGLISH for word in words) > 0.12 * len(words)


def manuals(folder: Path, language: str) -> Iterator[Document]:
    """Yield the manual pages of a language, without paragraphs not translated and without colophon and translators."""
    for name, text in files(folder, f"usr/share/man/{language}/man*/*.gz"):
        # Pages that start with .Dd use other macros.
        if not re.search(r"^\.Dd ", text, re.M):
            text = re.split(r"\n(?:KOLOPHON|COLOPHON|ÜBERSETZUNG|TRADUCTION)\n", manual_page(text))[0]
            yield name, "\n\n".join(p for p in text.split("\n\n") if not _english(p))


def go_code(folder: Path) -> Iterator[Document]:
    """Yield Go files, without generated ones, copies of other modules, and types2, the twin of go/types."""
    for name, text in files(folder, "usr/share/go-*/src/**/*.go", r"/vendor/|/testdata/|/types2/"):
        if not re.search(r"^// Code generated", text, re.M):
            yield name, tidy(text)


def python_code(folder: Path) -> Iterator[Document]:
    """Yield modules of the standard library, without tests and tables of characters."""
    found = files(folder, "usr/lib/python3*/**/*.py", r"/tests?/|/encodings/|/pydoc_data/|/_sysconfigdata")
    return ((name, tidy(text)) for name, text in found)


def kernel_manual(folder: Path) -> Iterator[Document]:
    """Yield the kernel's documentation in English."""
    for name, text in files(folder, "usr/share/doc/linux-doc*/Documentation/**/*.rst.gz", r"/translations/"):
        text = re.sub(r"^\.\. (SPDX|include|toctree|highlight|contents|_).*$", "", text, flags=re.M)
        yield name, tidy(re.sub(r"(?<=\S) {2,}", " ", text))


def dictionary(folder: Path) -> Iterator[Document]:
    """Yield runs of twenty entries, most of which keep the entries of a word together."""
    text = _text(folder / "usr/share/dictd/gcide.dict.dz")
    text = re.sub(r"\[(1913 Webster|WordNet 1\.5|PJC|Webster 1913 Suppl\.)[^\]]*\]|[{}]", "", text)
    starts = [match.start() for match in re.finditer(r"^[A-Za-z].* \\", text, re.M)][::20]
    for start, end in pairwise([*starts, len(text)]):
        yield f"{start:09d}", prose(text[start:end])
