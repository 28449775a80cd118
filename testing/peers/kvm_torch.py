"""A stack of KVM layers in eager PyTorch, as code written for a GPU would be.

What users of PyTorch have on a CPU: every matrix product, norm and attention is
one call of the library, prompts go chunk by chunk, and every chunk (in decoding,
every token) normalizes all rows of the state again. Reads a model folder with
Hugging Face's names; stacks other than plain KVM are refused.

    model = load("folder")
    state = model.new_state()
    logits = model(ids, state, last_only=True)   # ids [B, T], float32 [B, 1, V]
"""

import json
import pathlib

import torch
import torch.nn.functional as F
from kvm_torch_mixer import KvmMixer, lerp_previous, linear
from safetensors.torch import load_file
from torch import nn

# What this code can do; everything else must have these values.
FIXED = {
    "token_mixer": ("kvm",), "alt_layer_every": (-1, 0, 1), "use_block_lambdas": (0,),
    "use_skip_connections": (0,), "logit_softcap": (0,), "use_tokenshift_ffn": (1,),
    "use_tokenshift_att": (1,), "use_value_residual": (1,), "kvm_use_vlens": (1,),
    "kvm_value_residual_mode": ("rwkv",), "kvm_token_shift_mode": ("rwkv",),
    "state_budget_mode": ("fixed", "power_law"),
}
DEFAULTS = {
    "token_mixer": "rwkv7", "use_tokenshift_ffn": 0, "use_tokenshift_att": 0,
    "rope_theta": 1e4, "rope_partial_dim": 64, "rope_table_dtype": "bfloat16",
    "ffn_expansion": 4.0, "residual_scale": None, "sink_len": 1, "chunk_len": 256,
    "n_max_d_chunks": 1, "n_bswa_chunks": 2, "state_budget_mode": "fixed",
    "state_growth_factor": 1.0, "state_growth_exponent": 0.5, "state_round_down": 1,
    "state_min_len": -1, "kvm_apply_merge_gate_to_initial_state": 0,
    "kvm_apply_merge_gate_to_appends": 0, "kvm_use_merge_gate_keys": 1,
    "kvm_use_merge_gate_values": 1, "kvm_use_head_temps": 1,
}


class Mlp(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config["hidden_size"]
        inner = int(config["ffn_expansion"] * width) // 32 * 32
        self.c_fc, self.c_proj = linear(width, inner), linear(inner, width)
        self.x_k = nn.Parameter(torch.empty(1, 1, width))

    def forward(self, x, state):
        last = state.get("mlp_last", torch.zeros_like(x[:, :1]))
        state["mlp_last"] = x[:, -1:]
        return self.c_proj(F.relu(self.c_fc(lerp_previous(x, last, self.x_k))).square())


class Block(nn.Module):
    def __init__(self, config, rank):
        super().__init__()
        self.ln_attn, self.ln_mlp = (nn.LayerNorm(config["hidden_size"]) for _ in range(2))
        self.attn, self.mlp = KvmMixer(config, rank), Mlp(config)
        self.scale = config["residual_scale"] or 1.0

    def forward(self, x, v_first, table, state):
        y, v_first = self.attn(self.ln_attn(x), v_first, table, state)
        x = torch.add(x, y, alpha=self.scale)
        return torch.add(x, self.mlp(self.ln_mlp(x), state), alpha=self.scale), v_first


class KvmStack(nn.Module):
    def __init__(self, config, rank):
        super().__init__()
        self.config = config
        width, vocab = config["hidden_size"], config["vocab_size"]
        self.transformer = nn.ModuleDict({
            "wte": nn.Embedding(vocab, width), "ln_emb": nn.LayerNorm(width),
            "h": nn.ModuleList(Block(config, rank) for _ in range(config["num_hidden_layers"])),
            "ln_head": nn.LayerNorm(width)})
        self.lm_head = linear(width, vocab)

    def new_state(self):
        return [{"length": 0} for _ in self.transformer["h"]]

    def rotary_table(self, begin, end):
        pairs = self.config["rope_partial_dim"] // 2
        frequency = (1 / self.config["rope_theta"]) ** torch.linspace(0, 1, pairs)
        angle = torch.arange(begin, end, dtype=torch.float32)[:, None] * frequency
        rounding = getattr(torch, self.config["rope_table_dtype"])
        dtype = self.lm_head.weight.dtype
        return angle.cos().to(rounding).to(dtype), angle.sin().to(rounding).to(dtype)

    @torch.inference_mode()
    def forward(self, ids, state, last_only=False):
        begin = state[0]["length"]
        table = self.rotary_table(begin, begin + ids.shape[1])
        x, v_first = self.transformer["ln_emb"](self.transformer["wte"](ids)), None
        for block, layer_state in zip(self.transformer["h"], state):
            x, v_first = block(x, v_first, table, layer_state)
        return self.lm_head(self.transformer["ln_head"](x[:, -1:] if last_only else x))


def load(folder):
    """A model from a folder of Hugging Face's kind, float32 in memory."""
    folder = pathlib.Path(folder)
    config = {**DEFAULTS, "d_head": None, "num_key_value_heads": None}
    given = json.loads((folder / "config.json").read_text())
    config.update({key: value for key, value in given.items() if value is not None})
    for key, allowed in FIXED.items():
        if config.get(key, allowed[0]) not in allowed:
            raise ValueError(f"{folder}: {key} is {config[key]!r}; expected one of {allowed}")
    if config["num_key_value_heads"] not in (None, config["num_attention_heads"]):
        raise ValueError(f"{folder}: num_key_value_heads; expected as many as heads")
    tensors = {}
    for file in sorted(folder.glob("model*.safetensors")):
        tensors.update(load_file(file))
    rank = tensors["transformer.h.0.attn.v_gate1.weight"].shape[0]
    with torch.device("meta"):
        model = KvmStack(config, rank)
    model.load_state_dict({name: z.float() for name, z in tensors.items()}, assign=True)
    return model.eval().requires_grad_(False)
