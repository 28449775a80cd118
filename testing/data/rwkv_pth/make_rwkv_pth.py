#!/usr/bin/env python3
"""Makes the files beside it: PyTorch checkpoints of RWKV-7 ("x070") names, and others that readers must survive.

    pip install torch numpy safetensors
    python3 make_rwkv_pth.py

The files were made with torch 2.15.0. The logits are computed here in double precision from the formulas of RWKV-7
(arXiv 2503.14456), by plain numpy loops that share no code with the library under test.
"""

import collections
import os
import pathlib
import zipfile

import numpy as np
import torch
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent

VOCAB, WIDTH, HEADS, LAYERS, MLP = 48, 32, 2, 2, 96
RANKS = {"w": 8, "a": 6, "v": 4, "g": 12}
TOKENS = 40


def make_tensors(rng):
    """An x070 model in float32. Block 0 has no v0..v2, as released files have none."""
    tensors = collections.OrderedDict()

    def put(name, shape, scale=1.0, mean=0.0):
        values = mean + scale * rng.standard_normal(shape)
        tensors[name] = torch.tensor(values, dtype=torch.float32)

    put("emb.weight", (VOCAB, WIDTH), 0.5)
    for i in range(LAYERS):
        block = f"blocks.{i}."
        for norm in (["ln0"] if i == 0 else []) + ["ln1", "ln2"]:
            put(f"{block}{norm}.weight", (WIDTH,), 0.1, 1.0)
            put(f"{block}{norm}.bias", (WIDTH,), 0.1)
        att = block + "att."
        for z in "rwkvag":
            put(f"{att}x_{z}", (1, 1, WIDTH), 0.3, 0.5)
        for z in "wav" if i > 0 else "wa":
            put(f"{att}{z}0", (1, 1, WIDTH), 0.5, -1.0 if z == "w" else 0.0)
            put(f"{att}{z}1", (WIDTH, RANKS[z]), 0.2)
            put(f"{att}{z}2", (RANKS[z], WIDTH), 0.3)
        put(f"{att}g1", (WIDTH, RANKS["g"]), 0.2)
        put(f"{att}g2", (RANKS["g"], WIDTH), 0.5)
        put(f"{att}k_k", (1, 1, WIDTH), 0.1, 0.8)
        put(f"{att}k_a", (1, 1, WIDTH), 0.1, 1.0)
        put(f"{att}r_k", (HEADS, WIDTH // HEADS), 0.1)
        for matrix in ("receptance", "key", "value", "output"):
            put(f"{att}{matrix}.weight", (WIDTH, WIDTH), WIDTH**-0.5)
        put(f"{att}ln_x.weight", (WIDTH,), 0.1, 1.0)
        put(f"{att}ln_x.bias", (WIDTH,), 0.1)
        put(f"{block}ffn.x_k", (1, 1, WIDTH), 0.3, 0.5)
        put(f"{block}ffn.key.weight", (MLP, WIDTH), WIDTH**-0.5)
        put(f"{block}ffn.value.weight", (WIDTH, MLP), MLP**-0.5)
    put("ln_out.weight", (WIDTH,), 0.1, 1.0)
    put("ln_out.bias", (WIDTH,), 0.1)
    put("head.weight", (VOCAB, WIDTH), WIDTH**-0.5)
    return tensors


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def layer_norm(x, weight, bias, eps=1e-5):
    return (x - x.mean()) / np.sqrt(x.var() + eps) * weight + bias


def logits_of(tensors, ids):
    """[T, V], one token at a time."""
    p = {name: tensor.double().numpy().squeeze() for name, tensor in tensors.items()}
    size = WIDTH // HEADS
    att_last = np.zeros((LAYERS, WIDTH))
    ffn_last = np.zeros((LAYERS, WIDTH))
    state = np.zeros((LAYERS, HEADS, size, size))  # [key, value]
    rows = []
    for token in ids:
        x = layer_norm(p["emb.weight"][token], p["blocks.0.ln0.weight"], p["blocks.0.ln0.bias"])
        v_first = None
        for i in range(LAYERS):
            w = {k[len(f"blocks.{i}.") :]: v for k, v in p.items() if k.startswith(f"blocks.{i}.")}
            h = layer_norm(x, w["ln1.weight"], w["ln1.bias"])
            mix = {z: h + (att_last[i] - h) * w["att.x_" + z] for z in "rwkvag"}
            att_last[i] = h
            r = w["att.receptance.weight"] @ mix["r"]
            k = w["att.key.weight"] @ mix["k"]
            v = w["att.value.weight"] @ mix["v"]
            decay = w["att.w0"] + np.tanh(mix["w"] @ w["att.w1"]) @ w["att.w2"]
            decay = np.exp(-np.exp(-np.log1p(np.exp(-decay)) - 0.5))
            rate = sigmoid(w["att.a0"] + mix["a"] @ w["att.a1"] @ w["att.a2"])
            gate = sigmoid(mix["g"] @ w["att.g1"]) @ w["att.g2"]
            if v_first is None:
                v_first = v
            else:
                v = v + (v_first - v) * sigmoid(w["att.v0"] + mix["v"] @ w["att.v1"] @ w["att.v2"])
            kappa = k * w["att.k_k"]
            k = k * (1 + (rate - 1) * w["att.k_a"])
            out = np.zeros(WIDTH)
            for head in range(HEADS):
                c = slice(head * size, (head + 1) * size)
                unit = kappa[c] / max(np.linalg.norm(kappa[c]), 1e-12)
                s = state[i, head]
                s = decay[c, None] * s - np.outer(unit * rate[c], unit @ s) + np.outer(k[c], v[c])
                state[i, head] = s
                out[c] = layer_norm(r[c] @ s, w["att.ln_x.weight"][c], w["att.ln_x.bias"][c], 64e-5)
                out[c] += (r[c] * k[c] * w["att.r_k"][head]).sum() * v[c]
            x = x + w["att.output.weight"] @ (out * gate)
            h = layer_norm(x, w["ln2.weight"], w["ln2.bias"])
            mixed = h + (ffn_last[i] - h) * w["ffn.x_k"]
            ffn_last[i] = h
            x = x + w["ffn.value.weight"] @ np.maximum(w["ffn.key.weight"] @ mixed, 0) ** 2
        rows.append(p["head.weight"] @ layer_norm(x, p["ln_out.weight"], p["ln_out.bias"]))
    return np.array(rows)


class Malicious:
    """What a pickle can do to whoever loads it."""

    def __reduce__(self):
        return (os.system, ("echo this must never run",))


def rezip(source, target, **how):
    """The same entries, written by Python's zipfile. how: compress_type, or force_zip64."""
    compress = how.get("compress_type", zipfile.ZIP_STORED)
    with zipfile.ZipFile(source) as old, zipfile.ZipFile(target, "w", compress) as new:
        for info in old.infolist():
            entry = zipfile.ZipInfo(info.filename)
            entry.compress_type = compress
            with new.open(entry, "w", force_zip64=how.get("force_zip64", False)) as out:
                out.write(old.read(info))


def check_written():
    """written.pth is what //kvm/io/torch:torch_file_test writes: both ways of loading it must find the same."""
    for weights_only in (True, False):
        loaded = torch.load("written.pth", weights_only=weights_only)
        assert list(loaded) == ["matrix", "bf16", "scalar", "empty", "n\u00e4me"]
        assert torch.equal(loaded["matrix"], torch.tensor([[0.5, -1.5, 2.5], [3.5, -4.5, 5.5]]))
        assert torch.equal(loaded["bf16"], torch.tensor([[[1, -2, float("inf")]]], dtype=torch.bfloat16))
        assert torch.equal(loaded["scalar"], torch.tensor(0.5))
        assert loaded["empty"].shape == (0, 3) and loaded["empty"].dtype == torch.float16
        assert torch.equal(loaded["n\u00e4me"], torch.tensor([1, 2, 3, 4, 5], dtype=torch.uint8))
    assert zipfile.ZipFile("written.pth").testzip() is None


def main():
    os.chdir(HERE)
    check_written()
    rng = np.random.default_rng(70)
    tensors = make_tensors(rng)
    ids = rng.integers(0, VOCAB, TOKENS)
    expected = {"input_ids": ids.astype(np.int64)[None]}
    for name, dtype in (("f32", torch.float32), ("bf16", torch.bfloat16), ("f16", torch.float16)):
        typed = {key: value.to(dtype) for key, value in tensors.items()}
        torch.save(typed, f"x070_{name}.pth")
        expected[f"logits_{name}"] = logits_of(typed, ids).astype(np.float32)[None]
    save_file(expected, "x070_expected.safetensors")

    # Small files, for what tensors can look like in a checkpoint.
    base = torch.arange(24, dtype=torch.float32)
    matrix = base.reshape(4, 6)
    views = {
        "all": base,
        "matrix": matrix,
        "tail": base[20:],
        "rows": matrix[1:3],
        "transposed": matrix.t(),
        "column": matrix[:, 2],
        "every_other": base[::2],
        "scalar": torch.tensor(2.5),
        "empty": torch.zeros(0, 3),
        "ones_in_shape": base.reshape(1, 24, 1).transpose(0, 2),
    }
    torch.save(views, "views.pth")
    torch.save({"expanded": torch.ones(1).expand(1000, 1000)}, "expanded.pth")
    dtypes = {}
    for name in ("float64", "float32", "float16", "bfloat16", "int64", "int32", "int16", "int8", "uint8", "bool"):
        dtypes[name] = torch.tensor([0, 1, 1, 0, 1], dtype=getattr(torch, name))
    for name in ("uint16", "uint32", "uint64"):  # without a storage class of their own
        dtypes[name] = torch.tensor([7, 8, 9], dtype=getattr(torch, name))
    torch.save(dtypes, "dtypes.pth")

    module = torch.nn.Sequential(torch.nn.Linear(3, 2), torch.nn.LayerNorm(2))
    with torch.no_grad():
        for i, parameter in enumerate(module.parameters()):
            parameter.copy_(torch.arange(parameter.numel()).reshape(parameter.shape) + 10 * i)
    torch.save(module.state_dict(), "state_dict.pth")  # an OrderedDict with an attribute
    torch.save(dict(module.named_parameters()), "parameters.pth")
    torch.save(dict(module.named_parameters()), "protocol4.pth", pickle_protocol=4)
    torch.save({"w": base}, "legacy.pth", _use_new_zipfile_serialization=False)
    torch.save({"w": base, "then": Malicious()}, "malicious.pth")
    torch.save({"w": base, "step": 3}, "not_only_tensors.pth")
    torch.save([base], "list.pth")
    torch.save({"c": torch.zeros(2, dtype=torch.complex64)}, "complex.pth")
    rezip("parameters.pth", "deflated.pth", compress_type=zipfile.ZIP_DEFLATED)
    rezip("parameters.pth", "zip64.pth", force_zip64=True)


if __name__ == "__main__":
    main()
