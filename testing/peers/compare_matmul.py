"""Matrix products of the 120M shape: ours beside OpenBLAS and PyTorch.

    python testing/peers/compare_matmul.py --benchmark=bazel-bin/kvm/kernels/cpu/matmul_benchmark

GFLOP/s, weights [out, in] as models have them; where the other library is faster with
its weights turned around beforehand, that counts. OPENBLAS_CORETYPE, which some machines
set, keeps OpenBLAS from AVX-512: it is removed, unless --openblas-core gives one. Needs
torch, numpy and scipy-openblas32.
"""

import argparse
import ctypes
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import common
import numpy as np

SHAPES = [(rows, *size) for rows in (256, 1) for size in ((768, 768), (768, 3072), (3072, 768))]
SHAPES.append((1, 768, 50304))
SECONDS = 0.1  # how long one case runs


def rate(shape, *calls):
    """GFLOP/s of the fastest of some calls."""
    best = 0
    for call in calls:
        call()
        count, start = 0, time.perf_counter()
        while (spent := time.perf_counter() - start) < SECONDS:
            call()
            count += 1
        best = max(best, 2e-9 * np.prod(shape, dtype=float) * count / spent)
    return best


def work_openblas():
    import scipy_openblas32
    library = ctypes.CDLL(str(pathlib.Path(scipy_openblas32.get_lib_dir()) / scipy_openblas32.get_library(True)))
    library.scipy_openblas_get_corename.restype = ctypes.c_char_p
    row_major, keep, turn, one, zero = 101, 111, 112, ctypes.c_float(1), ctypes.c_float(0)
    random = np.random.default_rng(0)
    rates = {}
    for shape in SHAPES:
        rows, inputs, outputs = shape
        x, w, out = (random.standard_normal(size, np.float32)
                     for size in ((rows, inputs), (inputs, outputs), (rows, outputs)))
        x_at, w_at, out_at = (z.ctypes.data_as(ctypes.c_void_p) for z in (x, w, out))

        def call(order):
            """keep: w is [in, out]; turn: its bytes are [out, in]."""
            stride = inputs if order == turn else outputs
            if rows > 1:
                library.scipy_cblas_sgemm(row_major, keep, order, rows, outputs, inputs, one, x_at, inputs,
                                          w_at, stride, zero, out_at, outputs)
            elif order == turn:
                library.scipy_cblas_sgemv(row_major, keep, outputs, inputs, one, w_at, stride,
                                          x_at, 1, zero, out_at, 1)
            else:
                library.scipy_cblas_sgemv(row_major, turn, inputs, outputs, one, w_at, stride,
                                          x_at, 1, zero, out_at, 1)
        for order, turned in ((keep, w), (turn, w.reshape(outputs, inputs).T)):
            call(order)
            assert np.allclose(out, x @ turned, rtol=1e-3, atol=1e-2)
        rates[str(shape)] = rate(shape, lambda: call(keep), lambda: call(turn))
    return {"what": f"OpenBLAS ({library.scipy_openblas_get_corename().decode()})", "rates": rates}


def work_torch(dtype):
    import torch
    import torch.nn.functional as F
    torch.set_num_threads(int(os.environ["OMP_NUM_THREADS"]))
    rates = {}
    with torch.inference_mode():
        for shape in SHAPES:
            rows, inputs, outputs = shape
            x = torch.full((rows, inputs), 0.5, dtype=dtype)
            w = torch.full((outputs, inputs), 0.01, dtype=dtype)
            turned = w.t().contiguous()
            rates[str(shape)] = rate(shape, lambda: F.linear(x, w), lambda: x @ turned)
    return {"what": f"torch {torch.__version__}", "rates": rates}


def work(name):
    """Measures one library in a process of its own, so that its settings take effect."""
    if name == "openblas":
        return work_openblas()
    import torch
    return work_torch(torch.float32 if name == "torch f32" else torch.bfloat16)


def run_worker(name, threads, core):
    environment = {key: value for key, value in os.environ.items() if key != "OPENBLAS_CORETYPE"}
    environment.update(OPENBLAS_NUM_THREADS=str(threads), OMP_NUM_THREADS=str(threads), MKL_NUM_THREADS=str(threads))
    if core:
        environment["OPENBLAS_CORETYPE"] = core
    done = subprocess.run([sys.executable, __file__, f"--worker={name}"], env=environment, check=True,
                          stdout=subprocess.PIPE, text=True)
    return json.loads(done.stdout)


def run_ours(benchmark, kind, threads):
    """GFLOP/s of our benchmark, by shape."""
    sizes = "|".join("rows:%d/inputs:%d/outputs:%d" % shape for shape in SHAPES)
    done = subprocess.run([benchmark, f"--benchmark_filter=MatMul{kind}/({sizes})/threads:{threads}/",
                           f"--benchmark_min_time={SECONDS}", "--benchmark_format=json"],
                          check=True, capture_output=True, text=True)
    rates = {}
    for result in json.loads(done.stdout)["benchmarks"]:
        shape = tuple(int(x) for x in re.findall(r"(?:rows|inputs|outputs):(\d+)", result["name"]))
        rates[str(shape)] = result["FLOP/s"] / 1e9
    return rates


def main():
    flags = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    flags.add_argument("--benchmark", default="bazel-bin/kvm/kernels/cpu/matmul_benchmark",
                       help="our benchmark's binary [%(default)s]")
    flags.add_argument("--rounds", type=int, default=5, help="how often everything is measured, in turns [%(default)s]")
    flags.add_argument("--threads", type=int, nargs="+", default=[1, 2],
                       help="numbers of threads; our benchmark knows 1 and 2 [%(default)s]")
    flags.add_argument("--openblas-core", nargs="*", default=[None, "Haswell"],
                       help="cores that OpenBLAS is told, besides the one it finds [Haswell]")
    flags.add_argument("--worker", help=argparse.SUPPRESS)
    args = flags.parse_args()
    if args.worker:
        print(json.dumps(work(args.worker)))
        return
    cores = [None, *(core for core in args.openblas_core if core)]
    tables, said = {"f32": None, "bf16": None}, {}
    others = [f"openblas {core or 'own choice'}" for core in cores]
    tables["f32"] = common.Table("kvm", *others, "torch")
    tables["bf16"] = common.Table("kvm", "torch")

    def add(width, column, threads, rates):
        for shape in SHAPES:
            rows, inputs, outputs = shape
            case = f"{rows} x {inputs} x {outputs}, {threads} thread{'s' * (threads > 1)}"
            tables[width].add(case, column, rates[str(shape)])

    for _ in range(args.rounds):
        for threads in args.threads:
            add("f32", "kvm", threads, run_ours(args.benchmark, "F32", threads))
            for column, core in zip(others, cores):
                result = run_worker("openblas", threads, core)
                said[column] = result["what"]
                add("f32", column, threads, result["rates"])
            add("bf16", "kvm", threads, run_ours(args.benchmark, "BF16", threads))
            for width in ("f32", "bf16"):
                result = run_worker(f"torch {width}", threads, None)
                said["torch"] = result["what"]
                add(width, "torch", threads, result["rates"])
        print(".", end="", file=sys.stderr, flush=True)
    print("\n" + ", ".join(f"{column}: {what}" for column, what in said.items()))
    tables["f32"].print("float32 weights", "GFLOP/s", times=False)
    tables["bf16"].print("bfloat16 weights; torch: bfloat16 x and results, too", "GFLOP/s", times=False)


if __name__ == "__main__":
    main()
