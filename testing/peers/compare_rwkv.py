"""A 120M RWKV-7: ours beside the `rwkv` package and llama.cpp, decoding on the CPU.

    python testing/peers/compare_rwkv.py --kvm=bazel-bin/tools/kvm

One random checkpoint (.pth) for all. First all three must give the same logits;
then each is measured at equal width of the weights: float32, bfloat16, 8 bits
(ours: int8; llama.cpp: Q8_0; the package has none on a CPU). Needs torch, numpy,
safetensors, rwkv, gguf and llama-cpp-python.
"""

import ctypes
import os
import pathlib
import sys
import warnings

import common
import llama_cpp
import numpy as np
import rwkv_gguf
import torch
from safetensors.torch import load_file, save_file

PROMPT = 256
WIDTHS = {"f32": ("cpu fp32", "F32"), "bf16": ("cpu bf16", "BF16"), "int8": (None, "Q8_0")}


class Package:
    """The rwkv package."""

    def __init__(self, checkpoint, strategy):
        warnings.simplefilter("ignore", FutureWarning)  # about the package's use of PyTorch
        os.environ["RWKV_V7_ON"] = "1"  # read by the import
        from rwkv.model import RWKV
        self.model = RWKV(model=str(checkpoint.with_suffix("")), strategy=strategy)

    def start(self, threads):
        torch.set_num_threads(threads)
        self.state = None

    def extend(self, ids):
        """Logits after the last of the ids."""
        logits, self.state = self.model.forward(ids, self.state)
        return logits.float().numpy()


@llama_cpp.llama_log_callback
def no_log(level, text, data):
    """Takes llama.cpp's messages."""


class LlamaCpp:
    """llama.cpp through its C interface, which costs less than the Python classes."""

    def __init__(self, path):
        llama_cpp.llama_log_set(no_log, ctypes.c_void_p(0))
        llama_cpp.llama_backend_init()
        self.model = llama_cpp.llama_model_load_from_file(str(path).encode(), llama_cpp.llama_model_default_params())
        if not self.model:
            sys.exit(f"{path}: llama.cpp does not read it")
        options = llama_cpp.llama_context_default_params()
        options.n_ctx = 4096
        self.context = llama_cpp.llama_init_from_model(self.model, options)
        vocab = llama_cpp.llama_model_get_vocab(self.model)
        self.vocab_size = llama_cpp.llama_vocab_n_tokens(vocab)

    def start(self, threads):
        llama_cpp.llama_set_n_threads(self.context, threads, threads)
        llama_cpp.llama_memory_clear(llama_cpp.llama_get_memory(self.context), True)

    def extend(self, ids):
        tokens = (llama_cpp.llama_token * len(ids))(*ids)
        if llama_cpp.llama_decode(self.context, llama_cpp.llama_batch_get_one(tokens, len(ids))) != 0:
            sys.exit("llama.cpp: decoding failed")
        logits = llama_cpp.llama_get_logits_ith(self.context, -1)
        return np.ctypeslib.as_array(logits, shape=(self.vocab_size,))


def check_same(args, folder, peers):
    """Logits after a prompt and one more token, as ours gives them in float32."""
    ids = common.prompt_ids(40)
    work = pathlib.Path(args.work)
    save_file({"input_ids": torch.tensor([ids])}, work / "ids.safetensors")
    common.run_kvm(args.kvm, "logits", f"--model={folder}", f"--ids={work / 'ids.safetensors'}",
                   f"--out={work / 'logits.safetensors'}")
    ours = load_file(work / "logits.safetensors")["logits"][0, -1].numpy()
    (work / "logits.safetensors").unlink()
    for (name, width), peer in peers.items():
        peer.start(args.threads[-1])
        peer.extend(ids[:-1])
        theirs = peer.extend(ids[-1:])
        error = np.linalg.norm(theirs - ours) / np.linalg.norm(ours)
        print(f"{name} {width}: logits differ by {error:.1e} of their norm from ours in f32")
        if error > (1e-3 if width == "f32" else 0.1):
            sys.exit("not the same model")


def time_peer(peer, threads, count):
    """Tokens of the prompt per second; milliseconds per token, each the most likely one."""
    peer.start(threads)
    logits = []
    prompt = common.seconds(lambda: logits.append(peer.extend(common.prompt_ids(PROMPT))))

    def decode():
        token = int(logits[0].argmax())
        for _ in range(count - 1):
            token = int(peer.extend([token]).argmax())
    return PROMPT / prompt, 1e3 * common.seconds(decode) / (count - 1)


def main():
    flags = common.parser(__doc__, rounds=4, tokens=65, threads=[1, 2])
    flags.add_argument("--weights", nargs="+", choices=WIDTHS, default=list(WIDTHS),
                       help="widths of weights [f32 bf16 int8]")
    args = flags.parse_args()
    checkpoint = common.make_model(args, "random_R.pth", "R")
    peers = {}
    for width in args.weights:
        strategy, kind = WIDTHS[width]
        if strategy:
            peers["rwkv", width] = Package(checkpoint, strategy)
        path = checkpoint.with_name(f"random_R_{kind}.gguf")
        if not path.exists():
            rwkv_gguf.write(checkpoint, path, kind)
        peers["llama.cpp", width] = LlamaCpp(path)
    check_same(args, checkpoint, peers)

    prefill, decode = (common.Table("kvm", "rwkv", "llama.cpp") for _ in range(2))
    for _ in range(args.rounds):
        for width in args.weights:
            for threads in args.threads:
                case = f"{width} weights, {threads} thread{'s' * (threads > 1)}"
                seconds, milliseconds = common.time_kvm(args, checkpoint, threads, PROMPT, f"--weights={width}")
                prefill.add(case, "kvm", PROMPT / seconds)
                decode.add(case, "kvm", milliseconds)
                for name in ("rwkv", "llama.cpp"):
                    if (name, width) in peers:
                        rate, milliseconds = time_peer(peers[name, width], threads, args.tokens)
                        prefill.add(case, name, rate)
                        decode.add(case, name, milliseconds)
        print(".", end="", file=sys.stderr, flush=True)
    print(f"\nllama-cpp-python {llama_cpp.__version__}, torch {torch.__version__}")
    prefill.print(f"prefill of {PROMPT} tokens", "tokens/s", times=False)
    decode.print("decoding", "ms a token")


if __name__ == "__main__":
    main()
