"""Compiles the one C file of the package where there is a C compiler; without it numpy does the same work."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
import zlib
from contextlib import suppress
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface
from packaging.tags import platform_tags

SOURCE = Path("src/counterpoise/rows/sums.c")
LIBRARY = SOURCE.with_name("_sums.library")

# Vectors of eight numbers are never passed between files, so that their calling convention is of no concern.
OPTIONS = ("-std=gnu11", "-O3", "-fPIC", "-shared", "-fno-math-errno", "-fno-trapping-math", "-Wno-psabi")


def compiled(root: Path) -> bool:
    """Compile the library; say so and return False where that is not possible."""
    target, made = root / LIBRARY, root / LIBRARY.with_suffix(f".{os.getpid()}.tmp")
    try:
        compiler = shlex.split(os.environ.get("CC") or "cc")
        version = f"-DVERSION={zlib.crc32((root / SOURCE).read_bytes())}u"
        command = [*compiler, *OPTIONS, version, "-o", str(made), str(root / SOURCE)]
        subprocess.run(command, check=True, capture_output=True)
        made.replace(target)
    except (OSError, ValueError, subprocess.CalledProcessError) as error:
        for left in (made, target):
            # Where nothing can be written, what is there is not used unless it was made of this source.
            with suppress(OSError):
                left.unlink(missing_ok=True)
        print(f"counterpoise is installed without its compiled part: {error}", file=sys.stderr)
        return False
    return True


class CompileSums(BuildHookInterface):
    """Adds the library to a wheel, which is then for one kind of machine, or puts it beside the sources."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile before files are collected."""
        if self.target_name != "wheel" or os.environ.get("COUNTERPOISE_PURE_PYTHON") or not compiled(Path(self.root)):
            return
        if version == "editable":
            return
        # What was linked against the libraries of this machine promises nothing of others.
        platform = next(tag for tag in platform_tags() if not tag.startswith(("manylinux", "musllinux")))
        build_data |= {"pure_python": False, "tag": f"py3-none-{platform}"}
        build_data["force_include"][str(Path(self.root, LIBRARY))] = "counterpoise/rows/_sums.library"
