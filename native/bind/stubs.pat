recmap.native._core.__prefix__:
    from typing import TypeAlias
    Decoded: TypeAlias = tuple[numpy.typing.NDArray[numpy.uint8], numpy.typing.NDArray[numpy.int64] | None, numpy.typing.NDArray[numpy.int64] | None, numpy.typing.NDArray[numpy.int64] | None]
    Padded: TypeAlias = tuple[numpy.typing.NDArray[numpy.uint8], list[tuple[int, int]], numpy.typing.NDArray[numpy.int64]]
    Unknown: TypeAlias = tuple[bool, bytes, Kind, int, int]
