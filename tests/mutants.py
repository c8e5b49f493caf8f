"""Ways to break rank 1's schedule in a ring of 3 ranks, with words that the refusal must say."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from schedules import NBYTES, edit, move, swap

from aotato.runtime_stub.schedule import Argument, Parcel, Schedule

# The steps of a rank of a ring of 3: post 2, post 3, compute, pack, fetch 0, fetch 1, send 0, send 1, wait 2, wait 3,
# put 2, put 3, last, settle 0, settle 1
MUTANTS: dict[str, tuple[Callable[[Schedule], Schedule], str]] = {
    "tag differs": (edit("messages", 0, tag=77), "rank 1 sends to rank 0 in batch 0 tag 77 from buffer 'send0_0'"),
    "tag too large": (edit("messages", 0, tag=32768), "rank 1, message 0 to rank 0.*tag 32768"),
    "tag negative": (edit("messages", 0, tag=-1), "tag -1"),
    "wrong peer": (edit("messages", 0, peer=2), "rank 1 has more than one message in batch 0 to rank 2"),
    "unknown peer": (edit("messages", 0, peer=3), "message 0 to rank 3.*not another rank of 3"),
    "own peer": (edit("messages", 0, peer=1), "not another rank"),
    "other direction": (edit("messages", 0, outgoing=False), "expected a recv buffer"),
    "batch out of range": (edit("messages", 0, batch=1), "batch 1"),
    "fewer bytes": (edit("messages", 0, nbytes=NBYTES - 1), "'v' covers 64 to 96, outside 0 to 95"),
    "more bytes": (edit("messages", 0, nbytes=NBYTES + 1), "97 bytes in a send buffer of 96"),
    "other bytes, same parcels": (lambda s: edit("buffers", 4, nbytes=104)(edit("messages", 0, nbytes=104)(s)),
                                  "rank 1 sends to rank 0 in batch 0 bytes 104 .* rank 0 expects 96"),
    "parcels overlap": (edit("messages", 0, parcels=(Parcel("u", 0, (4, 2), "float64"), Parcel("v", 60, (8,), "i4"))),
                        "'u' and 'v' overlap at 60"),
    "parcel unaligned": (edit("messages", 0, parcels=(Parcel("u", 4, (4, 2), "float64"),)), "misplaced at 4"),
    "parcel of another dtype": (edit("messages", 2, parcels=(Parcel("u", 0, (4, 2), "int64"),)),
                                "rank 0 sends to rank 1 in batch 0 parcels"),
    "parcel of another shape": (edit("messages", 2, parcels=(Parcel("u", 0, (2, 4), "float64"),)), "parcels"),
    "parcel of no dtype": (edit("messages", 2, parcels=(Parcel("u", 0, (2, 4), "float65"),)), "'float65'"),
    "parcel of objects": (edit("messages", 2, parcels=(Parcel("u", 0, (2, 4), "O"),)), "'O'"),
    "parcels missing": (edit("messages", 2, parcels=()), "parcels"),
    "shared buffer": (edit("messages", 1, buffer="send0_0"), "share buffer 'send0_0'"),
    "unknown buffer": (edit("messages", 1, buffer="send9"), "no buffer 'send9'"),
    "receive into a temporary": (edit("messages", 2, buffer="t0"), "expected a recv buffer"),
    "buffer kind": (edit("buffers", 0, kind="scratch"), "unknown kind 'scratch'"),
    "buffer named twice": (edit("buffers", 0, name="c"), "'c'"),
    "offset outside the arena": (edit("buffers", 3, offset=NBYTES + 8), "'t0' ends at byte 200, outside the arena"),
    "negative size": (edit("buffers", 0, nbytes=-8), "-8 bytes"),
    "step without object": (edit("steps", 0, index=4), "no 'post' 4"),
    "step of unknown kind": (edit("steps", 0, op="park"), "no 'park'"),
    "post of a send": (edit("steps", 0, index=0), "goes the wrong way"),
    "post twice": (edit("steps", 1, index=2), "repeats step 0"),
    "send before fetch": (swap(4, 6), "rank 1, step 4 .send of message 0 to rank 0.*before fetch"),
    "launch before put": (move("launch", 2, 8), "reads 'recv0_0' before this call has filled it"),
    "pack after fetch": (move("launch", 1, 5), "fetch of message 0.*before any launch"),
    "pack after settle": (move("launch", 1, 14), "before any launch"),
    "pack missing": (edit("launches", 1, arguments=()), "before any launch"),
    "temporary read first": (swap(2, 3), "reads 't0' before"),
    "writes an input": (edit("launches", 0, arguments=(Argument("x", "float64", "w"),)), "writes input buffer 'x'"),
    "writes a constant": (edit("launches", 0, arguments=(Argument("c", "float64", "w"),)), "writes const buffer 'c'"),
    "writes a receive": (edit("launches", 2, arguments=(Argument("recv0_0", "float64", "w"),)), "writes recv buffer"),
    "unknown argument": (edit("launches", 0, arguments=(Argument("y", "float64", "w"),)), "no buffer 'y'"),
    "argument mode": (edit("launches", 0, arguments=(Argument("x", "float64", "rw"),)), "neither"),
    "output not written": (edit("launches", 2, arguments=()), "output 'out' in buffer 'out' is never written"),
    "output too large": (edit("outputs", 0, shape=(13,)), "covers 0 to 104"),
    "output in a send buffer": (edit("outputs", 0, buffer="send0_0"), "does not outlive"),
    "output nowhere": (edit("outputs", 0, buffer="o"), "no buffer 'o'"),
    "output twice": (lambda s: replace(s, outputs=s.outputs * 2), "two outputs 'out'"),
    "work size": (edit("launches", 0, local_size=(3,)), "not positive multiples"),
    "part out of range": (edit("launches", 0, part=2), "part 2"),
    "too many parts": (lambda s: replace(s, parts=3), "3 parts"),
    "staging": (lambda s: replace(s, staging="wired"), "'wired'"),
    "rank": (lambda s: replace(s, rank=2), "says it is rank 2"),
    "size": (lambda s: replace(s, size=4), "of 4"),
    "entry": (lambda s: replace(s, entry="init"), "entry 'init'"),
    "text for a number": (edit("messages", 0, nbytes="96"), "Message.nbytes is '96'"),
    "true for a number": (edit("steps", 0, index=True), "Step.index is True"),
}
