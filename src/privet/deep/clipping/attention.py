"""Gradients of nn.MultiheadAttention, which the layers of nn.Transformer contain: linear maps around the attention."""

import math

import torch
from torch import Tensor, nn
from torch.nn import functional

from privet.deep.clipping.gradients import Direct, OuterSum, PerExample
from privet.deep.clipping.rules import Keep, inside


@inside(nn.MultiheadAttention)
def attention(
    layer: nn.MultiheadAttention,
    keep: Keep,
    query: Tensor,
    key: Tensor,
    value: Tensor,
    key_padding_mask: Tensor | None = None,
    need_weights: bool = True,
    attn_mask: Tensor | None = None,
    average_attn_weights: bool = True,
    is_causal: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """Compute what the layer computes, with examples first. Attention weights are computed only if requested."""
    _check(query, attn_mask, is_causal)
    is_self = query is key and key is value and layer.in_proj_weight is not None
    if not layer.batch_first:
        query, key, value = (given.transpose(0, 1) for given in (query, key, value))
    batch, targets, width = query.shape
    q, k, v = _projected_together(layer, keep, query) if is_self else _projected(layer, keep, query, key, value)
    k, v = _longer(layer, keep, k, "bias_k"), _longer(layer, keep, v, "bias_v")
    if is_causal and key_padding_mask is None and not need_weights:
        attn_mask = None  # This is torch's hint that the mask is the causal one, which the kernel builds itself.
    else:
        is_causal = False
    mask = _merged(layer, attn_mask, key_padding_mask, q, k.shape[1] - key.shape[1])
    dropout = layer.dropout if layer.training else 0.0
    q, k, v = (x.unflatten(2, (layer.num_heads, -1)).transpose(1, 2) for x in (q, k, v))
    weights = None
    if need_weights:
        scores = (q / math.sqrt(layer.head_dim)) @ k.transpose(2, 3)
        weights = functional.dropout((scores if mask is None else scores + mask).softmax(3), dropout)
        attended = weights @ v
        weights = weights.mean(1) if average_attn_weights else weights
    else:
        attended = functional.scaled_dot_product_attention(q, k, v, mask, dropout, is_causal)
    attended = attended.transpose(1, 2).reshape(batch, targets, width)
    output = functional.linear(attended, layer.out_proj.weight, layer.out_proj.bias)
    keep(output, batch, lambda grads: _of_output(layer, attended, grads))
    return output if layer.batch_first else output.transpose(0, 1), weights


# -------------------------------------------------------------------------------------------------- the linear maps


def _projected_together(layer: nn.MultiheadAttention, keep: Keep, given: Tensor) -> tuple[Tensor, ...]:
    """Return queries, keys and values of one sequence, computed by one matrix product."""
    projected = functional.linear(given, layer.in_proj_weight, layer.in_proj_bias)

    def gradients(grads: Tensor) -> dict[str, PerExample]:
        weight = OuterSum(given.detach()[:, None], grads[:, None], layer.in_proj_weight.shape)
        return {"in_proj_weight": weight} | _of_bias(layer, grads.sum(1))

    keep(projected, len(given), gradients)
    return tuple(projected.chunk(3, 2))


def _projected(layer: nn.MultiheadAttention, keep: Keep, *given: Tensor) -> tuple[Tensor, ...]:
    """Return queries, keys and values of different sequences.

    Each is computed with its own weight, or with its rows of the common weight.
    """
    is_packed = layer.in_proj_weight is not None
    names = ("q_proj_weight", "k_proj_weight", "v_proj_weight")
    weights = layer.in_proj_weight.chunk(3) if is_packed else [getattr(layer, name) for name in names]
    biases = (None,) * 3 if layer.in_proj_bias is None else layer.in_proj_bias.chunk(3)
    lengths = [x.shape[1] for x in given]
    projected = torch.cat([functional.linear(*each) for each in zip(given, weights, biases, strict=True)], 1)

    def gradients(grads: Tensor) -> dict[str, PerExample]:
        rights = grads.split(lengths, 1)
        found: dict[str, PerExample] = _of_bias(layer, torch.cat([right.sum(1) for right in rights], 1))
        if is_packed:  # Each sequence uses its own group of rows of the weight.
            left, right = _as_groups(given), _as_groups(rights)
            found["in_proj_weight"] = OuterSum(left, right, layer.in_proj_weight.shape)
            return found
        for name, left, right, weight in zip(names, given, rights, weights, strict=True):
            found[name] = OuterSum(left.detach()[:, None], right[:, None], weight.shape)
        return found

    keep(projected, len(projected), gradients)
    return tuple(projected.split(lengths, 1))


def _as_groups(sequences: tuple[Tensor, ...]) -> Tensor:
    """Stack sequences as groups of one tensor, padding shorter ones with zeros."""
    longest = max(sequence.shape[1] for sequence in sequences)
    return torch.stack([functional.pad(each, (0, 0, 0, longest - each.shape[1])) for each in sequences], 1)


def _longer(layer: nn.MultiheadAttention, keep: Keep, sequence: Tensor, name: str) -> Tensor:
    """Return keys or values, followed by the learned vector and the vector of zeros that the layer may add."""
    learned = getattr(layer, name)
    parts = [sequence]
    if learned is not None:
        parts.append(learned.repeat(len(sequence), 1, 1))
        keep(parts[-1], len(sequence), lambda grads: {name: Direct(grads[:, None])})
    if layer.add_zero_attn:
        parts.append(torch.zeros_like(sequence[:, :1]))
    return torch.cat(parts, 1) if len(parts) > 1 else sequence


def _of_bias(layer: nn.MultiheadAttention, values: Tensor) -> dict[str, PerExample]:
    return {} if layer.in_proj_bias is None else {"in_proj_bias": Direct(values)}


def _of_output(layer: nn.MultiheadAttention, attended: Tensor, grads: Tensor) -> dict[str, PerExample]:
    weight = OuterSum(attended.detach()[:, None], grads[:, None], layer.out_proj.weight.shape)
    found: dict[str, PerExample] = {"out_proj.weight": weight}
    if layer.out_proj.bias is not None:
        found["out_proj.bias"] = Direct(grads.sum(1))
    return found


# ------------------------------------------------------------------------------------------------------------ masks


def _merged(
    layer: nn.MultiheadAttention, mask: Tensor | None, padding: Tensor | None, like: Tensor, added: int
) -> Tensor | None:
    """Return one additive mask for the scores, from the attention mask and the padding mask.

    Keys that the layer adds are not masked.
    """
    parts = []
    if mask is not None:
        mask = functional.pad(_additive(mask, like), (0, added))
        parts.append(mask if mask.ndim == 2 else mask.unflatten(0, (len(like), layer.num_heads)))
    if padding is not None:
        parts.append(functional.pad(_additive(padding, like), (0, added))[:, None, None])
    return sum(parts[1:], parts[0]) if parts else None


def _additive(mask: Tensor, like: Tensor) -> Tensor:
    """Return a boolean mask, which is true at masked places, as a mask that is added to the scores."""
    if mask.dtype != torch.bool:
        return mask
    return like.new_zeros(mask.shape).masked_fill_(mask, -math.inf)


def _check(query: Tensor, mask: Tensor | None, is_causal: bool) -> None:
    """Raise if the input is not a padded batch of sequences, or if a causal mask is announced but missing."""
    if query.is_nested:
        raise ValueError(
            "nn.MultiheadAttention received a nested tensor, which has no separate dimension for examples. Set "
            "enable_nested_tensor=False in nn.TransformerEncoder, or pass a padded tensor and a key_padding_mask."
        )
    if query.ndim != 3:
        raise ValueError(
            f"nn.MultiheadAttention received an input of {query.ndim} dimensions, but needs 3, because one dimension "
            "holds the examples. Pass a whole batch."
        )
    if is_causal and mask is None:
        raise ValueError(
            "is_causal=True was given without attn_mask. It is only a hint that the mask is causal. Pass the mask too."
        )
