"""Manifests of a catalog with checksums that fit, of somebody who wrote them by hand."""

from __future__ import annotations

MASK = (1 << 64) - 1
PRIMES = (
    0x9E3779B185EBCA87,
    0xC2B2AE3D27D4EB4F,
    0x165667B19E3779F9,
    0x85EBCA77C2B2AE63,
    0x27D4EB2F165667C5,
)


def turned(value: int, bits: int) -> int:
    return (value << bits | value >> (64 - bits)) & MASK


def checksum(content: bytes) -> str:
    """XXH64 with seed 0, as manifests have it."""
    one, two, three, four, five = PRIMES

    def step(lane: int, value: int) -> int:
        return turned((lane + value * two) & MASK, 31) * one & MASK

    at = 0
    if len(content) >= 32:
        lanes = [(one + two) & MASK, two, 0, -one & MASK]
        while at + 32 <= len(content):
            for lane in range(4):
                word = int.from_bytes(content[at : at + 8], "little")
                lanes[lane] = step(lanes[lane], word)
                at += 8
        value = sum(map(turned, lanes, (1, 7, 12, 18))) & MASK
        for lane in lanes:
            value = ((value ^ step(0, lane)) * one + four) & MASK
    else:
        value = five
    value = (value + len(content)) & MASK
    while at + 8 <= len(content):
        word = int.from_bytes(content[at : at + 8], "little")
        value = (turned(value ^ step(0, word), 27) * one + four) & MASK
        at += 8
    if at + 4 <= len(content):
        word = int.from_bytes(content[at : at + 4], "little")
        value = (turned(value ^ word * one & MASK, 23) * two + three) & MASK
        at += 4
    for byte in content[at:]:
        value = turned(value ^ byte * five & MASK, 11) * one & MASK
    value = (value ^ value >> 33) * two & MASK
    value = (value ^ value >> 29) * three & MASK
    return f"{value ^ value >> 32:016x}"


def forged(text: str) -> bytes:
    """A manifest whose checksum fits."""
    return f"partgrid manifest {checksum(text.encode())}\n{text}".encode()
