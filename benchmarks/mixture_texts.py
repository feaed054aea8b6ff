"""Texts for a study of data mixtures: eight sources from Debian packages, as tokens of one small vocabulary.

Usage: python benchmarks/mixture_texts.py FOLDER [--toy]

Packages are downloaded into FOLDER/packages and unpacked there; nothing is installed. Text is cleaned of mark-up, and a
paragraph that has occurred before, in any source, is dropped. Every source is split by document into three parts: one
that only judges methods, one that methods may watch while they train, and the rest to train on, without paragraphs that
share twelve words in a row with a held-out part. Documents are taken in the order of the hashes of their names, so the
same packages give the same files. Besides texts.npz, FOLDER gets texts.json (what every source consists of) and
tokenizer.json (to decode tokens). Needs Debian's tools for packages, and the Python package tokenizers. ``--toy`` needs
neither: it makes tiny sources from the standard library, whose tokens are bytes.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import re
import subprocess
import sysconfig
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from platform import python_version
from pydoc_data.topics import topics

import numpy as np
from mixture_cleaning import (
    Document,
    dictionary,
    files,
    go_code,
    handbook,
    kernel_manual,
    manuals,
    office_help,
    prose,
    python_code,
)
from numpy.typing import NDArray

Tokens = NDArray[np.uint16]
Texts = dict[str, dict[str, Tokens]]
Encode = Callable[[str], list[int]]

N_TOKENS = 4096
END = "<|end of document|>"
HELD = ("judged", "watched")
PARTS = (*HELD, "train")
# More than any source has: enough text is kept for the tokens wanted, then cut to measure.
BYTES_PER_TOKEN = 4
SAMPLE = 500_000
SHORTEST_DOCUMENT = 400
SHORTEST_DUPLICATE = 60
# Characters kept of a held-out document, so that a few long ones do not fill the part.
LONGEST_HELD = 20_000
WORDS_SHARED = 12
WINDOW = 32


@dataclass(frozen=True)
class Source:
    """Where one source comes from and how much of it is wanted.

    Attributes
    ----------
    name : str
    packages : tuple of str
        Names of the Debian package in different releases; the first that exists is taken. Empty if none is needed.
    documents : callable
        From the unpacked package to names and cleaned texts of documents.
    train : int
        Tokens to train on, at most.
    held : int
        Tokens of each held-out part, at most.
    """

    name: str
    packages: tuple[str, ...]
    documents: Callable[[Path], Iterator[Document]]
    train: int
    held: int

    def most(self, part: str) -> int:
        """Return the most tokens of a part."""
        return self.held if part in HELD else self.train


# Three large sources, two of middle size and three small ones, two of which are capped although there is more: `office`
# is written like other sources, `french` shares little with any. Large ones are capped so that all arrays together stay
# below 50 MB. The first package that exists is taken: those of two releases of Debian.
SOURCES = (
    Source("handbook", ("debian-handbook",), handbook, train=400_000, held=50_000),
    Source("office", ("libreoffice-help-en-us",), office_help, train=150_000, held=50_000),
    Source("french", ("manpages-fr",), lambda folder: manuals(folder, "fr"), train=250_000, held=50_000),
    Source("german", ("manpages-de",), lambda folder: manuals(folder, "de"), train=2_000_000, held=100_000),
    Source("python", ("libpython3.11-stdlib", "libpython3.13-stdlib"), python_code, train=2_000_000, held=80_000),
    Source("go", ("golang-1.19-src", "golang-1.24-src"), go_code, train=6_000_000, held=150_000),
    Source("kernel", ("linux-doc-6.1", "linux-doc-6.12"), kernel_manual, train=5_500_000, held=150_000),
    Source("dictionary", ("dict-gcide",), dictionary, train=6_000_000, held=150_000),
)


def _own_modules(pattern: str) -> Iterator[Document]:
    return files(Path(sysconfig.get_paths()["stdlib"]), pattern)


def _docstrings(_: Path) -> Iterator[Document]:
    for name, text in _own_modules("[a-c]*.py"):
        nodes = (n for n in ast.walk(ast.parse(text)) if isinstance(n, ast.FunctionDef | ast.ClassDef | ast.Module))
        yield name, prose("\n\n".join(filter(None, map(ast.get_docstring, nodes))))


TOY_SOURCES = (
    Source("manual", (), lambda _: iter(topics.items()), train=20_000, held=4_000),
    Source("docstrings", (), _docstrings, train=8_000, held=4_000),
    Source("code", (), lambda _: _own_modules("[d-i]*.py"), train=20_000, held=4_000),
)


def unpacked(packages: tuple[str, ...], folder: Path) -> tuple[str, str]:
    """Download the first package that exists and unpack it; return the name and version of what texts come from."""
    if not packages:
        return "python", python_version()
    folder.mkdir(parents=True, exist_ok=True)
    said = ""
    for package in packages:
        if not list(folder.glob("*.deb")):
            run = subprocess.run(["apt-get", "download", package], cwd=folder, capture_output=True, text=True)
            said = run.stderr.strip()
    archives = list(folder.glob("*.deb"))
    if not archives:
        names = " or ".join(packages)
        raise RuntimeError(
            f"Cannot download {names} (apt-get: {said}). Run apt-get update, or add its name in SOURCES."
        )
    subprocess.run(["dpkg-deb", "-x", archives[0], folder], check=True)
    show = ["dpkg-deb", "-W", "--showformat=${Package} ${Version}", archives[0]]
    package, version = subprocess.run(show, check=True, capture_output=True, text=True).stdout.split()
    return package, version


def _by_hash(document: Document) -> bytes:
    return hashlib.sha256(document[0].encode()).digest()


def _runs(text: str) -> Iterator[int]:
    words = re.findall(r"\w+", text.lower())
    return (hash(tuple(words[i : i + WORDS_SHARED])) for i in range(len(words) - WORDS_SHARED + 1))


def deduplicated(documents: Iterable[Document], seen: set[str], held: set[int]) -> Iterator[str]:
    """Yield texts without paragraphs seen before or shared with held-out text, if enough is left of them."""
    for _, text in documents:
        kept = []
        for paragraph in text.split("\n\n"):
            # Licences and generated lists differ in years and numbers only.
            plain = re.sub(r"\d+", "0", " ".join(paragraph.lower().split()))
            if len(plain) >= SHORTEST_DUPLICATE and (plain in seen or not held.isdisjoint(_runs(paragraph))):
                continue
            seen.add(plain)
            kept.append(paragraph)
        text = "\n\n".join(kept).strip()
        if len(text) >= SHORTEST_DOCUMENT:
            yield text


def split(sources: tuple[Source, ...], documents: dict[str, list[Document]]) -> dict[str, dict[str, list[str]]]:
    """Return texts of the parts, each filled from the documents that those before it have left."""
    rest = {name: iter(sorted(found, key=_by_hash)) for name, found in documents.items()}
    parts: dict[str, dict[str, list[str]]] = {source.name: {} for source in sources}
    seen: set[str] = set()
    held: set[int] = set()
    for part in PARTS:
        for source in sources:
            texts = parts[source.name][part] = []
            wanted = BYTES_PER_TOKEN * source.most(part)
            for text in deduplicated(rest[source.name], seen, held):
                texts.append(text[:LONGEST_HELD] if part in HELD else text)
                wanted -= len(texts[-1].encode())
                if wanted <= 0:
                    break
        if part in HELD:
            held.update(run for texts in parts.values() for text in texts[part] for run in _runs(text))
    return parts


def _bytes(text: str) -> list[int]:
    return [*text.encode(), 256]


def tokenizer_of(parts: dict[str, dict[str, list[str]]], file: Path) -> Encode:
    """Train a byte-level vocabulary on as much training text of every source; write it and return its encoder."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=N_TOKENS,
        special_tokens=[END],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    samples = ["\n\n".join(part["train"]).encode()[:SAMPLE].decode("utf-8", "ignore") for part in parts.values()]
    tokenizer.train_from_iterator(samples, trainer)
    tokenizer.save(str(file))
    return lambda text: [*tokenizer.encode(text, add_special_tokens=False).ids, 0]


def _hashes(tokens: Tokens) -> NDArray[np.uint64]:
    """Return a hash of every window of tokens."""
    found = np.random.default_rng(0).integers(2**63, size=2**16, dtype=np.uint64)[tokens]
    width, factor = 1, 0x9E3779B97F4A7C15
    while width < WINDOW:
        found = found[:-width] * np.uint64(factor) + found[width:]
        width, factor = 2 * width, factor * factor % 2**64
    return found


def overlap(texts: Texts) -> dict[str, dict[str, float]]:
    """Return the fraction of held-out windows of 32 tokens that also occur in training text of any source."""
    held = {(name, part): _hashes(parts[part]) for name, parts in texts.items() for part in HELD}
    found = {key: np.zeros(len(hashes), dtype=bool) for key, hashes in held.items()}
    for parts in texts.values():
        train = np.sort(_hashes(parts["train"]))
        for key, hashes in held.items():
            found[key] |= train[np.searchsorted(train[:-1], hashes)] == hashes
    return {name: {part: round(float(found[name, part].mean()), 5) for part in HELD} for name in texts}


def encoded(source: Source, texts: dict[str, list[str]], encode: Encode) -> tuple[dict[str, Tokens], dict[str, object]]:
    """Return the parts of a source as tokens, and what they consist of."""
    tokens: dict[str, Tokens] = {}
    characters, documents = {}, {}
    for part, of_part in texts.items():
        if not of_part:
            raise RuntimeError(f"No text is left for {part!r} of {source.name!r}. Lower its other parts in the table.")
        ids = [encode(text) for text in of_part]
        whole = np.concatenate([np.array(i, dtype=np.uint16) for i in ids])
        tokens[part] = whole[: source.most(part)]
        # The last document may be cut.
        documents[part] = 1 + int((tokens[part][:-1] == ids[0][-1]).sum())
        characters[part] = round(sum(map(len, of_part)) * len(tokens[part]) / len(whole))
    # Of training text, the part encoded last.
    ratio = round(sum(len(text.encode()) for text in of_part) / len(whole), 3)
    sizes = {part: len(array) for part, array in tokens.items()}
    return tokens, {"documents": documents, "characters": characters, "tokens": sizes, "bytes_per_token": ratio}


def make(folder: str | Path, toy: bool = False) -> Texts:
    """Write texts.npz and texts.json into a folder, and return the tokens: of each source, by part."""
    folder = Path(folder)
    folder.mkdir(parents=True, exist_ok=True)
    sources = TOY_SOURCES if toy else SOURCES
    origins = {source.name: unpacked(source.packages, folder / "packages" / source.name) for source in sources}
    documents = {source.name: list(source.documents(folder / "packages" / source.name)) for source in sources}
    parts = split(sources, documents)
    encode = _bytes if toy else tokenizer_of(parts, folder / "tokenizer.json")
    found = {source.name: encoded(source, parts[source.name], encode) for source in sources}
    texts = {name: tokens for name, (tokens, _) in found.items()}
    shared = overlap(texts)
    about = {
        name: {"package": origins[name][0], "version": origins[name][1], **facts, "also_in_train": shared[name]}
        for name, (_, facts) in found.items()
    }
    np.savez(folder / "texts.npz", **{f"{name}/{part}": texts[name][part] for name in texts for part in PARTS})
    (folder / "texts.json").write_text(json.dumps(about, indent=2) + "\n")
    return texts


def read(folder: str | Path) -> Texts:
    """Return what ``make`` wrote into a folder."""
    file = Path(folder) / "texts.npz"
    if not file.exists():
        raise FileNotFoundError(f"No texts.npz in {folder}. Make it with: python benchmarks/mixture_texts.py {folder}")
    texts: Texts = {}
    with np.load(file) as arrays:
        for key in arrays.files:
            name, part = key.split("/")
            texts.setdefault(name, {})[part] = arrays[key]
    return texts


def main() -> None:
    """Make the texts and print what they consist of."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", maxsplit=1)[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--toy", action="store_true", help="tiny texts from the standard library, without packages")
    options = parser.parse_args()
    make(options.folder, toy=options.toy)
    about = json.loads((options.folder / "texts.json").read_text())
    print(
        "source      | train tokens | watched |  judged | documents | bytes per token | watched, judged also in train"
    )
    for name, facts in about.items():
        tokens, also = facts["tokens"], facts["also_in_train"]
        print(
            f"{name:11} | {tokens['train']:12,} | {tokens['watched']:7,} | {tokens['judged']:7,} | "
            f"{sum(facts['documents'].values()):9,} | {facts['bytes_per_token']:15.2f} | "
            f"{also['watched']:.2%}, {also['judged']:.2%}"
        )
    size = (options.folder / "texts.npz").stat().st_size
    print(f"Wrote {options.folder}/texts.npz ({size / 1e6:.1f} MB) and texts.json.")


if __name__ == "__main__":
    main()
