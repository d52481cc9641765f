"""Digests of the numbers in arrays and tensors, of all their bits except those that mean nothing."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray


def array_digest(values: NDArray[Any]) -> bytes:
    """Return a digest of the type, the shape and the numbers of an array without objects."""
    digest = hashlib.blake2b(digest_size=16)
    for part in _parts(values):
        digest.update(np.ascontiguousarray(part).reshape(-1).view(np.uint8).data if part.size else b"")
    return f"{values.dtype}{values.shape}".encode() + digest.digest()


def _parts(values: NDArray[Any]) -> list[NDArray[Any]]:
    """Return arrays that consist of numbers only. Bytes between the numbers of others have no defined values."""
    if values.dtype.names:
        return [part for name in values.dtype.names for part in _parts(values[name])]
    if values.dtype.type in (np.longdouble, np.clongdouble):
        plain = np.float64 if values.dtype.type is np.longdouble else np.complex128
        with np.errstate(all="ignore"):
            return [values.astype(plain), (values - values.astype(plain)).astype(plain)]
    return [values] if values.dtype.itemsize else []


def tensor_digest(tensor: Any) -> bytes:
    """Return a digest of the type, the shape and the numbers of a tensor, if it has numbers."""
    import torch

    described = f"{tensor.dtype}{tuple(tensor.shape) if not tensor.is_nested else 'nested'}{tensor.layout}".encode()
    if tensor.device.type == "meta":
        return described
    digest = hashlib.blake2b(digest_size=16)
    for part in tensor.detach().unbind() if tensor.is_nested else (tensor.detach(),):
        flat = part.int_repr() if part.is_quantized else part
        flat = flat if flat.layout is torch.strided else flat.to_dense()
        flat = flat.resolve_conj().resolve_neg().cpu().contiguous().reshape(-1)
        digest.update(memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else b"")
    return described + digest.digest()
