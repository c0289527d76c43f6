"""Which modules travel with a script: the caller's own, and none that is installed."""

from __future__ import annotations

import importlib
import os
import shutil
import subprocess
import sys
import threading
import zipfile
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

import cloudpickle
import pandas as pd
import pytest

import daskprs
from daskprs._agent.protocol.messages import PackageFolder
from daskprs._agent.script.checked_script import check_script
from daskprs._agent.script.own_modules import OwnModules
from daskprs.errors import ScriptError

HELD = """
import threading

LOCK = threading.Lock()


def double(n):
    with LOCK:
        return n * 2
"""
"""A module that no pickle can hold, as pandas is."""
OWN = "def one_more(n):\n    return n + 1\n"
PROGRAM = """
import os
import sys
sys.path[:0] = sys.argv[2:]
import pandas as pd
import daskprs
import held
import own
from daskprs._agent.script.checked_script import check_script

rows = pd.DataFrame({"n": [1, 2]})
run = lambda rows: rows.assign(n=own.one_more(held.double(rows["n"])))
if hidden := os.environ.get("HIDDEN"):  # as on a node that does not see it
    run = check_script(run, None)
    os.rename(hidden, hidden + "-elsewhere")
print(*daskprs.parallel_run(rows, run, job_dir=sys.argv[1], progress=False).to_pandas()["n"])
"""


def install(folder: Path, **texts: str) -> None:
    """Write modules into a folder, with the metadata of distributions, as ``pip --target`` does."""
    for name, text in texts.items():
        (folder / f"{name}-1.0.dist-info").mkdir(parents=True)
        (folder / f"{name}.py").write_text(text)
        (folder / f"{name}-1.0.dist-info/METADATA").write_text(f"Name: {name}\nVersion: 1.0\n")
        (folder / f"{name}-1.0.dist-info/RECORD").write_text(f"{name}.py,,\n")


def rows_of(project: Path, *on_path: Path, python_path: tuple[Path, ...] = ()) -> str:
    """Run the program in its folder, and return what it prints; agents inherit `python_path`."""
    done = run_program(project, *on_path, python_path=python_path)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def run_program(
    project: Path, *on_path: Path, python_path: tuple[Path, ...] = (), **variables: str
) -> subprocess.CompletedProcess[str]:
    """Run the program in its folder."""
    (project / "program.py").write_text(PROGRAM)
    paths = [*python_path, Path(daskprs.__file__).parents[1]]
    return subprocess.run(
        [sys.executable, "program.py", project.parent / "job", *on_path],
        cwd=project,
        env={**os.environ, "PYTHONPATH": os.pathsep.join(map(str, paths)), **variables},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )


@pytest.fixture
def project(tmp_path: Path) -> Path:
    """Return the folder of a program, with a module of its own."""
    (tmp_path / "project").mkdir()
    (tmp_path / "project/own.py").write_text(OWN)
    return tmp_path / "project"


def test_packages_of_a_target_folder_travel_by_name(project: Path) -> None:
    """`pip install --target libs`, also below the folder of the program."""
    install(project / "libs", held=HELD)
    assert rows_of(project, python_path=(project / "libs",)) == "3 5"


@pytest.mark.long
def test_packages_installed_beside_the_program_travel_by_name(project: Path) -> None:
    """`pip install --target .`: the program's own modules lie there, too, and in no list."""
    install(project, held=HELD)
    assert rows_of(project) == "3 5"


@pytest.mark.long
def test_agents_find_a_folder_of_packages_that_the_program_puts_on_its_path(project: Path) -> None:
    """`sys.path.insert(0, here + "/vendor")` with packages of `pip install --target vendor`."""
    install(project / "vendor", held=HELD)
    assert rows_of(project, project / "vendor") == "3 5"


@pytest.mark.long
def test_pandas_may_lie_in_a_folder_of_packages_that_the_program_puts_on_its_path(
    project: Path,
) -> None:
    """It cannot be pickled by value."""
    vendor = project / "vendor"
    install(vendor, held=HELD)
    site = Path(pd.__file__).parents[1]
    for place in (Path(pd.__file__).parent, *site.glob("pandas-*.dist-info")):
        shutil.copytree(place, vendor / place.name, symlinks=True)
    assert rows_of(project, vendor) == "3 5"


def test_a_node_without_the_folder_of_packages_says_so(project: Path) -> None:
    """The folder is moved after the script was pickled, as if the agents were on another node."""
    vendor = project / "vendor"
    install(vendor, held=HELD)
    done = run_program(project, vendor, HIDDEN=str(vendor))
    assert done.returncode == 1
    assert "ModuleNotFoundError: No module named 'held'" in done.stderr
    assert f"The program imports packages from {vendor}, which node" in done.stderr
    assert "name it in the PYTHONPATH of the workers" in done.stderr


def test_packages_keep_their_place_before_or_after_those_of_the_interpreter(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A later one is not to hide one of the interpreter."""
    first, last = project / "first", project / "last"
    install(first, held=HELD)
    install(last, held=HELD)
    monkeypatch.setattr(sys, "path", [str(first), *sys.path, str(last)])
    packages = check_script(install_nothing, None).at(None).packages
    assert [one for one in packages if str(project) in one.place] == [
        PackageFolder(str(first), is_first=True),
        PackageFolder(str(last), is_first=False),
    ]


@pytest.mark.long
def test_packages_of_a_zipped_layer_travel_by_name(project: Path) -> None:
    """Their metadata lies in the archive."""
    install(project.parent / "libs", held=HELD)
    layer = project.parent / "layer.zip"
    with zipfile.ZipFile(layer, "w") as archive:
        for file in (project.parent / "libs").rglob("*"):
            archive.write(file, file.relative_to(project.parent / "libs"))
    assert rows_of(project, python_path=(layer,)) == "3 5"


@pytest.mark.long
def test_what_the_python_path_names_travels_by_name(project: Path) -> None:
    """Agents inherit it; layers are often stripped of their metadata."""
    libs = project.parent / "libs"
    libs.mkdir()
    (libs / "held.py").write_text(HELD)
    assert rows_of(project, python_path=(libs,)) == "3 5"


def test_a_folder_that_the_program_puts_on_its_path_travels_by_value(project: Path) -> None:
    """`sys.path.append("../src")` in a notebook: agents do not have this folder."""
    source = project.parent / "src"
    source.mkdir()
    (project / "own.py").rename(source / "own.py")
    install(project.parent / "libs", held=HELD)
    assert rows_of(project, source, python_path=(project.parent / "libs",)) == "3 5"


class Elsewhere:
    """A finder as that of an editable installation."""

    @staticmethod
    def find_spec(name: str, path: object, target: object = None) -> ModuleSpec | None:
        """Find one module."""
        del path, target
        return ModuleSpec(name, None) if name == "one_of_a_finder" else None


def test_what_no_import_finds_any_more_travels_by_value(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As after `%cd` in a notebook; the agents have the finders of what is installed."""
    for name in ("left_behind", "one_of_a_finder"):
        (tmp_path / f"{name}.py").write_text(OWN)
        with pytest.MonkeyPatch.context() as patch:
            patch.syspath_prepend(tmp_path)
            monkeypatch.setitem(sys.modules, name, importlib.import_module(name))
    one_more = sys.modules["left_behind"].one_more
    monkeypatch.setattr(sys, "meta_path", [*sys.meta_path, Elsewhere])
    with OwnModules(install_nothing, None).by_value():
        assert "left_behind" in cloudpickle.list_registry_pickle_by_value()
        assert "one_of_a_finder" not in cloudpickle.list_registry_pickle_by_value()
    rows = pd.DataFrame({"n": [1, 2]})
    result = daskprs.parallel_run(rows, one_more, job_dir=tmp_path / "job", progress=False)
    assert result.to_pandas()["n"].tolist() == [2, 3]


def test_a_folder_without_init_is_a_package_of_the_caller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`import helpers.own` beside a notebook, and then `helpers.own.one_more` in `run`."""
    (tmp_path / "helpers_here").mkdir()
    (tmp_path / "helpers_here/own.py").write_text(OWN)
    monkeypatch.syspath_prepend(tmp_path)
    importlib.import_module("helpers_here.own")
    package = sys.modules["helpers_here"]
    for name in ("helpers_here", "helpers_here.own"):
        monkeypatch.setitem(sys.modules, name, sys.modules[name])
    result = daskprs.parallel_run(
        pd.DataFrame({"n": [1, 2]}),
        lambda rows: rows.apply(package.own.one_more),
        job_dir=tmp_path / "job",
        progress=False,
    )
    assert result.to_pandas()["n"].tolist() == [2, 3]


def test_a_module_that_is_edited_and_loaded_again_has_its_new_lines(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Tracebacks show these lines; the process may have read the old ones for another job."""
    monkeypatch.syspath_prepend(tmp_path)
    file = tmp_path / "edited_now.py"
    file.write_text(OWN)
    edited = importlib.import_module("edited_now")
    monkeypatch.setitem(sys.modules, "edited_now", edited)
    for text in (OWN, f"# new\n{OWN}"):
        file.write_text(text)
        importlib.reload(edited)
        (source,) = check_script(edited.one_more, None).sources
        assert source.text == text


@pytest.mark.long
def test_what_a_build_leaves_beside_sources_installs_nothing(project: Path) -> None:
    """`name.egg-info` of an editable installation, or of an old build."""
    (project / "own.egg-info").mkdir()
    (project / "own.egg-info/PKG-INFO").write_text("Name: own\nVersion: 1.0\n")
    (project / "own.egg-info/SOURCES.txt").write_text("own.py\n")
    install(project.parent / "libs", held=HELD)
    assert rows_of(project, python_path=(project.parent / "libs",)) == "3 5"


def test_modules_that_the_caller_has_chosen_stay_chosen() -> None:
    """`cloudpickle.register_pickle_by_value` is for the whole process."""
    module = sys.modules[__name__]
    cloudpickle.register_pickle_by_value(module)
    try:
        check_script(install_nothing, None)
        assert __name__ in cloudpickle.list_registry_pickle_by_value()
    finally:
        cloudpickle.unregister_pickle_by_value(module)


def test_a_program_under_two_names_is_pickled_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A spawned process, such as a worker under a nanny, has `__main__` as `__mp_main__`, too."""
    monkeypatch.setitem(sys.modules, "another_name", sys.modules[__name__])
    with OwnModules(install_nothing, None).by_value():
        assert __name__ in cloudpickle.list_registry_pickle_by_value()
    assert __name__ not in cloudpickle.list_registry_pickle_by_value()


def install_nothing(rows: object) -> object:
    """Return the rows."""
    return rows


def test_a_module_is_where_its_links_lead(tmp_path: Path) -> None:
    """A link to a file, and one to its folder; a file beside both is the caller's."""
    own = OwnModules(install_nothing, tmp_path)
    (tmp_path / "mine.py").touch()
    (tmp_path / "linked.py").symlink_to(Path(os.__file__))
    (tmp_path / "folder").symlink_to(Path(os.__file__).parent)
    assert own.has(str(tmp_path / "mine.py"))
    assert own.installed(str(tmp_path / "linked.py"))
    assert own.installed(str(tmp_path / "folder" / "os.py"))
    assert own.installed(str(tmp_path / "folder" / "json" / "decoder.py"))


def test_each_folder_of_modules_is_looked_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """To resolve the path of each module took a third of the time of a small job.

    Of an installed one, it is not even asked whether it is a link.
    """
    own, looked = OwnModules(install_nothing, None), 0
    resolve, is_link = Path.resolve, os.path.islink
    asked: list[str] = []

    def noted(file: str) -> bool:
        asked.append(file)
        return is_link(file)

    def counted(path: Path, *, strict: bool = False) -> Path:
        nonlocal looked
        looked += 1
        return resolve(path, strict=strict)

    files = {str(getattr(one, "__file__", None) or "") for one in list(sys.modules.values())}
    folders = {os.path.split(one)[0] for one in files}
    links = sum(Path(one).is_symlink() for one in files)
    assert len(files) > 2 * len(folders)
    monkeypatch.setattr(Path, "resolve", counted)
    monkeypatch.setattr(os.path, "islink", noted)
    for _ in range(2):
        with own.by_value():
            pass
    monkeypatch.undo()
    assert not [one for one in files.intersection(asked) if "site-packages" in one]
    assert max(map(asked.count, folders)) == 1
    assert looked < len(folders) / 4 + 2 * links


def test_a_class_may_have_a_static_run_and_a_module_may_have_no_file() -> None:
    """Nothing is bound to the function, and nothing can be imported of the module."""

    class Static:
        @staticmethod
        def run(rows: pd.DataFrame) -> pd.DataFrame:
            return rows

    assert check_script(Static, None).pickled
    with pytest.raises(ScriptError, match="the module 'typed_in' is neither in"):
        check_script(ModuleType("typed_in"), None)


SHARED = threading.Lock()


def locked(rows: pd.DataFrame) -> pd.DataFrame:
    """Return the rows of one caller at a time."""
    with SHARED:
        return rows


def test_the_variable_that_has_no_pickle_is_named() -> None:
    """A notebook has many cells: the one at fault may be far from `run`."""
    held = threading.Lock()

    def run(rows: pd.DataFrame) -> pd.DataFrame:
        return locked(rows)

    def enclosed(rows: pd.DataFrame) -> bool:
        return held.acquire() or bool(rows)

    why = "cannot be sent to the agents, since {} uses '{}': TypeError: cannot pickle"
    with pytest.raises(ScriptError, match=why.format("locked", "SHARED")):
        check_script(run, None)
    with pytest.raises(ScriptError, match=why.format(".*enclosed", "held")):
        check_script(enclosed, None)


CELL = """
class Rounder:
    def run(self, rows):
        return rows[rows["n"].isin(KEPT)].round(PLACES)
"""


def digest_in_kernel(pid: int, *kept: int, cell: str = CELL) -> str:
    """Return the digest of the script of a cell, as the kernel with this number has it."""
    names = {"__name__": "__main__", "KEPT": set(kept), "PLACES": 2}
    exec(compile(cell, f"/ipykernel_{pid}/1.py", "exec"), names)  # noqa: S102 - the text above
    script = check_script(names["Rounder"](), None)
    return str(script.fingerprint()["object"])


def test_a_restarted_kernel_has_the_same_script() -> None:
    """In other lines of another cell, with another name for its class, and sets in any order."""
    assert list({0, 8}) != list({8, 0})
    first = digest_in_kernel(1, 0, 8)
    assert digest_in_kernel(2, 8, 0) == digest_in_kernel(2, 8, 0, cell=f"# run me\n{CELL}") == first
    assert digest_in_kernel(1, 0, 9) != first
    assert digest_in_kernel(1, 0, 8, cell=CELL.replace("PLACES", "3")) != first
