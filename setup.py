"""Build the compiled modules: each `X.py` of the package that has an `X.pxd` beside it.

This is the build backend of pyproject.toml too: setuptools', which also asks for ziglang, a C
compiler from the package registry, where Python's own compiler is not installed.
"""

import os
import re
import shlex
import shutil
import sys
import sysconfig
import tomllib
import zlib
from pathlib import Path

from setuptools import Extension, build_meta, setup
from setuptools.build_meta import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from setuptools.command.build_ext import build_ext

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

DIRECTIVES = {
    "annotation_typing": False,
    "boundscheck": True,
    "embedsignature": False,
    "freethreading_compatible": True,
    "language_level": 3,
    "show_performance_hints": False,
    "wraparound": False,
}
"""For all compiled modules; one that can prove its bounds switches `boundscheck` off itself."""

SHARED = "tailrace.kernels._cyutility"
"""Has what Cython adds to a module that looks into buffers; else each has it, of 150 kB."""

COMPILE = ["-O3", "-g0", "-fwrapv", "-fvisibility=hidden", "-Wno-unused-function"]
LINK = ["-s"] if sys.platform == "linux" else []
if "TAILRACE_SANITIZE" in os.environ:
    LINK = ["-fsanitize=address,undefined"]
    COMPILE = ["-O1", "-g", "-fwrapv", "-fno-omit-frame-pointer", *LINK]
    COMPILE += ["-fno-sanitize-recover=undefined"]


def get_requires_for_build_wheel(config_settings: dict[str, str] | None = None) -> list[str]:
    """What a build needs besides `build-system.requires`."""
    return [*build_meta.get_requires_for_build_wheel(config_settings), *_compiler_required()]


get_requires_for_build_editable = get_requires_for_build_wheel


def _compiler_required() -> list[str]:
    compiler = os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc"
    return [] if shutil.which(shlex.split(compiler)[0]) else ["ziglang"]


def _extensions() -> list[Extension]:
    sources = [types.with_suffix(".py") for types in sorted(Path("src").rglob("*.pxd"))]
    if sources:
        sources.append(Path("src", *SHARED.split(".")).with_suffix(".c"))
    return [
        Extension(
            ".".join(source.with_suffix("").parts[1:]),
            [str(source)],
            extra_compile_args=COMPILE,
            extra_link_args=LINK,
        )
        for source in sources
    ]


class BuildExtensions(build_ext):
    """Translates with Cython, then compiles; all products but the extensions go to build/."""

    def finalize_options(self) -> None:
        """Keep the objects of an editable install, so that the next build compiles changes only."""
        super().finalize_options()
        self.parallel = self.parallel or os.cpu_count()
        if self.inplace:
            abi = sysconfig.get_config_var("SOABI")
            self.build_lib = self.build_temp = f"build/inplace/{abi}"

    def run(self) -> None:
        """Raises SystemExit where Python's headers are not installed."""
        if self.extensions:
            import Cython
            from Cython.Build import cythonize

            _require_headers()
            # Another Cython and other directives or flags make every file anew.
            made_by = zlib.crc32(Path("setup.py").read_bytes() + Cython.__version__.encode())
            translated = cythonize(
                self.extensions,
                build_dir=f"build/cython/{made_by:08x}",
                compiler_directives=DIRECTIVES,
                nthreads=os.cpu_count() or 1,
                shared_utility_qualified_name=SHARED,
            )
            for extension, module in zip(self.extensions, translated, strict=True):
                extension.sources = module.sources
        super().run()

    def build_extensions(self) -> None:
        """Compile with ziglang where there is no other compiler."""
        if _compiler_required():
            zig = [sys.executable, "-m", "ziglang", "cc"]
            # Without -mcpu it compiles for this very processor.
            flags = ["-mcpu=baseline", "-fPIC", "-fwrapv", "-DNDEBUG"]
            self.compiler.set_executables(
                compiler_so=[*zig, *flags], linker_so=[*zig, "-mcpu=baseline", "-shared"]
            )
        super().build_extensions()


def described(readme: str, *, url: str | None, version: str) -> dict[str, object]:
    """The long description and the links of a project with the repository `url`.

    Relative links of the README lead nowhere on the page of a package. They become links into the
    repository at the version's tag; without a `url` their text stays alone.
    """
    files = f"{url}/blob/v{version}"
    linked = rf"[\1]({files}/\2)" if url else r"\1"
    text = re.sub(r"\[([^\]]+)\]\((?!https?://|#)([^)]+)\)", linked, readme)
    links = {
        "Source": url,
        "Documentation": f"{files}/docs",
        "Changelog": f"{files}/CHANGELOG.md",
        "Security": f"{files}/SECURITY.md",
    }
    return {
        "long_description": text,
        "long_description_content_type": "text/markdown",
        "project_urls": links if url else {},
    }


def _require_headers() -> None:
    folder = Path(sysconfig.get_path("include"))
    if not (folder / "Python.h").exists():
        version = "{}.{}".format(*sys.version_info)
        raise SystemExit(
            f"{folder / 'Python.h'} is missing. Install Python's headers: python{version}-dev on "
            f"Debian and Ubuntu, python{version}-devel or python3-devel on Fedora, or take a wheel"
        )


if __name__ == "__main__":
    project = tomllib.loads(Path("pyproject.toml").read_text())["project"]
    setup(
        ext_modules=_extensions(),
        cmdclass={"build_ext": BuildExtensions},
        **described(
            Path("README.md").read_text(),
            url=os.environ.get("TAILRACE_URL"),
            version=project["version"],
        ),
    )
