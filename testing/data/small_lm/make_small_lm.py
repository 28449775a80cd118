#!/usr/bin/env python3
"""Trains a small language model over bytes and writes it as a Hugging Face folder, so that tests have a model that has
learned something.

    pip install torch numpy safetensors
    python3 make_small_lm.py --text=FILE --out=FOLDER --width=48 --layers=2 --heads=3 --minutes=8

A byte is a token. Attention without token shifts and value residuals, as the library's "gptalpha" mixer has it. The
first bytes of the text (--held-out) are not trained on; the loss on them is printed at the end.
"""

import argparse
import json
import math
import pathlib
import time

import numpy as np
import torch
import torch.nn.functional as F
from safetensors.torch import save_file

CONTEXT, THETA = 256, 10000.0


def make_parameters(width, layers, heads):
    dk, ff = width // heads, 4 * width // 32 * 32
    p = {"transformer.wte.weight": torch.randn(256, width) * 0.02}
    for name in ["ln_emb", "ln_head"]:
        p[f"transformer.{name}.weight"], p[f"transformer.{name}.bias"] = torch.ones(width), torch.zeros(width)
    for i in range(layers):
        at = f"transformer.h.{i}."
        for name, n in [("ln_attn", width), ("ln_mlp", width), ("attn.ln_q", dk), ("attn.ln_k", dk)]:
            p[f"{at}{name}.weight"], p[f"{at}{name}.bias"] = torch.ones(n), torch.zeros(n)
        for name in ["c_q", "c_k", "c_v", "c_proj"]:
            p[f"{at}attn.{name}.weight"] = torch.nn.init.orthogonal_(torch.empty(width, width))
        p[f"{at}attn.c_proj.weight"] *= 0.1
        p[f"{at}mlp.c_fc.weight"] = torch.nn.init.orthogonal_(torch.empty(ff, width))
        p[f"{at}mlp.c_proj.weight"] = torch.randn(width, ff) * 0.1 / math.sqrt(ff)
    p["lm_head.weight"] = torch.randn(256, width) * 0.5 / math.sqrt(width)
    return {name: torch.nn.Parameter(value) for name, value in p.items()}


def norm(p, name, x):
    return F.layer_norm(x, x.shape[-1:], p[name + ".weight"], p[name + ".bias"], 1e-5)


def rotate(x):
    n = x.shape[-1] // 2
    frequencies = THETA ** (-torch.arange(n) / (n - 1))
    angles = torch.arange(x.shape[-2])[:, None] * frequencies
    cos, sin = angles.cos(), angles.sin()
    even, odd = x[..., 0::2], x[..., 1::2]
    return torch.stack([cos * even + sin * odd, cos * odd - sin * even], -1).flatten(-2)


def forward(p, layers, heads, tokens):
    x = norm(p, "transformer.ln_emb", p["transformer.wte.weight"][tokens])
    batch, length, width = x.shape
    for i in range(layers):
        at = f"transformer.h.{i}."
        normed = norm(p, at + "ln_attn", x)
        q, k, v = ((normed @ p[f"{at}attn.c_{c}.weight"].T).view(batch, length, heads, -1).transpose(1, 2)
                   for c in "qkv")
        q, k = rotate(norm(p, at + "attn.ln_q", q)), rotate(norm(p, at + "attn.ln_k", k))
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True).transpose(1, 2).reshape(batch, length, width)
        x = x + y @ p[at + "attn.c_proj.weight"].T
        hidden = norm(p, at + "ln_mlp", x) @ p[at + "mlp.c_fc.weight"].T
        x = x + F.relu(hidden).square() @ p[at + "mlp.c_proj.weight"].T
    return norm(p, "transformer.ln_head", x) @ p["lm_head.weight"].T


def loss_of(p, args, windows):
    logits = forward(p, args.layers, args.heads, windows[:, :-1])
    return F.cross_entropy(logits.flatten(0, 1), windows[:, 1:].flatten())


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--text", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--width", type=int, default=48)
    parser.add_argument("--layers", type=int, default=2)
    parser.add_argument("--heads", type=int, default=3)
    parser.add_argument("--minutes", type=float, default=8)
    parser.add_argument("--held-out", type=int, default=100_000)
    args = parser.parse_args()
    torch.manual_seed(1)
    torch.set_num_threads(1)
    data = torch.from_numpy(np.frombuffer(args.text.read_bytes(), np.uint8).astype(np.int64))
    held_out, data = data[:args.held_out], data[args.held_out:]
    p = make_parameters(args.width, args.layers, args.heads)
    matrices = [v for v in p.values() if v.dim() == 2]
    vectors = [v for v in p.values() if v.dim() == 1]
    peak = 6e-3
    optimizer = torch.optim.AdamW([{"params": matrices, "weight_decay": 0.1}, {"params": vectors, "weight_decay": 0.0}],
                                  lr=peak, betas=(0.9, 0.98))
    begin, step = time.time(), 0
    while (done := (time.time() - begin) / (60 * args.minutes)) < 1:
        for group in optimizer.param_groups:
            group["lr"] = peak * min(1, (step + 1) / 50) * (0.02 + 0.98 * (1 - done))
        starts = torch.randint(len(data) - CONTEXT - 1, (8,))
        loss = loss_of(p, args, torch.stack([data[s:s + CONTEXT + 1] for s in starts]))
        optimizer.zero_grad()
        loss.backward()
        torch.nn.utils.clip_grad_norm_(list(p.values()), 1.0)
        optimizer.step()
        if step % 100 == 0:
            print(f"step {step}: loss {loss.item():.4f}, {100 * done:.0f} %", flush=True)
        step += 1

    rounded = {name: value.detach().bfloat16() for name, value in p.items()}
    with torch.no_grad():
        windows = held_out[:len(held_out) // (CONTEXT + 1) * (CONTEXT + 1)].view(-1, CONTEXT + 1)
        loss = loss_of({name: value.float() for name, value in rounded.items()}, args, windows[:64])
    print(f"{step} steps; loss on bytes 0 to {64 * (CONTEXT + 1)}, bfloat16 weights: {loss.item():.5f}, "
          f"perplexity {loss.exp().item():.5f}")
    args.out.mkdir(parents=True, exist_ok=True)
    config = {
        "model_type": "rwkv7backbone", "torch_dtype": "bfloat16", "rope_table_dtype": "float32",
        "vocab_size": 256, "num_hidden_layers": args.layers, "num_attention_heads": args.heads,
        "hidden_size": args.width, "rope_theta": THETA, "rope_partial_dim": args.width // args.heads,
        "ffn_expansion": 4.0, "token_mixer": "gptalpha", "use_value_residual": 0, "use_tokenshift_att": 0,
        "gptalpha_token_shift_mode": "none", "use_tokenshift_ffn": 0, "tie_word_embeddings": False,
    }
    (args.out / "config.json").write_text(json.dumps(config, indent=2) + "\n")
    save_file({name: value.contiguous() for name, value in rounded.items()}, args.out / "model.safetensors",
              metadata={"format": "pt"})


if __name__ == "__main__":
    main()
