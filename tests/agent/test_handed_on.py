"""What one stage hands on to the next: the same values, in memory of their own."""

from __future__ import annotations

import re
import sys
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from daskprs._agent.child import handed_on
from daskprs._agent.child.handed_on import HandedOn
from daskprs._agent.supervision.stage_worker import StageFile
from daskprs.errors import AgentError, ReturnTypeError

if TYPE_CHECKING:
    from collections.abc import Iterator


def handed(value: Any, index: int = 7) -> HandedOn:
    """Return a value with what belongs to its mini-batch."""
    return HandedOn(value, index, 3, None, {}, 1.0, 0.5, 0.0, 0.0, 0.0, 0, {})


def hand(value: Any, file: StageFile, *, stage: str, index: int = 7) -> None:
    """Write a value as a stage does."""
    handed_on.write(handed_on.packed(value, stage), handed(None, index), file.path)


@pytest.fixture
def file() -> Iterator[StageFile]:
    """Yield a file between two stages."""
    one = StageFile()
    yield one
    one.close()


@given(
    st.recursive(
        st.one_of(
            st.none() | st.text() | st.binary(),
            arrays.arrays(arrays.scalar_dtypes(), arrays.array_shapes(min_dims=0, min_side=0)),
        ),
        lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    )
)
def test_a_value_arrives_as_it_was(value: Any) -> None:
    """Whatever arrays are in it, and however long its file was before."""
    file = StageFile()
    try:
        hand(["x" * 10_000], file, stage="preprocess")
        hand(value, file, stage="preprocess")
        np.testing.assert_equal(handed_on.read(file.path, 7), handed(value))
    finally:
        file.close()


def test_tables_and_frames_arrive_as_they_were(file: StageFile) -> None:
    """With their types and their index."""
    frame = pd.DataFrame({"a": [1, 2], "b": ["x", None]}, index=pd.Index([5, 6], name="i"))
    table = pa.table({"a": pa.array([[1], None]), "b": pa.array(["x", "y"]).dictionary_encode()})
    hand({"frame": frame, "table": table}, file, stage="run")
    value = handed_on.read(file.path, 7).value
    pd.testing.assert_frame_equal(value["frame"], frame)
    assert value["table"].equals(table)


def test_rows_of_a_table_travel_without_the_others(file: StageFile) -> None:
    """A mini-batch is a slice of what its process has mapped."""
    table = pa.table({"a": [[row] * 10 for row in range(10_000)], "b": ["x"] * 10_000})
    hand(table.slice(5, 3), file, stage="preprocess")
    assert Path(file.path).stat().st_size < 10_000
    assert handed_on.read(file.path, 7).value.equals(table.slice(5, 3))


def test_an_array_may_be_changed_and_outlives_its_file() -> None:
    """Nobody else sees the change."""
    file = StageFile()
    hand(np.zeros(100_000), file, stage="preprocess")
    ours, theirs = (handed_on.read(file.path, 7).value for _ in range(2))
    file.close()
    ours[:] = 1
    assert (ours.sum(), theirs.sum()) == (100_000, 0)


def test_a_part_of_an_array_keeps_the_order_of_its_dimensions_and_is_not_in_the_pickle(
    file: StageFile,
) -> None:
    """Sums and kernels round by this order. The part is that of pictures, cut at the edges."""
    pictures = np.arange(2 * 9 * 9 * 3, dtype="f4").reshape(2, 9, 9, 3)
    part = pictures.transpose(0, 3, 1, 2)[..., 2:7]
    hand(part, file, stage="preprocess")
    there = handed_on.read(file.path, 7).value
    np.testing.assert_array_equal(there, part)
    assert there.strides == part.copy(order="K").strides
    assert not there.flags.owndata


def test_tensors_keep_the_order_of_their_dimensions(file: StageFile) -> None:
    """A convolution of `channels_last` rounds otherwise than that of other tensors."""
    torch: Any = pytest.importorskip("torch")
    last = torch.rand(2, 3, 9, 9).to(memory_format=torch.channels_last)
    tensors = [
        last,
        last[:, :, 2:7, 2:7],
        last.bfloat16().requires_grad_(),
        torch.empty(2, 0, 3, 3).permute(1, 0, 3, 2),
        torch.rand(3).expand(4, 3),
        torch.tensor(3),
    ]
    hand(tensors, file, stage="preprocess")
    for there, tensor in zip(handed_on.read(file.path, 7).value, tensors, strict=True):
        assert torch.equal(there, tensor)
        assert there.stride() == torch.clone(tensor).stride()
        assert (there.dtype, there.requires_grad) == (tensor.dtype, tensor.requires_grad)


def test_the_value_of_another_mini_batch_is_refused(file: StageFile) -> None:
    """It would make rows of the wrong input."""
    hand(1, file, stage="preprocess", index=8)
    with pytest.raises(AgentError, match="that of mini-batch 8, not 7"):
        handed_on.read(file.path, 7)


@pytest.mark.parametrize("value", [threading.Lock(), (n for n in ()), lambda: 3])
def test_what_no_process_can_send_is_named(value: Any, file: StageFile) -> None:
    """With the function that returned it."""
    with pytest.raises(ReturnTypeError, match=re.escape("postprocess() returned a ")):
        hand([value], file, stage="postprocess")


def test_without_page_locked_memory_any_other_will_do(
    file: StageFile, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A container may allow little of it."""
    asked = []

    def empty(size: int, **given: Any) -> Any:
        asked.append((size, given["pin_memory"]))
        msg = "CUDA error: out of memory"
        raise RuntimeError(msg)

    cuda = SimpleNamespace(is_initialized=lambda: True)
    stand_in = SimpleNamespace(cuda=cuda, Tensor=object, uint8="u1", empty=empty)
    monkeypatch.setitem(sys.modules, "torch", stand_in)
    hand({"x": np.arange(1000)}, file, stage="preprocess")
    there = handed_on.read(file.path, 7).value["x"]
    there += 1
    assert list(there) == list(range(1, 1001))
    assert asked == [(8000, True)]


class OnDevice:
    """What a device has to compute before it can be pickled, and cannot."""

    def __reduce__(self) -> Any:
        msg = "CUDA error: device-side assert triggered"
        raise RuntimeError(msg)


def test_a_device_that_fails_late_is_not_taken_for_a_value_that_cannot_travel() -> None:
    """It was said that no retry mends it, and the process went on with a lost device."""
    with pytest.raises(RuntimeError, match="CUDA error: device-side assert triggered"):
        handed_on.packed([OnDevice()], "run")


class NoNumber:
    """What can be pickled, and not made again."""

    def __reduce__(self) -> tuple[type[int], tuple[str]]:
        return int, ("x",)


def test_the_error_of_an_object_that_cannot_be_made_again_says_where_it_comes_from(
    file: StageFile,
) -> None:
    """No frame of its traceback is the script's."""
    hand([NoNumber()], file, stage="preprocess")
    with pytest.raises(ValueError, match="invalid literal") as caught:
        handed_on.read(file.path, 7)
    assert "what the function before this one returned" in caught.value.__notes__[0]
