"""Each fault fits the package as it is, and names a test: `make faults` runs them."""

from __future__ import annotations

import ast
import shutil
from pathlib import Path

import pytest

import daskprs
from tests.faults.seeded import HOME, Fault, all_faults, apply, read_fault

INSTALLED = Path(daskprs.__file__).parents[1]
"""Where the package is, which may be an installed one."""


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_each_fault_applies(tmp_path: Path) -> None:
    """Whoever changes the lines around a fault seeds the same fault again."""
    problems = []
    for fault in all_faults():
        folder = tmp_path / fault.name
        for name in fault.changed:
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy2(INSTALLED / name, folder / name)
        problems.append(apply(fault, folder))
        for name in fault.changed:
            ast.parse((folder / name).read_text())
    assert not any(problems), "\n".join(filter(None, problems))


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_fault_in_lines_that_have_changed_is_named(tmp_path: Path) -> None:
    """It is not applied to lines that are only similar."""
    fault = all_faults()[0]
    file = tmp_path / fault.changed[0]
    file.parent.mkdir(parents=True)
    text = (INSTALLED / fault.changed[0]).read_text().replace("    ", "  ")
    file.write_text(text)
    assert f"{fault.name}.patch: it does not apply" in apply(fault, tmp_path)
    assert file.read_text() == text


def test_each_fault_names_a_test() -> None:
    """It is the quickest one that finds the fault."""
    missing = [fault.found_by for fault in all_faults() if not _is_there(fault)]
    assert not missing, f"the faults name tests that are not there: {missing}"


def _is_there(fault: Fault) -> bool:
    file, _, name = fault.found_by.partition("::")
    if not (HOME / file).is_file():
        return False
    tree = ast.parse((HOME / file).read_text())
    functions = (ast.FunctionDef, ast.AsyncFunctionDef)
    return any(isinstance(one, functions) and one.name == name for one in tree.body)


def test_there_are_at_least_twenty_and_each_changes_a_few_lines_of_the_package() -> None:
    """A fault is one that a person makes by mistake."""
    faults = all_faults()
    assert len(faults) >= 20
    for fault in faults:
        lines = fault.patch.read_text().splitlines()
        changed = [line for line in lines if line[:1] in "+-" and line[:3] not in ("+++", "---")]
        assert 1 <= len(changed) <= 6, fault.name
        assert all(name.startswith("daskprs/") for name in fault.changed), fault.name


def test_a_patch_without_a_promise_is_refused(tmp_path: Path) -> None:
    """The message has the form."""
    patch = tmp_path / "fault.patch"
    patch.write_text("# Found by: tests/test_x.py::test_x\n--- a/x\n+++ b/x\n")
    with pytest.raises(ValueError, match="begins with `# PROMISE`"):
        read_fault(patch)
