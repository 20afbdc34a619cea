"""The chunked coding, read by read: is this read one whole chunk and nothing else?

    size in hexadecimal CR LF, that many bytes, CR LF

Servers send an event a chunk, and mostly the read brings it whole.
"""


def size_lines(length: int) -> tuple[bytes, ...]:
    """How a read of this many bytes begins, if it is one whole chunk (`b"c\\r\\n"`, or `C`)."""
    for digits in (1, 2, 3):
        size = length - digits - 4
        if size > 0 and len(f"{size:x}") == digits:
            return tuple({b"%x\r\n" % size, b"%X\r\n" % size})
    return ()


def one_chunk(data: bytes) -> bytes | None:
    """What is in `data`, if it is one whole chunk of the chunked coding and nothing else."""
    end = data.find(b"\r\n", 1, 10)
    if end < 0 or not data.endswith(b"\r\n"):
        return None
    digits = data[:end]
    try:
        size = int(digits, 16)
    except ValueError:
        return None
    if size == 0 or len(data) != end + size + 4 or not digits.isalnum():
        return None
    return data[end + 2 : -2]
