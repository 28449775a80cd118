"""The published 120M KVM stack: ours beside eager PyTorch (kvm_torch.py).

    python testing/peers/compare_torch.py --kvm=bazel-bin/tools/kvm

Random weights, the same for both, in float32 and in bfloat16: then PyTorch
computes in bfloat16 throughout, while ours keeps weights, rows and window in it
and computes in float32. Needs torch, numpy and safetensors.
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
    """Milliseconds per token, each the most likely one."""
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
    models = {"f32": kvm_torch.load(folder), "bf16": kvm_torch.load(folder).bfloat16()}
    options = {"f32": [], "bf16": ["--weights=bf16", "--state=bf16"]}

    prefill, decode = common.Table("kvm", "torch"), common.Table("kvm", "torch")

    def measure(context, threads):
        torch.set_num_threads(threads)
        for dtype, model in models.items():
            name = f"{context:,} tokens, {threads} thread{'s' * (threads > 1)}, {dtype}"
            seconds, milliseconds = common.time_kvm(args, folder, threads, context, *options[dtype])
            prefill.add(name, "kvm", context / seconds)
            decode.add(name, "kvm", milliseconds)
            seconds, state = prefill_torch(model, context)
            prefill.add(name, "torch", context / seconds)
            decode.add(name, "torch", decode_torch(model, state, args.tokens))
        print(".", end="", file=sys.stderr, flush=True)

    for model in models.values():
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
