"""Packages in a conda file, in the words of pip."""

from __future__ import annotations

import re
from typing import NamedTuple

from packaging.specifiers import InvalidSpecifier, SpecifierSet

SPEC = re.compile(r"(?:\S+::)?(?P<name>[A-Za-z0-9_][\w.-]*)\s*(?P<version>[^\[]*?)(?P<more>\[.*)?")
FUZZY = re.compile(r"=?\s*(?P<version>[^=<>!~|,\s]+)(?:[=\s]+(?P<build>[^=<>!~|,\s]+))?")
EXACT = re.compile(r"==\s*(?P<version>[^=<>!~|,\s]+)(?:[=\s]+(?P<build>[^=<>!~|,\s]+))?")
CLAUSE = re.compile(r"(?P<sign>>=|<=|==|!=|~=|=|>|<)?\s*(?P<version>[^=<>!~|,\s]+)")
OTHER_NAMES = {
    "dask-core": "dask",
    "docker-py": "docker",
    "geopandas-base": "geopandas",
    "matplotlib-base": "matplotlib",
    "msgpack-python": "msgpack",
    "numpy-base": "numpy",
    "opencv": "opencv-python",
    "py-lightgbm": "lightgbm",
    "py-opencv": "opencv-python",
    "py-xgboost": "xgboost",
    "py-xgboost-cpu": "xgboost",
    "py-xgboost-gpu": "xgboost",
    "pyarrow-core": "pyarrow",
    "pysoundfile": "soundfile",
    "pytables": "tables",
    "python-graphviz": "graphviz",
    "python-kaleido": "kaleido",
    "python-lz4": "lz4",
    "python-xxhash": "xxhash",
    "pytorch": "torch",
    "pytorch-cpu": "torch",
    "pytorch-gpu": "torch",
    "ray-core": "ray",
    "ray-default": "ray[default]",
    "seaborn-base": "seaborn",
    "tensorflow-base": "tensorflow",
    "torchvision-cpu": "torchvision",
}
"""Names of conda that the index of pip does not share; agrees with the mapping of conda-forge."""
PROGRAMS = (
    *("binutils", "blas", "boost", "boost-cpp", "bzip2", "c-compiler", "ca-certificates", "cairo"),
    *("compilers", "cpuonly", "cudatoolkit", "cudatoolkit-dev", "cudnn", "curl", "cxx-compiler"),
    *("eigen", "ffmpeg", "freetype", "gcc", "gfortran", "git", "git-lfs", "glib", "graphviz"),
    *("gxx", "hdf5", "intel-openmp", "jq", "leveldb", "make", "ncurses", "nccl", "nodejs", "nomkl"),
    *("openjdk", "openjpeg", "openmpi", "openssl", "pandoc", "pango", "perl", "poppler"),
    *("portaudio", "pytorch-cuda", "pytorch-mutex", "readline", "rust", "snappy", "sox", "sqlite"),
    *("swig", "tesseract", "tini", "tk", "tree", "unixodbc", "unzip", "vim", "wget", "xxhash"),
    *("xz", "yarn", "zip", "zlib", "zstd"),
)
FAMILIES = re.compile(
    r"_.*mutex|r-.*|.*[_-]linux-64|magma-cuda.*|mesa-lib.*|"
    r"cuda-(?!python|bindings|core|pathfinder).*|"
    r"lib(?!cst|ensemble|ertem|pysal|rosa|sass|tmux|usb1).*"
)
"""Programs, libraries and switches of conda, which no package of Python stands for."""
OF_THE_VENV = ("pip",)


class PipPackage(NamedTuple):
    """A package of a conda file, as a requirement of pip where it has one."""

    conda: str
    """The words of the conda file."""
    requirement: str = ""
    """The words of pip; empty for a package that pip does not install."""
    note: str = ""
    """The difference from conda, with the reason; empty without one."""
    has_other_name: bool = False


def python_versions(text: str) -> SpecifierSet | None:
    """Return the versions of Python that a conda package asks for; None for other packages.

    A third number does not count: few machines have two versions of one minor version.
    """
    found = SPEC.fullmatch(text.strip())
    if found is None or found["name"] != "python":
        return None
    versions, _ = _versions(found["version"])
    return SpecifierSet(re.sub(r"==(\d+\.\d+)\.\d+(\.\*)?", r"==\1.*", versions))


def pip_package(text: str) -> PipPackage:
    """Return a package of a conda file in the words of pip."""
    found = SPEC.fullmatch(text.strip())
    if found is None:
        return PipPackage(text, note="it is not NAME, NAME=VERSION or NAME>=VERSION")
    name = found["name"].lower()
    if name in OF_THE_VENV:
        return PipPackage(text, note="a virtual environment has its own")
    if name in PROGRAMS or FAMILIES.fullmatch(name):
        return PipPackage(text, note="it is not a package of Python; this machine may have it")
    versions, note = _versions(found["version"])
    if found["more"]:
        note = f"{found['more']} is left out"
    other = OTHER_NAMES.get(name, name)
    return PipPackage(text, f"{other}{versions}", note, has_other_name=other != name)


def _versions(text: str) -> tuple[str, str]:
    """Return versions in the words of pip, and a note where they are not the same."""
    text = text.strip()
    if not text:
        return "", ""
    if found := EXACT.fullmatch(text) or FUZZY.fullmatch(text):
        version, build = found["version"], found["build"]
        is_exact = text.startswith("==") or build is not None
        versions = f"=={version}" if is_exact else _fuzzy(version)
        note = f"the build {build} is left out" if build not in (None, "*") else ""
    else:
        clauses = [CLAUSE.fullmatch(one.strip()) for one in text.split(",")]
        versions = ",".join(_clause(one) if one else "|" for one in clauses)
        note = ""
    try:
        SpecifierSet(versions)
    except InvalidSpecifier:
        return "", f"any version: pip has no words for {text}"
    return versions, note


def _clause(found: re.Match[str]) -> str:
    sign, version = found["sign"], found["version"]
    if sign in (None, "="):
        return _fuzzy(version)
    return f"{sign}{version if sign in ('==', '!=') else version.removesuffix('.*')}"


def _fuzzy(version: str) -> str:
    """Return a version whose further numbers are free, as ``=1.2`` says in conda."""
    plain = version.removesuffix("*").removesuffix(".")
    if not plain:
        return ""
    is_number = re.fullmatch(r"[\d.]+", plain)
    return f"=={plain}.*" if is_number else f"=={plain}"
