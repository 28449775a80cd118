"""The published 120M KVM stack: ours beside eager PyTorch (kvm_torch.py).

    python testing/peers/compare_torch.py --kvm=bazel-bin/tools/kvm

Random weights, the same for both. Prompts are float32; decoding after them is
measured with float32 and bfloat16 weights (PyTorch then computes in bfloat16
throughout, ours accumulates in float32). Needs torch, numpy and safetensors.
"""

import sys

import common
import kvm_torch
import torch


def prefill_torch(model, context):
    """Seconds, and the state after the prompt."""
    state = model.new_state()
    ids = torch.tensor([common.prompt_ids(context)])
    return common.seconds(lambda: model(ids, state, last_only=True)), state


def decode_torch(model, state, tokens):
    """Milliseconds per token, each the most likely one, on a copy of the state."""
    state = kvm_torch.convert_state(state, model.lm_head.weight.dtype)

    def decode():
        token = torch.tensor([[10]])
        for _ in range(tokens - 1):
            token = model(token, state)[:, -1].argmax(-1, keepdim=True)
    return 1e3 * common.seconds(decode) / (tokens - 1)


def main():
    flags = common.parser(__doc__, rounds=3, tokens=48, threads=[1, 2])
    flags.add_argument("--contexts", type=int, nargs="+", default=[4096],
                       help="lengths of prompts, measured --rounds times [%(default)s]")
    flags.add_argument("--long-contexts", type=int, nargs="*", default=[32768],
                       help="more of them, measured once with the last of --threads [%(default)s]")
    args = flags.parse_args()
    folder = common.make_model(args, "torch_K", "K", "--to=hf")
    model = kvm_torch.load(folder)
    half = kvm_torch.load(folder).bfloat16()

    prefill, decode = common.Table("kvm", "torch"), common.Table("kvm", "torch")

    def measure(context, threads):
        name = f"{context:,} tokens, {threads} thread{'s' * (threads > 1)}"
        seconds, milliseconds = common.time_kvm(args, folder, threads, context)
        prefill.add(name, "kvm", context / seconds)
        decode.add(name + ", f32", "kvm", milliseconds)
        _, milliseconds = common.time_kvm(args, folder, threads, context, "bf16")
        decode.add(name + ", bf16", "kvm", milliseconds)
        torch.set_num_threads(threads)
        seconds, state = prefill_torch(model, context)
        prefill.add(name, "torch", context / seconds)
        for dtype, weights in (("f32", model), ("bf16", half)):
            decode.add(f"{name}, {dtype}", "torch", decode_torch(weights, state, args.tokens))
        print(".", end="", file=sys.stderr, flush=True)

    model(torch.tensor([common.prompt_ids(600)]), model.new_state())  # warms PyTorch up
    for _ in range(args.rounds):
        for context in args.contexts:
            for threads in args.threads:
                measure(context, threads)
    for context in args.long_contexts:
        measure(context, args.threads[-1])
    print(f"\ntorch {torch.__version__}")
    prefill.print("prefill", "tokens/s", times=False)
    decode.print("decoding", "ms a token")


if __name__ == "__main__":
    main()
