"""Files of strangers: what torch.save did not write is refused, whatever torch itself would make of it."""

from __future__ import annotations

import io
import pickle
import struct
import zipfile
from pathlib import Path

import pytest
import torch

from gnnperf.core.errors import InputError
from gnnperf.gnn.data.plain import load_plain

PROTO, TENSOR, FLOAT = b"\x80\x02", b"ctorch._utils\n_rebuild_tensor_v2\n", b"ctorch\nFloatStorage\n"


def text(value: str) -> bytes:
    raw = value.encode("utf-8", "surrogatepass")
    return b"X" + struct.pack("<I", len(raw)) + raw


def tensor(claimed: int, size: bytes, stride: bytes) -> bytes:
    """A tensor over the storage "0" that claims so many numbers."""
    storage = b"(" + text("storage") + FLOAT + text("0") + text("cpu") + number(claimed) + b"tQ"
    return (
        TENSOR
        + b"("
        + storage
        + b"K\0"
        + size
        + b"\x85"
        + stride
        + b"\x85"
        + b"\x89"
        + b"ccollections\nOrderedDict\n)RtR"
    )


def number(value: int) -> bytes:
    return b"\x8a\x08" + struct.pack("<q", value)


def archive(path: Path, content: bytes, packed: int = zipfile.ZIP_STORED, storage: bytes = b"\0" * 16) -> Path:
    """A zip as torch ends it, with a pickle and the storage "0"."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", packed) as made:
        for name, member in (
            ("data.pkl", PROTO + content),
            ("byteorder", b"little"),
            ("version", b"3\n"),
            ("data/0", storage),
        ):
            made.writestr(f"archive/{name}", member)
    raw = held.getvalue()
    count, size, offset = struct.unpack("<HII", raw[-12:-2])
    end64 = struct.pack("<4sQ2H2I4Q", b"PK\6\6", 44, 45, 45, 0, 0, count, count, size, offset)
    path.write_bytes(raw[:-22] + end64 + struct.pack("<4sIQI", b"PK\6\7", 0, len(raw) - 22, 1) + raw[-22:])
    return path


def test_what_torch_saves_comes_back(tmp_path: Path) -> None:
    path, shared = tmp_path / "x.pt", torch.arange(6.0).reshape(2, 3)
    saved = {"a": [1, -2.5, 2**40, None, True, "ü"], ("T1", "op"): (), 3: {"t": shared, "again": shared[1:]},
             "long": torch.tensor(7), "double": torch.zeros(0, 4, dtype=torch.float64), "turned": shared.T}  # fmt: skip
    torch.save(saved, path)
    loaded = load_plain(path, "")
    assert loaded["a"] == saved["a"] and loaded["T1", "op"] == ()
    for one, two in ((loaded[3], saved[3]), (loaded, saved)):  # type: ignore[index]
        for name, value in two.items():  # type: ignore[union-attr]
            if isinstance(value, torch.Tensor):
                assert torch.equal(one[name], value) and one[name].dtype == value.dtype, name


def test_the_archive_of_these_tests_is_one_that_is_read(tmp_path: Path) -> None:
    good = archive(tmp_path / "x.pt", tensor(4, b"K\4", b"K\1") + b".")
    assert load_plain(good, "").tolist() == [0.0] * 4
    assert torch.load(good, weights_only=True).tolist() == [0.0] * 4


@pytest.mark.parametrize(
    "content",
    [
        tensor(10**6, b"K\4", b"K\1"),
        tensor(4, number(10**12), b"K\0"),  # four numbers, seen 250 billion times each
        tensor(4, number(-1), b"K\1"),
        tensor(4, b"K\5", b"K\1"),
        tensor(4, b"\x88", b"\x88").replace(FLOAT, b"ctorch\nQInt8Storage\n"),
        b"cbuiltins\nbytearray\n" + number(10**10) + b"\x85R",  # torch allows this one
        b"ctorch\nTensor\n" + number(10**10) + b"\x85R",
        b"cos\nsystem\n" + text("true") + b"\x85R",
        b"\x93",  # STACK_GLOBAL
        b"}" + b")" + b"\x85" * 100_000 + b"Ns",  # a key whose hash overflows the stack
        b"]q\0h\0a",  # a list that holds itself
        b"]q\0" + b"h\0" * 2 + b"\x86",
        b"\x8a\xff" + b"\x7f" * 255,
        text("\ud800"),
        b"N" * 400_000,
        b"(" * 100,
        b"",
    ],
    ids=lambda content: repr(content[:24]),
)  # fmt: skip
def test_other_programs_are_refused(tmp_path: Path, content: bytes) -> None:
    with pytest.raises(InputError, match="not a checkpoint of gnnperf, or damaged"):
        load_plain(archive(tmp_path / "x.pt", content + b"."), "a file")


def test_a_text_counts_as_often_as_it_is_used(tmp_path: Path) -> None:
    long = text("x" * 100_000) + b"q\0"
    assert len(load_plain(archive(tmp_path / "few.pt", b"](" + long + b"h\0" * 100 + b"e."), "")) == 101
    with pytest.raises(InputError, match="damaged"):
        load_plain(archive(tmp_path / "many.pt", b"](" + long + b"h\0" * 1000 + b"e."), "")


def test_archives_that_torch_does_not_write_are_refused(tmp_path: Path) -> None:
    good = tensor(4, b"K\4", b"K\1") + b"."
    packed = archive(tmp_path / "packed.pt", good, zipfile.ZIP_DEFLATED)
    plain = archive(tmp_path / "plain.pt", good).read_bytes()
    flipped, longer, commented = (tmp_path / f"{name}.pt" for name in ("flipped", "longer", "commented"))
    place = plain.index(b"archive/data/0") + len(b"archive/data/0") + 2
    flipped.write_bytes(plain[:place] + b"\1" + plain[place + 1 :])  # torch does not check sums
    assert torch.load(flipped, weights_only=True).any()
    longer.write_bytes(plain + b"\0")
    commented.write_bytes(plain[:-2] + b"\1\0x")
    with zipfile.ZipFile(tmp_path / "zip.pt", "w") as made:
        made.writestr("archive/data.pkl", pickle.dumps({}))
    for path in (packed, flipped, longer, commented, tmp_path / "zip.pt"):
        with pytest.raises(InputError, match="damaged"):
            load_plain(path, "a file")


def test_a_file_outside_the_limit_is_refused_unread(tmp_path: Path) -> None:
    path = tmp_path / "x.pt"
    torch.save({"a": torch.zeros(2**19)}, path)
    with pytest.raises(InputError, match=r"too large.*of at most 1 MiB"):
        load_plain(path, "a file", max_bytes=2**20)
