"""Checks kvm_torch.py: against the goldens, and against `kvm logits` on a new stack.

    python testing/peers/check_torch.py [--kvm=bazel-bin/tools/kvm]

Without --kvm only the goldens are compared. Exits with 1 if logits differ by more
than 1e-4 anywhere.
"""

import argparse
import pathlib
import subprocess
import sys
import tempfile

import kvm_torch
import torch
from safetensors.torch import load_file, save_file

GOLDENS = pathlib.Path(__file__).parent.parent / "golden"
FOLDERS = ("kvm_sqrt", "kvm_sqrt_bf16rope", "kvm_fixed", "kvm_short", "kvm_no_append_gate",
           "kvm_no_head_temps", "kvm_no_merge_gate", "kvm_no_sink", "kvm_gate_initial_state")
LIMIT = 1e-4
STACK = ("--pattern=K", "--layers=3", "--width=128", "--heads=2", "--rotary=32", "--vocab=512",
         "--chunk=32", "--budget=sqrt:4", "--block-output-gain=0.5", "--seed=5")


def logits_in_pieces(model, ids, first):
    """Logits of all tokens: the first ones at once, then one by one."""
    state = model.new_state()
    pieces = [ids[:, :first], *ids[:, first:].split(1, dim=1)]
    return torch.cat([model(piece, state) for piece in pieces], dim=1)


def report(name, wanted, got):
    error = (wanted - got).abs().max().item()
    is_good = error <= LIMIT
    print(f"{'ok  ' if is_good else 'BAD '} {name:40} largest difference {error:.1e}")
    return is_good


def check_golden(name):
    golden = load_file(GOLDENS / name / "golden.safetensors")
    model = kvm_torch.load(GOLDENS / name)
    ids, first = golden["input_ids"], int(golden["prefill_len"])
    whole = report(name, golden["logits_full"], model(ids, model.new_state()))
    steps = report(f"{name}, {first} and single tokens", golden["logits_full"],
                   logits_in_pieces(model, ids, first))
    return whole and steps


def check_kvm(kvm):
    """A stack of the published kind, but small; 1,000 tokens are 31 chunks."""
    with tempfile.TemporaryDirectory() as folder:
        ids = torch.randint(512, (1, 1000), generator=torch.Generator().manual_seed(1))
        save_file({"input_ids": ids}, f"{folder}/ids.safetensors")
        subprocess.run([kvm, "build", *STACK, f"--out={folder}/model"], check=True, stdout=subprocess.DEVNULL)
        subprocess.run([kvm, "convert", "--to=hf", f"{folder}/model", f"{folder}/hf"], check=True,
                       stdout=subprocess.DEVNULL)
        subprocess.run([kvm, "logits", f"--model={folder}/model", f"--ids={folder}/ids.safetensors",
                        f"--out={folder}/logits.safetensors"], check=True)
        wanted = load_file(f"{folder}/logits.safetensors")["logits"]
        model = kvm_torch.load(f"{folder}/hf")
    return report("kvm logits", wanted, logits_in_pieces(model, ids, 700))


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kvm", help="the kvm binary")
    kvm = parser.parse_args().kvm
    good = [check_golden(name) for name in FOLDERS]
    if kvm:
        good.append(check_kvm(kvm))
    sys.exit(not all(good))


if __name__ == "__main__":
    main()
