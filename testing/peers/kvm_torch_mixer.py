"""The KVM mixer in eager PyTorch (see kvm_torch.py).

A layer's state is a dictionary: "length", the tokens so far; the window "win_k",
"win_v", "win_gate"; the rows "s_k", "s_v", "radius", all [B, heads, n, ...]; and
the last token of every token shift.
"""

import torch
import torch.nn.functional as F
from torch import nn


def linear(inputs, outputs):
    return nn.Linear(inputs, outputs, bias=False)


def lerp_previous(x, last, mix):
    """x mixed with the token before; last is what stands before the first."""
    previous = torch.cat([last, x[:, :-1]], dim=1)
    return torch.lerp(x, previous, mix)


def rotate(x, cos, sin):
    """Turns adjacent pairs of the first channels; cos and sin are [T, pairs]."""
    count = 2 * cos.shape[-1]
    even, odd = x[..., 0:count:2], x[..., 1:count:2]
    turned = torch.stack([cos * even + sin * odd, cos * odd - sin * even], dim=-1)
    return torch.cat([turned.flatten(-2), x[..., count:]], dim=-1)


def take(z, indices):
    """Tokens of z [B, heads, T, d] at indices [B, heads, n]."""
    return z.gather(2, indices.unsqueeze(-1).expand(-1, -1, -1, z.shape[-1]))


class KvmMixer(nn.Module):
    def __init__(self, config, rank):
        super().__init__()
        self.config = config
        width, self.heads = config["hidden_size"], config["num_attention_heads"]
        size = config["d_head"] or width // self.heads
        inner = self.heads * size
        self.c_q, self.c_k, self.c_v = (linear(width, inner) for _ in range(3))
        self.c_proj = linear(inner, width)
        self.x_q, self.x_k, self.x_v = (nn.Parameter(torch.empty(inner)) for _ in range(3))
        self.ln_q, self.ln_k, self.ln_s_k = (nn.LayerNorm(size) for _ in range(3))
        self.v_gate0 = nn.Parameter(torch.empty(1, 1, inner))
        self.v_gate1, self.v_gate2 = linear(width, rank), linear(rank, inner)
        self.gates = config["kvm_use_merge_gate_keys"], config["kvm_use_merge_gate_values"]
        if any(self.gates):
            self.key_weighting = linear(width, self.heads)
        if config["kvm_use_head_temps"]:
            self.front_head_temp = nn.Parameter(torch.empty(self.heads))
            self.state_head_temp = nn.Parameter(torch.empty(self.heads))

    def forward(self, x, v_first, table, state):
        q, k, v = self.c_q(x), self.c_k(x), self.c_v(x)
        if v_first is None:  # Layer 0: the residual would add nothing.
            v_first = v
        else:
            v = torch.lerp(v, v_first, torch.sigmoid(self.v_gate0 + self.v_gate2(self.v_gate1(x))))
        raw = {"q": q, "k": k, "v": v}
        shifted = {}
        for name, z in raw.items():
            last = state.get(name + "_last", z[:, :1])
            state[name + "_last"] = z[:, -1:]
            z = lerp_previous(z, last, getattr(self, "x_" + name))
            shifted[name] = z.unflatten(-1, (self.heads, -1)).transpose(1, 2)
        q = rotate(self.ln_q(shifted["q"]), *table)
        k = rotate(self.ln_k(shifted["k"]), *table)
        v = shifted["v"]
        gate = torch.ones_like(k[..., :1])
        if any(self.gates):
            gate = 1 + F.elu(self.key_weighting(x)).transpose(1, 2).unsqueeze(-1)

        chunk, outputs, begin = self.config["chunk_len"], [], 0
        while begin < x.shape[1]:
            end = min(begin + chunk - state["length"] % chunk, x.shape[1])
            outputs.append(self.extend_chunk(*(z[:, :, begin:end] for z in (q, k, v, gate)), state))
            begin = end
        y = torch.cat(outputs, dim=2) if len(outputs) > 1 else outputs[0]
        return self.c_proj(y.transpose(1, 2).flatten(2)), v_first

    def extend_chunk(self, q, k, v, gate, state):
        """Tokens of one chunk; tensors are [B, heads, tokens, ...]."""
        chunk, window = self.config["chunk_len"], self.config["n_bswa_chunks"] * self.config["chunk_len"]
        if state["length"] % chunk == 0 and state["length"] >= window:
            self.drop_block(state)
        if state["length"] < chunk:
            self.add_first_rows(k, v, gate, state)
        for name, z in (("win_k", k), ("win_v", v), ("win_gate", gate)):
            state[name] = torch.cat([state[name], z], dim=2) if name in state else z
        state["length"] += q.shape[2]

        keys, values = state["win_k"], state["win_v"]
        temps = self.config["kvm_use_head_temps"]
        if temps:
            keys = keys * self.front_head_temp[:, None, None]
        tokens, past = q.shape[2], keys.shape[2] - q.shape[2]
        if state["length"] > window:
            rows = self.ln_s_k(state["s_k"])
            if temps:
                rows = rows * self.state_head_temp[:, None, None]
            keys = torch.cat([rows, keys], dim=2)
            values = torch.cat([F.normalize(state["s_v"], dim=-1) * state["radius"], values], dim=2)
            past += rows.shape[2]
        mask = None
        if tokens > 1:
            mask = torch.ones(tokens, past + tokens, dtype=torch.bool).tril(past)
        return F.scaled_dot_product_attention(q, keys, values, attn_mask=mask)

    def memory_key(self, k):
        rotary = self.config["rope_partial_dim"]
        return self.ln_s_k(torch.cat([torch.zeros_like(k[..., :rotary]), k[..., rotary:]], dim=-1))

    def gated(self, key, value, gate, is_on=True):
        return (key * gate if is_on and self.gates[0] else key,
                value * gate if is_on and self.gates[1] else value)

    def add_first_rows(self, k, v, gate, state):
        """Tokens of the first chunk are rows as they come."""
        key, value = self.gated(self.memory_key(k), v, gate,
                                self.config["kvm_apply_merge_gate_to_initial_state"])
        self.append_rows(key, value, v.norm(dim=-1, keepdim=True), state)

    def append_rows(self, key, value, radius, state):
        for name, z in (("s_k", key), ("s_v", value), ("radius", radius)):
            state[name] = torch.cat([state[name], z], dim=2) if name in state else z.contiguous()

    def drop_block(self, state):
        """The oldest block leaves the window; all but the first joins the state."""
        config, chunk = self.config, self.config["chunk_len"]
        begin = state["length"] - config["n_bswa_chunks"] * chunk
        block = [state[name][:, :, :chunk] for name in ("win_k", "win_v", "win_gate")]
        for name in ("win_k", "win_v", "win_gate"):
            state[name] = state[name][:, :, chunk:]
        if begin == 0:
            return
        k, v, gate = block
        key, sinks = self.memory_key(k), config["sink_len"]
        scores = (key @ self.ln_s_k(state["s_k"]).transpose(-1, -2)).float()
        count = min(self.budget(begin) - scores.shape[-1], chunk)
        if count > 0:
            novel = scores.amax(-1).topk(count, largest=False, sorted=False).indices.sort().values
            stays = torch.ones_like(scores[..., 0], dtype=torch.bool).scatter(2, novel, False)
            other = stays.nonzero()[:, -1].view(*novel.shape[:2], -1)
            new_key, new_value = self.gated(take(key, novel), take(v, novel), take(gate, novel),
                                            config["kvm_apply_merge_gate_to_appends"])
            self.append_rows(new_key, new_value, new_value.norm(dim=-1, keepdim=True), state)
            key, v, gate, scores = (take(z, other) for z in (key, v, gate, scores))
            new_scores = key @ self.ln_s_k(new_key).transpose(-1, -2)
            scores = torch.cat([scores, new_scores.float()], dim=-1)
        pick = (scores[..., sinks:].argmax(-1, keepdim=True) + sinks).expand_as(key)
        key, value = self.gated(key, v, gate)
        state["s_k"].scatter_add_(2, pick, key)
        state["s_v"].scatter_add_(2, pick, value)

    def budget(self, begin):
        """How many rows are wanted once the block at begin has left the window."""
        config, chunk = self.config, self.config["chunk_len"]
        rows = config["state_min_len"]
        if config["state_budget_mode"] == "power_law":
            context = begin + config["n_bswa_chunks"] * chunk
            grown = int(config["state_growth_factor"] * context ** config["state_growth_exponent"])
            rows = max(rows, grown // config["state_round_down"] * config["state_round_down"])
        return min(rows, begin + chunk, chunk * config["n_max_d_chunks"])
