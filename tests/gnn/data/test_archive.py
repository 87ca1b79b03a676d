"""Files of strangers: what `write_archive` did not write is refused."""

import io
import json
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch

from gnnperf.core import InputError
from gnnperf.gnn.data import archive
from gnnperf.gnn.data.archive import TEXT, read_archive, write_archive


def packed(path: Path, members: dict[str, bytes], compression: int = zipfile.ZIP_STORED) -> Path:
    """An archive of these members and an empty JSON object."""
    with zipfile.ZipFile(path, "w", compression) as made:
        for name, content in {f"{TEXT}.npy": npy(np.frombuffer(b"{}", np.uint8)), **members}.items():
            made.writestr(name, content)
    return path


def npy(array: np.ndarray) -> bytes:
    held = io.BytesIO()
    np.save(held, array)
    return held.getvalue()


def test_what_is_written_comes_back(tmp_path: Path) -> None:
    plain = {"a": [1, -2.5, None, True, "ü", float("inf")], "b": {"c": {}}}
    tensors = {"group/x": torch.arange(6.0).reshape(2, 3), "empty": torch.zeros(0, 4), "turned": torch.ones(3, 2).T}
    digest = write_archive(tmp_path / "x.npz", plain, {name: one.contiguous() for name, one in tensors.items()})
    stored = read_archive(tmp_path / "x.npz", "")
    assert (stored.plain, stored.sha256) == (plain, digest)
    assert set(stored.tensors) == set(tensors)
    assert all(torch.equal(stored.tensors[name], one) for name, one in tensors.items())
    assert json.loads(np.load(tmp_path / "x.npz")[TEXT].tobytes()) == plain  # NumPy reads it, too


CLAIMS = npy(np.zeros(4, np.float32)).replace(b"(4,)", b"(10000000000,)").replace(b" " * 10 + b"\n", b"\n")


@pytest.mark.parametrize(
    "members",
    [
        {"x.npy": CLAIMS},
        {"x.npy": npy(np.zeros(4, np.float32))[:-1]},
        {"x.npy": npy(np.zeros(4))},
        {"x.npy": npy(np.array([{}], dtype=object))},
        {"x.npy": npy(np.asfortranarray(np.zeros((2, 3), np.float32)))},
        {"x.npy": npy(np.zeros(4, np.uint8))},
        {"x.npy": b"no array"},
        {f"{TEXT}.npy": npy(np.frombuffer(b"[" * 100_000, np.uint8))},
        {f"{TEXT}.npy": npy(np.frombuffer(b'"' + b"x" * 2**23 + b'"', np.uint8))},
    ],
    ids=["claims more", "cut off", "float64", "objects", "fortran", "bytes", "text", "nested", "long"],
)  # fmt: skip
def test_other_members_are_refused(tmp_path: Path, members: dict[str, bytes]) -> None:
    good = packed(tmp_path / "good.npz", {"x.npy": npy(np.zeros(4, np.float32))})
    assert read_archive(good, "").tensors["x"].tolist() == [0.0] * 4
    with pytest.raises(InputError, match="not a checkpoint of gnnperf, or damaged"):
        read_archive(packed(tmp_path / "bad.npz", members), "a file")


def test_other_archives_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    members = {"x.npy": npy(np.zeros(4, np.float32))}
    good = packed(tmp_path / "good.npz", members).read_bytes()
    flipped = good.replace(b"\0" * 16, b"\0" * 15 + b"\1", 1)  # the sum of the member is another one
    contents = (b"", b"text", good[:-1], good[100:], good + b"\0", good[:-2] + b"\1\0x", flipped)
    bad = [tmp_path / f"{number}.npz" for number in range(len(contents))]
    for path, content in zip(bad, contents, strict=True):
        path.write_bytes(content)
    for path in (*bad, packed(tmp_path / "packed.npz", members, zipfile.ZIP_DEFLATED)):
        with pytest.raises(InputError, match="damaged"):
            read_archive(path, "a file")
    monkeypatch.setattr(archive, "MAX_BYTES", 100)
    with pytest.raises(InputError, match="too large"):
        read_archive(tmp_path / "good.npz", "a file")
