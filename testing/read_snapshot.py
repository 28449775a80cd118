#!/usr/bin/env python3
"""Prints what a snapshot holds, written after docs/formats/snapshot.md alone: read_snapshot.py FILE"""
import itertools
import struct
import sys

MASK, MULTIPLIER = 2**64 - 1, 0x9e3779b97f4a7c15
FORMATS = {"F32": "<f", "I32": "<i", "I64": "<q", "I8": "<b", "U8": "<B", "BF16": "<H"}


def mix(lane, word):
    product = (lane ^ word) * MULTIPLIER & MASK
    return (product << 29 | product >> 35) & MASK


def content_hash(data):
    lanes, value = [1, 2, 3, 4], len(data)
    for block in struct.iter_unpack("<4Q", data + bytes(-len(data) % 32)):
        lanes = [mix(lane, word) for lane, word in zip(lanes, block)]
    for lane in lanes:
        value = mix(value, lane)
    value = (value ^ value >> 32) * MULTIPLIER & MASK
    return value ^ value >> 29


def varints(stream):
    value = shift = 0
    for byte in stream:
        value, shift = value | (byte & 127) << shift, shift + 7
        if byte < 128:
            yield value
            value = shift = 0


def fields(data):
    """A protocol buffer as {field number: [values]}: numbers of varints, bytes of all else."""
    found, stream = {}, iter(data)
    for key in iter(lambda: next(varints(stream), None), None):
        value = 8 if key & 7 == 1 else next(varints(stream))
        if key & 7 != 0:
            value = bytes(itertools.islice(stream, value))
        found.setdefault(key >> 3, []).append(value)
    return found


file = open(sys.argv[1], "rb").read()
magic, version, length, stated = struct.unpack_from("<8s3Q", file)
header, data = fields(file[32:32 + length]), file[(32 + length + 63) // 64 * 64:]
assert (magic, version, stated) == (b"KVMSNAP\n", 1, content_hash(file[32:32 + length]))
print("fingerprint", "%016x" % struct.unpack("<Q", fields(header[1][0])[1][0]), "position", header[2][0])
model = fields(header[1][0])
print("model", *(model[i][0].decode() for i in (2, 3)), *(model[i][0] for i in (4, 6)), model[5][0].decode())
for sampler in map(fields, header.get(5, [])):
    doubles = [struct.unpack("<d", sampler[i][0])[0] for i in (1, 3, 4, 5)]
    print("sampler", *doubles, struct.unpack("<Q", sampler[6][0])[0], sampler[2][0], sampler[7][0])
for layer in map(fields, header.get(8, [])):
    print("layer", *(layer.get(i, [0])[0] for i in range(1, 7)))
for number in map(fields, header.get(6, [])):
    print(number[1][0].decode(), number[2][0])
for section in map(fields, header.get(3, []) + header.get(4, []) + header.get(7, [])):
    name, dtype, begin, size = section[1][0].decode(), section[2][0].decode(), section[4][0], section[5][0]
    content = data[begin:begin + size]
    assert content_hash(content) == struct.unpack("<Q", section[6][0])[0], "damaged"
    first = [value for value, in itertools.islice(struct.iter_unpack(FORMATS[dtype], content), 4)]
    print(name, dtype, list(varints(section.get(3, [b""])[0])), "%016x" % content_hash(content), *first)
