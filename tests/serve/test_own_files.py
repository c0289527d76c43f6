"""Files of the service: roots that reach them are refused before anything starts."""

from __future__ import annotations

import os
import stat
import sys
import sysconfig
from pathlib import Path

import pytest

import daskprs
from daskprs._serve.allowed_paths import Roots
from daskprs._serve.job_user import JobUser
from daskprs._serve.own_files import OwnFiles, names_of, refuse_foreign, startup_warnings
from daskprs.errors import OptionError


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """Return a folder with a root, and keys and code beside it."""
    for name in ("root", "keys", "code"):
        tmp_path.joinpath(name).mkdir()
    for name in ("keys/key", "code/score.py", "code/deployment.yml"):
        tmp_path.joinpath(name).touch()
    return tmp_path


def refused(home: Path, *, hidden: str = "", code: str = "", root: str = "root") -> set[str]:
    """Return for which kind of root a file in a folder is refused."""
    own = OwnFiles(
        [("--key", home / hidden)] if hidden else [],
        [("the file of hello", home / code)] if code else [],
        Path("/elsewhere/jobs"),
    )
    found = set()
    some, none = Roots({"a": str(home / root)}), Roots({})
    for option, inputs, outputs in (("--root", some, none), ("--output-root", none, some)):
        try:
            own.refuse_in(inputs, outputs)
        except OptionError as error:
            found.add(option if option in str(error) else str(error))
    return found


@pytest.mark.attack
def test_a_secret_lies_in_no_root_and_code_in_no_output_root(home: Path) -> None:
    """Neither directly, nor by a link in any part of its path, nor by what a link leads to."""
    keys, root = home / "keys", home / "root"
    assert refused(home, hidden="keys/key", code="code/score.py") == set()
    assert refused(home, hidden="keys/key", root="keys") == {"--root", "--output-root"}
    assert refused(home, code="code/score.py", root="code") == {"--output-root"}
    assert refused(home, code="code", root=".") == {"--output-root"}
    root.joinpath("key").symlink_to(keys / "key")
    root.joinpath("keys").symlink_to(keys)
    keys.joinpath("inner").symlink_to(root / "key")
    keys.joinpath("outer").symlink_to(keys / "inner")
    for name in ("root/key", "root/keys/key", "keys/inner", "keys/outer", "keys/../root/keys/key"):
        assert refused(home, hidden=name) == {"--root", "--output-root"}, name
        assert refused(home, code=name) == {"--output-root"}, name
    assert refused(home, hidden="root/keys/key", root="keys") == {"--root", "--output-root"}


@pytest.mark.attack
def test_no_output_root_holds_the_python_that_jobs_run(
    home: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its installation, daskprs itself, and what PYTHONPATH names."""
    monkeypatch.setenv("PYTHONPATH", f"{home}/code{os.pathsep}")
    for root in (sys.prefix, str(Path(daskprs.__file__).parents[1]), f"{home}/code"):
        with pytest.raises(OptionError, match="callers could replace it"):
            OwnFiles([], [], Path("/elsewhere")).refuse_in(Roots({}), Roots({"a": root}))


@pytest.mark.attack
def test_the_folder_of_jobs_has_no_output_root_around_it_or_in_it(home: Path) -> None:
    """Nor a link to it; beside it there may be one."""
    home.joinpath("root", "jobs").symlink_to(home / "keys")
    for folder, root in (("root/inner", "root"), ("root/jobs", "root"), ("root", "root/inner")):
        home.joinpath(root).mkdir(exist_ok=True)
        with pytest.raises(OptionError, match=f"--folder {home}/{folder}"):
            OwnFiles([], [], home / folder).refuse_in(Roots({}), Roots({"a": str(home / root)}))
    OwnFiles([], [], home / "code").refuse_in(Roots({}), Roots({"a": str(home / "root")}))


def test_loops_of_links_have_names_too(home: Path) -> None:
    """Each link that stands in the way counts once."""
    home.joinpath("a").symlink_to(home / "b")
    home.joinpath("b").symlink_to(home / "a")
    assert {home / "a", home / "b"} < names_of(home / "a")


def test_a_key_that_others_can_read_is_warned_of(home: Path) -> None:
    """With what to do about it; so are jobs of root."""
    key = home / "keys" / "key"
    key.chmod(0o644)
    assert [one for one in startup_warnings([], str(key)) if f"chmod 600 {key}" in one]
    key.chmod(0o600)
    found = [*startup_warnings([], str(key))]
    assert ["jobs run as root" in one for one in found] == [True] * (os.geteuid() == 0)
    assert [*startup_warnings([], str(home / "none"))] == found


@pytest.mark.attack
def test_the_folder_of_a_service_is_its_own(home: Path) -> None:
    """In one that others may write to they could plant a job, or a link in place of the lock."""
    folder = home / "keys"
    folder.chmod(0o711)
    refuse_foreign(folder)
    folder.chmod(0o771)
    with pytest.raises(OptionError, match="may be written by other users"):
        refuse_foreign(folder)
    home.joinpath("link").symlink_to(home / "root")
    with pytest.raises(OptionError, match="is a link"):
        refuse_foreign(home / "link")
    if os.geteuid() == 0:
        os.chown(folder, 23456, 23456)
        with pytest.raises(OptionError, match="belongs to the user with the number 23456"):
            refuse_foreign(folder)


@pytest.mark.attack
def test_a_script_cannot_change_what_jobs_run(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files in a folder of code, folders in which another could take its place, and Python."""
    needs: dict[str, str] = {}

    def look(_: JobUser, paths: list[tuple[str, str, bool, str]]) -> None:
        needs.update({path: verb for path, verb, may, _ in paths if verb == "write" and not may})

    monkeypatch.setattr(JobUser, "refuse_unfit", look)
    user = JobUser("user", 23456, 23456, (23456,))
    OwnFiles([], [("--code", home / "code")], home / "jobs").refuse_to(user, Roots({}), Roots({}))
    code = home.resolve() / "code"
    python = {sys.prefix, sys.executable, sysconfig.get_path("purelib")}
    assert {*map(str, (code, code / "score.py", code.parent, "/")), *python} <= needs.keys()
    assert "/tmp" not in needs or not Path("/tmp").stat().st_mode & stat.S_ISVTX  # noqa: S108 - no file
