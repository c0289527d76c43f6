"""MLflow models without a scoring script: `predict` is called once for each file."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pandas as pd
import pytest

import daskprs
from daskprs.azure import BatchDeployment

HAS_MLFLOW = importlib.util.find_spec("mlflow") is not None
needs_mlflow = pytest.mark.skipif(
    not HAS_MLFLOW, reason="mlflow-skinny brings thirty packages and 100 MB"
)
MODEL = """
flavors:
  python_function:
    code: code
    loader_module: {module}
    env: {{}}
mlflow_version: 2.10.0
signature:
  inputs: '{inputs}'
"""
COLUMNS = '[{"type": "long", "name": "n"}, {"type": "string", "name": "code"}]'
TENSOR = '[{"type": "tensor", "tensor-spec": {"dtype": "float32", "shape": [-1, -1, -1, N]}}]'
LOADER = """
class Model:
    def predict(self, data, params=None):
        {body}

def _load_pyfunc(path):
    return Model()
"""
DOUBLES = "return data['n'] * 2 if data['code'].str.len().eq(3).all() else None"
TWO_COLUMNS = "return data.assign(half=data['n'] / 2)[['half', 'code']]"
SUMS = (
    "import pandas as pd; shape = 'x'.join(map(str, data.shape[1:])); "
    "return pd.DataFrame({'shape': [shape], 'of': [str(data.dtype)], 'sum': [data.sum()]})"
)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a working directory."""
    monkeypatch.chdir(tmp_path)
    return tmp_path


def model(home: Path, module: str, body: str, inputs: str) -> Path:
    """Write a model as MLflow lays it out, and return its folder."""
    folder = home / "models" / module
    (folder / "code").mkdir(parents=True)
    (folder / "MLmodel").write_text(MODEL.format(module=module, inputs=inputs))
    (folder / "code" / f"{module}.py").write_text(LOADER.format(body=body))
    return folder


def tables(home: Path) -> Path:
    """Write two tables, and return their folder."""
    data = home / "data"
    data.mkdir()
    (data / "a.csv").write_text("n,code,more\n1,007,x\n2,008,y\n")
    pd.DataFrame({"n": [5], "code": ["abc"]}).to_parquet(data / "b.parquet")
    return data


def lines(deployment: BatchDeployment, data: Path) -> str:
    """Return what a deployment writes for files."""
    result = deployment.invoke(data, progress=False)
    assert result.mini_batches.failed == 0, result.failed["error"].to_list()
    assert result.items.succeeded == result.items.total == len([*data.iterdir()])
    return Path(str(result.output_file)).read_text()


def test_files_are_counted_though_a_file_has_many_rows(home: Path) -> None:
    """In one unit: what is given, what succeeds and what fails."""
    tables(home)
    Path("score.py").write_text(
        "import pandas as pd\n__counts_inputs__ = True\n"
        "def run(files): return pd.DataFrame({'n': range(5 * ('a.csv' in files[0]))})\n"
    )
    result = daskprs.parallel_run(
        "data", "score.py", input_type="files", mini_batch_size=1, process_count_per_node=1
    )
    assert result.items == (2, 2, 0)


@needs_mlflow
def test_a_row_of_a_table_gives_a_line(home: Path) -> None:
    """With its number, what was predicted, and its file; types are those of the signature."""
    folder = model(home, "doubling", DOUBLES, COLUMNS)
    deployment = BatchDeployment("double", model=folder)
    assert lines(deployment, tables(home)) == "0,2,a.csv\n1,4,a.csv\n0,10,b.parquet\n"


@needs_mlflow
def test_a_frame_is_written_with_all_its_columns(home: Path) -> None:
    """As it is."""
    deployment = BatchDeployment("two", model=model(home, "two_columns", TWO_COLUMNS, COLUMNS))
    expected = "0,0.5,007,a.csv\n1,1.0,008,a.csv\n0,2.5,abc,b.parquet\n"
    assert lines(deployment, tables(home)) == expected


@needs_mlflow
@pytest.mark.parametrize(("channels", "total"), [(3, 12.0), (1, 4.0)])
def test_an_image_is_an_array_as_the_signature_wants_it(
    home: Path, channels: int, total: float
) -> None:
    """One call for each file."""
    images = pytest.importorskip("PIL.Image", reason="Pillow reads images for MLflow models")
    (home / "pictures").mkdir()
    images.new("RGB", (2, 2), (1, 1, 1)).save(home / "pictures" / "a.png")
    folder = model(home, f"summing{channels}", SUMS, TENSOR.replace("N", str(channels)))
    text = lines(BatchDeployment("sums", model=folder), home / "pictures")
    assert text == f"2x2x{channels},float32,{total},a.png\n"


@needs_mlflow
def test_files_of_other_kinds_are_refused(home: Path) -> None:
    """Before anything starts."""
    folder = model(home, "refusing", DOUBLES, COLUMNS)
    data = tables(home)
    (data / "c.avro").touch()
    with pytest.raises(daskprs.UsageError, match=r"does not take files of these kinds: .*c\.avro"):
        BatchDeployment("double", model=folder).invoke(data)
    assert not (home / "daskprs-jobs").exists()


@pytest.mark.skipif(HAS_MLFLOW, reason="mlflow is installed")
def test_without_mlflow_it_is_said_what_to_install(home: Path) -> None:
    """Or what to give instead."""
    folder = model(home, "missing", DOUBLES, COLUMNS)
    with pytest.raises(daskprs.UsageError, match=r"does not have: mlflow\. .*code_configuration"):
        BatchDeployment("double", model=folder).invoke(tables(home))


def test_a_model_of_another_flavor_is_refused(home: Path) -> None:
    """MLflow serves python_function alone."""
    folder = model(home, "other", DOUBLES, COLUMNS)
    (folder / "MLmodel").write_text("flavors: {mleap: {}}\n")
    with pytest.raises(daskprs.UsageError, match="no flavor python_function"):
        BatchDeployment("double", model=folder).invoke(tables(home))


def test_a_model_that_is_not_of_mlflow_needs_a_script(home: Path) -> None:
    """It is said what is missing."""
    (home / "weights").mkdir()
    with pytest.raises(daskprs.UsageError, match=r"code_configuration: it is missing.*no file MLm"):
        BatchDeployment("double", model="weights")
