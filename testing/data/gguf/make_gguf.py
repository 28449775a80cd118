#!/usr/bin/env python3
"""Makes the files beside it: small GGUF files, and the numbers that the package of that name reads in them.

    pip install gguf numpy safetensors
    python3 make_gguf.py

The files were made with gguf 0.19.0.

blocks.safetensors       random blocks of each quantized type, "Q4_0.blocks", and their numbers, "Q4_0.values"
types.gguf               a tensor of each type, of one to four extents, and types_expected.safetensors with its numbers
metadata.gguf            a value of each type, arrays of each; alignment 64
split-0000?-of-00003.gguf  five tensors in three parts, the first of which has none
vocabulary.gguf          a vocabulary without tensors
big_endian.gguf          to be refused
"""

import pathlib

import gguf
import numpy as np
from gguf import GGMLQuantizationType as Type
from safetensors.numpy import save_file

HERE = pathlib.Path(__file__).resolve().parent

QUANTIZED = ["Q8_0", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q2_K", "Q3_K", "Q4_K", "Q5_K", "Q6_K"]
# Where the half floats of a block are.
HALVES = {"Q8_0": [0], "Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q2_K": [80, 82], "Q3_K": [108],
          "Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
# Zeros, the least and the largest subnormal and normal numbers, infinities, NaN; of both signs.
SPECIAL = [0x0000, 0x8000, 0x0001, 0x8001, 0x03FF, 0x83FF, 0x0400, 0x8400, 0x3C00, 0xBC00, 0x7BFF, 0xFBFF, 0x7C00,
           0xFC00, 0x7E00, 0xFE00]


def make_blocks(rng, name, count, special):
    """Blocks of random bits. Scales are all of SPECIAL and then random; without `special`, small finite numbers."""
    _, size = gguf.GGML_QUANT_SIZES[Type[name]]
    blocks = rng.integers(0, 256, (count, size), dtype=np.uint8)
    for shift, at in enumerate(HALVES[name]):
        halves = blocks[:, at:at + 2].copy().view(np.uint16)[:, 0]
        if special:
            halves[:len(SPECIAL)] = np.roll(SPECIAL, 5 * shift)
        else:
            halves = rng.uniform(-0.1, 0.1, count).astype(np.float16).view(np.uint16)
        blocks[:, at:at + 2] = halves.reshape(count, 1).view(np.uint8)
    return blocks


def make_block_goldens(rng):
    tensors = {}
    for name in QUANTIZED:
        blocks = make_blocks(rng, name, 20 if name.endswith("_K") else 48, True)
        with np.errstate(all="ignore"):
            tensors[name + ".values"] = gguf.quants.dequantize(blocks, Type[name])
        tensors[name + ".blocks"] = blocks
    save_file(tensors, HERE / "blocks.safetensors")


def finish(writer):
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


def make_types(rng):
    writer = gguf.GGUFWriter(HERE / "types.gguf", "test")
    expected = {}

    def add(name, data, kind, shape):
        raw = data if kind is None else Type[kind]
        writer.add_tensor(name, data, raw_dtype=None if kind is None else raw)
        values = data if kind is None else gguf.quants.dequantize(data, raw)
        expected[name] = values.astype(np.float32).reshape(shape)

    add("f32", rng.standard_normal((2, 3, 4, 5)).astype(np.float32), None, (2, 3, 4, 5))
    add("f16", rng.standard_normal((3, 5)).astype(np.float16), None, (3, 5))
    add("f64", rng.standard_normal(7), None, (7,))
    for bits in (8, 16, 32, 64):
        add(f"i{bits}", rng.integers(-100, 100, (2, 3)).astype(f"int{bits}"), None, (2, 3))
    add("bf16", gguf.quants.quantize(rng.standard_normal((4, 6)).astype(np.float32), Type.BF16), "BF16", (4, 6))
    for name in QUANTIZED:
        elements, _ = gguf.GGML_QUANT_SIZES[Type[name]]
        rows, columns = (1, 2) if elements == 256 else (3, 2)
        blocks = make_blocks(rng, name, rows * columns, False).reshape(rows, -1)
        add(name.lower(), blocks, name, (rows, columns * elements))
    add("cube", make_blocks(rng, "Q4_0", 12, False).reshape(2, 3, -1), "Q4_0", (2, 3, 64))
    finish(writer)
    save_file(expected, HERE / "types_expected.safetensors")


def make_metadata():
    writer = gguf.GGUFWriter(HERE / "metadata.gguf", "test")
    writer.add_custom_alignment(64)
    writer.add_uint8("u8", 255)
    writer.add_int8("i8", -128)
    writer.add_uint16("u16", 65535)
    writer.add_int16("i16", -32768)
    writer.add_uint32("u32", 2**32 - 1)
    writer.add_int32("i32", -2**31)
    writer.add_float32("f32", 0.1)
    writer.add_bool("true", True)
    writer.add_bool("false", False)
    writer.add_string("string", "h\u00e9llo\n")
    writer.add_uint64("u64", 2**64 - 1)
    writer.add_int64("i64", -2**63)
    writer.add_float64("f64", 0.1)
    writer.add_array("strings", ["", "a", "bc", "d\u00e9f"] + [f"string {i}" for i in range(20)])
    writer.add_array("ints", [1, -2, 3])
    writer.add_array("floats", [0.5, -1.5])
    writer.add_array("bools", [True, False, True])
    for name, sub_type in (("u8s", "UINT8"), ("i8s", "INT8"), ("u16s", "UINT16"), ("i64s", "INT64"), ("u64s", "UINT64"),
                           ("f64s", "FLOAT64")):
        values = [0.5, 2.0] if sub_type[0] == "F" else [0, 7]
        writer.add_key_value(name, values, gguf.GGUFValueType.ARRAY, gguf.GGUFValueType[sub_type])
    writer.add_tensor("a", np.arange(3, dtype=np.float32))
    writer.add_tensor("b", np.arange(5, dtype=np.float32))
    finish(writer)


def make_split():
    writer = gguf.GGUFWriter(HERE / "split.gguf", "test", split_max_tensors=3, small_first_shard=True)
    writer.add_uint32("test.block_count", 2)
    for i in range(5):
        writer.add_tensor(f"tensor.{i}", np.full((2, i + 1), i, dtype=np.float32))
    finish(writer)


def make_vocabulary():
    writer = gguf.GGUFWriter(HERE / "vocabulary.gguf", "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("smollm")
    kinds = gguf.TokenType
    tokens = ["<|endoftext|>", "<|im_start|>", "<|im_end|>", "a", "b", "\u0120", "ab", "\u0120ab", "\u0120a"]
    writer.add_token_list(tokens)
    writer.add_token_types([kinds.CONTROL] * 3 + [kinds.NORMAL] * 5 + [kinds.USER_DEFINED])
    writer.add_token_scores([-float(i) / 2 for i in range(len(tokens))])
    writer.add_token_merges(["a b", "\u0120 ab", "\u0120 a"])
    writer.add_bos_token_id(1)
    writer.add_eos_token_id(2)
    writer.add_unk_token_id(0)
    writer.add_pad_token_id(2)
    writer.add_add_bos_token(False)
    writer.add_add_space_prefix(False)
    writer.add_chat_template("{% for m in messages %}{{ m['content'] }}{% endfor %}")
    finish(writer)


def make_big_endian():
    writer = gguf.GGUFWriter(HERE / "big_endian.gguf", "test", endianess=gguf.GGUFEndian.BIG)
    writer.add_tensor("a", np.arange(3, dtype=np.float32))
    finish(writer)


def main():
    rng = np.random.default_rng(1)
    make_block_goldens(rng)
    make_types(rng)
    make_metadata()
    make_split()
    make_vocabulary()
    make_big_endian()


main()
