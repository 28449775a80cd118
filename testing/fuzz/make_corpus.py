#!/usr/bin/env python3
"""Makes the seeds in corpus/ from nothing and from the files in testing/.

    pip install torch
    bazelw build //tools:kvm //testing/fuzz:snapshot_seeds && python3 testing/fuzz/make_corpus.py bazel-bin

Inputs that a fuzzer found lie there as well, under names that begin with "found_"; they are left alone.
"""

import collections
import json
import pathlib
import pickle
import pickletools
import shutil
import struct
import subprocess
import sys
import tempfile
import zipfile

import torch

HERE = pathlib.Path(__file__).resolve().parent
TESTING = HERE.parent
CORPUS = HERE / "corpus"
KVM = pathlib.Path(sys.argv[1]) / "tools/kvm"
SNAPSHOT_SEEDS = pathlib.Path(sys.argv[1]) / "testing/fuzz/snapshot_seeds"

SPEC = """
vocab_size: 16 width: 16 mlp_token_shift: true block_lambdas: true skip_connections: true residual_scale: 0.5
logit_softcap: 15 rotary_table: FLOAT32 mlp_expansion: 2 tied_head: %s
mixers { name: "r" rwkv7 { num_heads: 2 decay_rank: 4 in_context_rate_rank: 4 value_rank: 4 gate_rank: 4 } }
mixers { name: "k" value_anchor: "r" kvm {
  projections { num_heads: 2 num_kv_heads: 2 qk_head_dim: 8 v_head_dim: 8 rotary_dim: 4 rotary_theta: 500000
    token_shift: true value_residual: LINEAR value_gate_rank: 4 }
  chunk_len: 16 window_chunks: 2 num_sinks: 1 gate_keys: false gate_values: true gate_initial_rows: true
  gate_appended_rows: true head_temperatures: true use_radius: false
  budget { growth: POWER_LAW factor: 2.5 exponent: 0.5 limit: 100 round_down: 4 min_rows: 8 max_chunks: 64 } } }
mixers { name: "a" attention { window: 8 projections { num_heads: 2 rotary_dim: 8 value_residual: NONE } } }
layers: ["r", "k", "a", "a"]
"""
PLAIN_SPEC = """
vocab_size: 16 width: 16 mlp_expansion: 2
mixers { name: "a" attention { projections { num_heads: 1 rotary_dim: 0 value_residual: RWKV value_gate_rank: 1 } } }
layers: "a"
"""


def put(name, file, data):
    folder = CORPUS / name
    folder.mkdir(parents=True, exist_ok=True)
    (folder / file).write_bytes(data if isinstance(data, bytes) else data.encode())


def safetensors(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def tensor(dtype, shape, begin, end):
    return {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}


def make_safetensors():
    put("safetensors", "empty", safetensors({}))
    put("safetensors", "one", safetensors({"a": tensor("F32", [2], 0, 8)}, b"12345678"))
    put("safetensors", "metadata", safetensors({"__metadata__": {"format": "pt", "k": "\u00e9"},
                                                "a": tensor("U8", [], 0, 1)}, b"1"))
    dtypes = {"BOOL": 1, "U8": 1, "I8": 1, "I16": 2, "U16": 2, "F16": 2, "BF16": 2, "I32": 4, "U32": 4, "F32": 4,
              "F64": 8, "I64": 8, "U64": 8, "F8_E4M3": 1, "F8_E5M2": 1}
    header, end = {}, 0
    for name, size in dtypes.items():
        header["t." + name] = tensor(name, [1, 2], end, end + 2 * size)
        end += 2 * size
    put("safetensors", "dtypes", safetensors(header, bytes(end)))
    put("safetensors", "no_metadata", safetensors({"__metadata__": None, "a": tensor("U8", [], 0, 1)}, b"1"))
    put("safetensors", "zeros", safetensors({"a": tensor("F32", [0, 9223372036854775807], 0, 0),
                                             "b": tensor("I64", [3, 0, 2], 0, 0)}))
    put("safetensors", "huge_shape", safetensors({"a": tensor("F64", [4294967296, 4294967296], 0, 0)}))
    put("safetensors", "huge_offsets", safetensors({"a": tensor("U8", [2], 18446744073709551615, 1)}, b"1"))
    put("safetensors", "gap", safetensors({"a": tensor("U8", [1], 0, 1), "b": tensor("U8", [1], 2, 3)}, b"123"))
    put("safetensors", "huge_header", struct.pack("<Q", 2**63) + b"{}")


def make_index():
    put("safetensors_index", "both", json.dumps(
        {"metadata": {"total_size": 36, "x": None}, "weight_map": {"x": "a", "y": "a", "z": "b"}}))
    put("safetensors_index", "some", json.dumps({"metadata": {"total_size": 1.5}, "weight_map": {"x": "a"}}))
    put("safetensors_index", "missing_tensor", json.dumps({"weight_map": {"x": "b"}}))
    put("safetensors_index", "missing_shards", json.dumps({"weight_map": {"x": "c", "y": "a", "z": "d", "w": "b"}}))
    put("safetensors_index", "missing_shard", json.dumps({"weight_map": {"x": "c"}}))
    put("safetensors_index", "outside", json.dumps({"weight_map": {"x": "../a", "y": "/a", "z": ".."}}))
    put("safetensors_index", "empty", json.dumps({"metadata": {}, "weight_map": {}}))


def make_config():
    for golden in ("gptalpha_nope_swa", "kvm_gqa_post_tokenshift", "kvm_rwkv7_hybrid", "kvm_saturate_swa", "kvm_sqrt"):
        fields = json.loads((TESTING / "golden" / golden / "config.json").read_text())
        put("huggingface_config", golden, json.dumps(fields, separators=(",", ":")))
    put("huggingface_config", "defaults", '{"model_type":"rwkv7backbone"}')
    rope = {"rope_type": "default", "rope_theta": 500000.0, "partial_rotary_factor": 0.5, "factor": None}
    ours = {"model_type": "rwkv7backbone", "token_mixer": "kvm"}
    put("huggingface_config", "other_names", json.dumps(
        {**ours, "rope_parameters": rope, "rope_scaling": None, "head_dim": 128, "intermediate_size": 3072,
         "sliding_window": 4096, "use_sliding_window": False, "hidden_act": "relu2", "norm_eps": 1e-5}))
    put("huggingface_config", "other_arithmetic", json.dumps(
        {**ours, "rope_scaling": {"type": "yarn", "factor": 4}, "hidden_act": "silu", "quantization_config": {"bits": 4},
         "layer_norm_eps": 1e-6, "head_dim": 64, "layer_types": ["full_attention"]}))
    put("huggingface_config", "unknown", json.dumps({**ours, "rope_tetha": 1, "kvm_use_vlens_": 0, "x": {"y": []}}))
    deep = {"model_type": "rwkv7backbone", "num_hidden_layers": 4096, "alt_layer_every": 2}
    put("huggingface_config", "deep", json.dumps(deep, separators=(",", ":")))


def make_tokenizers():
    for kind in ("gpt2", "llama", "qwen", "steps", "lengths"):
        source = "gpt2" if kind == "lengths" else kind
        fields = json.loads((TESTING / "data/tokenizers" / f"{source}.json").read_text())
        if kind == "lengths":
            fields["truncation"] = {"max_length": 2, "strategy": "LongestFirst"}
            fields["padding"] = {"strategy": {"Fixed": 8}, "pad_id": 0}
        # A few tokens say as much to a fuzzer as all do.
        vocabulary = dict(list(fields["model"]["vocab"].items())[:40])
        fields["model"]["vocab"] = vocabulary
        merges = []
        for merge in fields["model"]["merges"]:
            left, right = merge if isinstance(merge, list) else merge.split(" ")
            if left in vocabulary and right in vocabulary and left + right in vocabulary:
                merges.append(merge)
        for text in ("ab", "abc"):
            vocabulary[text] = len(vocabulary)
        for text in ("a", "b", "c", "\u0120"):
            vocabulary.setdefault(text, len(vocabulary))
        as_list = kind in ("llama", "steps")
        merges += [["a", "b"], ["ab", "c"]] if as_list else ["a b", "ab c"]
        fields["model"]["merges"] = merges
        put("tokenizer_json", kind, json.dumps(fields, ensure_ascii=False, separators=(",", ":")))
    lines = (TESTING / "data/tokenizers/world_vocabulary.txt").read_text().splitlines(keepends=True)
    put("world_vocabulary", "letters", "".join(lines[64:128] + lines[256:]))
    put("world_vocabulary", "bytes", "".join(lines[:16] + lines[120:136] + lines[250:256]))
    put("world_vocabulary", "marked", "\ufeff1 'a' 1\n2 'b' 1\n")
    put("world_vocabulary", "forms", "1 'a' 1\n2 \"'\" 1\n3 b'\\xff\\x00' 2\n65535 '\\u00e9\\n\\t\\\\\\'' 6\n"
                                     "9 '\u65e5' 3\n10 b\"'\" 1\n")


class SharedStorage:
    """Tensors that all begin at the same bytes: a small file with a model's shapes."""

    def __init__(self, elements):
        self.storage = torch.zeros(elements, dtype=torch.bfloat16)

    def tensor(self, *shape):
        count = 1
        for extent in shape:
            count *= extent
        return self.storage[:count].view(shape)


def rwkv_tensors():
    width, mlp, vocabulary, rank = 8, 32, 4, 2
    shared = SharedStorage(width * mlp)
    tensors = collections.OrderedDict()
    tensors["emb.weight"] = shared.tensor(vocabulary, width)
    for i in range(2):
        block = f"blocks.{i}."
        for norm in (["ln0"] if i == 0 else []) + ["ln1", "ln2"]:
            tensors[f"{block}{norm}.weight"] = tensors[f"{block}{norm}.bias"] = shared.tensor(width)
        att = block + "att."
        for name in [f"x_{z}" for z in "rwkvag"] + ["k_k", "k_a"]:
            tensors[att + name] = shared.tensor(1, 1, width)
        for z in "wavg" if i > 0 else "wag":
            if z != "g":
                tensors[f"{att}{z}0"] = shared.tensor(1, 1, width)
            tensors[f"{att}{z}1"] = shared.tensor(width, rank)
            tensors[f"{att}{z}2"] = shared.tensor(rank, width)
        tensors[f"{att}r_k"] = shared.tensor(2, width // 2)
        for matrix in ("receptance", "key", "value", "output"):
            tensors[f"{att}{matrix}.weight"] = shared.tensor(width, width)
        tensors[f"{att}ln_x.weight"] = tensors[f"{att}ln_x.bias"] = shared.tensor(width)
        tensors[f"{block}ffn.x_k"] = shared.tensor(1, 1, width)
        tensors[f"{block}ffn.key.weight"] = shared.tensor(mlp, width)
        tensors[f"{block}ffn.value.weight"] = shared.tensor(width, mlp)
    tensors["ln_out.weight"] = tensors["ln_out.bias"] = shared.tensor(width)
    tensors["head.weight"] = shared.tensor(vocabulary, width)
    return tensors


def put_pickle_of(path):
    with zipfile.ZipFile(path) as archive:
        for name in archive.namelist():
            if name.endswith("/data.pkl"):
                put("pickle", path.stem, archive.read(name))


def pickled(value):
    """Opcodes of protocol 2 that leave a value on the stack; bytes are opcodes already."""
    if isinstance(value, bytes):
        return value
    if isinstance(value, dict):
        return b"}(" + b"".join(pickled(k) + pickled(v) for k, v in value.items()) + b"u"
    if isinstance(value, tuple):
        return b"(" + b"".join(map(pickled, value)) + b"t"
    return pickletools.optimize(pickle.dumps(value, protocol=2))[2:-1]


def made_by(function, *arguments):
    return named(function) + pickled(arguments) + b"R"


def named(name):
    module, _, attribute = name.rpartition(".")
    return f"c{module}\n{attribute}\n".encode()


def make_rebuilds():
    """Every call that makes a tensor, and what its further arguments may ask for."""
    utils = "torch._utils._rebuild_"
    storage = pickled(("storage", named("torch.FloatStorage"), "0", "cpu", 4)) + b"Q"
    untyped = pickled(("storage", named("torch.storage.UntypedStorage"), "0", "cpu", 16)) + b"Q"
    strided = (1, (2,), (2,), False, {})
    plain = made_by(utils + "tensor_v2", storage, *strided)
    state = {"seen": True}
    of_type = "torch._tensor._rebuild_from_type_v2"
    forms = {
        "first": made_by(utils + "tensor", storage, 0, (2, 2), (1, 2)),
        "negated": made_by(utils + "tensor_v2", storage, *strided, {"neg": True}),
        "negated_dtype": made_by(utils + "tensor_v3", untyped, *strided, named("torch.float32"), {"neg": True}),
        "conjugate": made_by(utils + "tensor_v2", storage, *strided, {"conj": True}),
        "state": made_by(utils + "parameter_with_state", plain, True, {}, state),
        "type": made_by(of_type, named(utils + "tensor_v2"), named("torch.Tensor"), (storage, *strided), state),
    }
    for name, form in forms.items():
        data = b"\x80\x02" + pickled({"w": form}) + b"."
        put("pickle", "rebuild_" + name, data)
        path = CORPUS / "rwkv_pth" / f"rebuild_{name}.pth"
        with zipfile.ZipFile(path, "w") as archive:
            for entry, content in (("n/data.pkl", data), ("n/data/0", bytes(16))):
                archive.writestr(zipfile.ZipInfo(entry), content)
    whole = (CORPUS / "rwkv_pth/rebuild_first.pth").read_bytes()
    put("rwkv_pth", "bytes_behind.pth", whole + bytes(100))


def make_torch(scratch):
    rwkv = scratch / "rwkv.pth"
    torch.save(rwkv_tensors(), rwkv)
    small = scratch / "small.pth"
    with zipfile.ZipFile(small, "w") as archive:
        base = torch.zeros(6, dtype=torch.float32)
        torch.save({"a": base, "b": base.view(2, 3).t()}, scratch / "torch.pth")
        with zipfile.ZipFile(scratch / "torch.pth") as made:
            for name in made.namelist():
                if name.endswith("data.pkl") or "/data/" in name:
                    archive.writestr("s/" + name.split("/", 1)[1], made.read(name))
    data = TESTING / "data/rwkv_pth"
    paths = [rwkv, small] + [data / f"{name}.pth" for name in (
        "complex", "deflated", "dtypes", "expanded", "legacy", "list", "malicious", "not_only_tensors", "parameters",
        "protocol4", "views", "written", "zip64")]
    for path in paths:
        put("rwkv_pth", path.name, path.read_bytes())
        if zipfile.is_zipfile(path):
            put_pickle_of(path)
    for protocol in range(6):
        value = {"a": [1, -(2**40), True, None, (), (1, 2), "\u00e9" * 3], "b": {}}
        put("pickle", f"protocol_{protocol}", pickle.dumps(value, protocol=protocol))


def make_packed(scratch):
    for name, spec in (("mixers", SPEC % "false"), ("plain", PLAIN_SPEC)):
        (scratch / "stack.textproto").write_text(spec)
        for dtype in ("f32", "bf16", "f16") if name == "plain" else ("bf16",):
            folder, packed = scratch / f"{name}_{dtype}", scratch / f"{name}_{dtype}.kvm"
            subprocess.run([KVM, "build", f"--spec={scratch / 'stack.textproto'}", f"--out={folder}",
                            f"--dtype={dtype}"], check=True, stdout=subprocess.DEVNULL)
            subprocess.run([KVM, "convert", folder, packed], check=True, stdout=subprocess.DEVNULL)
            put("packed", packed.stem, packed.read_bytes())
        packed = scratch / f"{name}_int8.kvm"
        subprocess.run([KVM, "convert", folder, packed, "--dtype=int8"], check=True, stdout=subprocess.DEVNULL)
        put("packed", packed.stem, packed.read_bytes())


def make_snapshots():
    (CORPUS / "snapshot").mkdir(parents=True, exist_ok=True)
    subprocess.run([SNAPSHOT_SEEDS, CORPUS / "snapshot"], check=True)


def make_stack():
    put("stack_spec", "mixers", SPEC % "true")
    put("stack_spec", "plain", PLAIN_SPEC)
    put("stack_spec", "bad", 'width: -1 vocab_size: 0x7fffffff layers: "none" # comment\nmixers { name: "none" }')
    shutil.copy(TESTING.parent / "tools/demo/demo_stack.textproto", CORPUS / "stack_spec/demo")


def main():
    make_safetensors()
    make_index()
    make_config()
    make_tokenizers()
    make_stack()
    make_snapshots()
    make_rebuilds()
    with tempfile.TemporaryDirectory() as scratch:
        make_torch(pathlib.Path(scratch))
        make_packed(pathlib.Path(scratch))


main()
