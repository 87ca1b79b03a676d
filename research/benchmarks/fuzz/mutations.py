"""Mutations of bytes and of JSON-like values, drawn from one generator: the same seed gives the same bytes."""

import copy
import json
import random
from typing import Any

EXTREMES: tuple[Any, ...] = (
    None, True, False, 0, -1, 1, 2**31, 2**63, -(2**63) - 1, 10**400, 1e308, -1e308, 5e-324, 1e-300, "", " ", "NaN",
    "sNaN", "Infinity", "-1", "1e999", "stream ²", "٣", "\x1b[31m\u202e", "</script><script>", "=cmd|' /C calc'!A0",
    "a" * 5000, "../../etc/passwd", "${oc.env:HOME}", [], {}, [[]], [{}], [None], {"": None}, [[1, 2], [3, -4]],
    [[2**62, 2**62]],
)  # fmt: skip
TOKENS = (
    b"&a [*a, *a]", b"*a", b"<<: {x: 1}", b"!!python/object/apply:os.system [id]", b"${oc.env:HOME}",
    b"_target_: os.system", b"defaults: [x]", b"---\n", b"\x00", b"\xff\xfe", b"\xed\xa0\x80", b"NaN", b"Infinity",
    b"1e999", b"[" * 2000, b'{"a":' * 2000, b"../../x", b"GNU.sparse.realsize=4294967295\n", b"\x1f\x8b", b"PK\x03\x04",
    b"PAR1", b"\xc2\xb2",
)  # fmt: skip


def mutated_value(value: Any, rng: random.Random, times: int | None = None) -> Any:
    """A copy of a JSON-like value with a few places changed: another type, an extreme, deleted, repeated, swapped."""
    root = [json.loads(json.dumps(value))]
    for _ in range(times or 1 + int(rng.expovariate(0.7))):
        parent, key = _place(root, rng)
        _change(parent, key, rng)
    return root[0] if root else None


def mutated_bytes(data: bytes, rng: random.Random, other: bytes = b"") -> bytes:
    """The bytes with some flipped, cut, repeated, inserted, or spliced with those of another input."""
    result = bytearray(data)
    for _ in range(1 + int(rng.expovariate(0.7))):
        at = rng.randrange(len(result) + 1)
        kind = rng.randrange(7)
        if kind == 0 and result:
            for _ in range(rng.choice((1, 1, 2, 8))):
                result[rng.randrange(len(result))] ^= 1 << rng.randrange(8)
        elif kind == 1:
            del result[at:]
        elif kind == 2:
            del result[at : at + rng.choice((1, 4, 64, 512))]
        elif kind == 3:
            result[at:at] = rng.choice(TOKENS)
        elif kind == 4:
            result[at : at + 4] = rng.choice((b"\0\0\0\0", b"\xff\xff\xff\xff", b"\xff\xff\xff\x7f", b"\x01\0\0\0"))
        elif kind == 5:
            result[at:at] = result[max(0, at - 64) : at] * rng.choice((1, 2, 16))
        elif other:
            result[at:] = other[rng.randrange(len(other) + 1) :]
    return bytes(result)


def json_text(value: Any, rng: random.Random) -> bytes:
    """JSON of a mutated value; now and then damaged as bytes, too."""
    text = json.dumps(value, allow_nan=True).encode("utf-8", "surrogatepass")
    return mutated_bytes(text, rng) if rng.random() < 0.2 else text


def _place(root: list[Any], rng: random.Random) -> tuple[Any, Any]:
    """A random place: its container and the key in it. Deep places are as likely as shallow ones."""
    parent: Any = root
    key: Any = 0
    while True:
        inner = parent[key]
        if not isinstance(inner, (dict, list)) or not inner or rng.random() < 0.15:
            return parent, key
        parent, key = inner, rng.choice(list(inner)) if isinstance(inner, dict) else rng.randrange(len(inner))


def _change(parent: Any, key: Any, rng: random.Random) -> None:
    kind = rng.randrange(6)
    if kind == 0 and isinstance(parent, dict):
        del parent[key]
    elif kind == 1 and isinstance(parent, list):
        parent.insert(rng.randrange(len(parent) + 1), copy.deepcopy(parent[key]))
    elif kind == 2 and isinstance(parent, list) and len(parent) > 1:
        other = rng.randrange(len(parent))
        parent[key], parent[other] = parent[other], parent[key]
    elif kind == 3 and isinstance(parent[key], (int, float)) and not isinstance(parent[key], bool):
        scaled = float(max(min(parent[key], 1e300), -1e300)) * rng.choice((-1, 0, 2, 1e6, 1e-6, 1e15))
        parent[key] = int(scaled) if isinstance(parent[key], int) and abs(scaled) < 1e300 else scaled
    elif kind == 4 and isinstance(parent, dict):
        parent[str(rng.choice(EXTREMES[:20]))] = copy.deepcopy(parent[key])
    else:
        parent[key] = copy.deepcopy(rng.choice(EXTREMES))
    if not parent:
        parent.append(None) if isinstance(parent, list) else parent.update(a=None)
