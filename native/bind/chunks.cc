#include "chunks.h"

#include <nanobind/stl/variant.h>

#include "bind.h"
#include "inflate.h"

namespace recmap::bind {
namespace {

using Numbers = Array<const int64_t>;
using BoundRows = std::variant<std::tuple<size_t, size_t, size_t>, std::pair<Numbers, Numbers>>;

// A job with what it refers to.
struct BoundJob {
  std::variant<nb::bytes, Buffer, int> where;
  size_t offset, size;
  uint64_t mask;
  Array<uint8_t> out;
  nb::object part_object;
  const ChunkPart* part;
  BoundRows rows;

  ChunkJob get() const {
    ChunkJob job{
        .stored = {Bytes{}, offset, size}, .mask = mask, .out = as_span(out), .part = part};
    if (const auto* path = std::get_if<nb::bytes>(&where)) {
      job.stored.where = path->c_str();
    } else if (const auto* bytes = std::get_if<Buffer>(&where)) {
      job.stored.where = as_span(*bytes);
    } else {
      job.stored.where = std::get<int>(where);
    }
    if (const auto* span = std::get_if<0>(&rows)) {
      job.rows = RowSpan{std::get<0>(*span), std::get<1>(*span), std::get<2>(*span)};
    } else {
      const auto& [from, to] = std::get<1>(rows);
      job.rows = RowNumbers{as_span(from), as_span(to)};
    }
    return job;
  }
};

std::vector<size_t> decode_all(const std::vector<ChunkCodec>& codecs,
                               const std::vector<const BoundJob*>& bound, size_t threads) {
  std::vector<ChunkJob> jobs;
  jobs.reserve(bound.size());
  for (const BoundJob* job : bound) jobs.push_back(job->get());
  const nb::gil_scoped_release release;
  return decode_chunks(codecs, jobs, threads);
}

using BoundPart = std::tuple<Buffer, unsigned, nb::bytes, Array<uint8_t>, uint32_t, uint32_t>;

size_t all_parts(const std::vector<BoundPart>& bound, size_t threads) {
  std::vector<StreamPart> parts;
  parts.reserve(bound.size());
  for (const auto& [stored, bits, window, out, before, after] : bound) {
    parts.push_back({as_span(stored), bits, as_bytes(window), as_span(out), before, after});
  }
  const nb::gil_scoped_release release;
  return inflate_parts(parts, threads);
}

}  // namespace

void bind_chunks(nb::module_& m) {
  nb::enum_<CodecKind>(m, "CodecKind")
      .value("zlib", CodecKind::kZlib)
      .value("gzip", CodecKind::kGzip)
      .value("zstd", CodecKind::kZstd)
      .value("lz4", CodecKind::kLz4)
      .value("hdf5_lz4", CodecKind::kHdf5Lz4)
      .value("blosc", CodecKind::kBlosc)
      .value("lzf", CodecKind::kLzf)
      .value("shuffle", CodecKind::kShuffle)
      .value("bitshuffle", CodecKind::kBitshuffle)
      .value("fletcher32", CodecKind::kFletcher32)
      .value("crc32c", CodecKind::kCrc32c);
  nb::class_<ChunkCodec>(m, "ChunkCodec", "A codec that decode_chunks() undoes.")
      .def(
          "__init__",
          [](ChunkCodec* self, CodecKind kind, size_t item_size, size_t block_items,
             std::optional<CodecKind> inner) {
            new (self) ChunkCodec{kind, item_size, block_items, inner};
          },
          nb::arg("kind"), nb::arg("item_size") = 1, nb::arg("block_items") = 0,
          nb::arg("inner").none() = nb::none());
  nb::class_<ChunkPart>(m, "ChunkPart", "The part of every row of an array that a chunk holds.")
      .def(
          "__init__",
          [](ChunkPart* self, const std::vector<std::tuple<size_t, size_t, size_t>>& axes,
             size_t run, size_t at, size_t from_row, size_t to_row, size_t chunk_bytes) {
            new (self) ChunkPart{{}, run, at, from_row, to_row, chunk_bytes};
            for (const auto& [count, from, to] : axes) self->axes.push_back({count, from, to});
          },
          nb::arg("axes"), nb::arg("run"), nb::arg("at"), nb::arg("from_row"), nb::arg("to_row"),
          nb::arg("chunk_bytes"));
  nb::class_<BoundJob>(m, "ChunkJob", "A chunk to decode, and where it goes.")
      .def(
          "__init__",
          [](BoundJob* self, std::variant<nb::bytes, Buffer, int> stored, size_t offset,
             size_t size, uint64_t mask, const Array<uint8_t>& out, const nb::object& part,
             const BoundRows& rows) {
            const ChunkPart* const where =
                part.is_none() ? nullptr : nb::cast<const ChunkPart*>(part);
            new (self) BoundJob{std::move(stored), offset, size, mask, out, part, where, rows};
          },
          nb::arg("stored"), nb::arg("offset"), nb::arg("size"), nb::arg("mask"), nb::arg("out"),
          nb::arg("part") = nb::none(),
          nb::arg("rows") = BoundRows(std::tuple<size_t, size_t, size_t>(0, 0, 0)),
          nb::sig("def __init__(self, stored: bytes | numpy.typing.NDArray[numpy.uint8] | int, "
                  "offset: int, size: int, mask: int, out: numpy.typing.NDArray[numpy.uint8], "
                  "part: ChunkPart | None = None, rows: tuple[int, int, int] | "
                  "tuple[numpy.typing.NDArray[numpy.int64], numpy.typing.NDArray[numpy.int64]] = "
                  "(0, 0, 0)) -> None"),
          "`stored` are the bytes, a descriptor of the file that has them, or the path of a file "
          "that is the chunk. Without `part`, the chunk fills `out`; with it, `rows` are the first "
          "row in the chunk, in `out`, and how many, or the numbers in both.");
  m.def("decode_chunks", &decode_all, nb::arg("codecs"), nb::arg("jobs"), nb::arg("threads"),
        "Decode chunks and put them in their place. Return the numbers of those that failed.");
  m.def("use_codec_of", &use_codec_of, nb::arg("kind"), nb::arg("library"),
        "Take a codec from a shared library. Return whether that is possible.");
  m.def("use_isal_of", &use_isal_of, nb::arg("library"),
        "Inflate with the ISA-L of a shared library. Return whether that is possible.");
  m.def("use_zlib_ng_of", &use_zlib_ng_of, nb::arg("library"),
        "Inflate with the zlib-ng of a shared library. Return whether that is possible.");
  m.def("inflate_parts", &all_parts, nb::arg("parts"), nb::arg("threads"),
        "Inflate parts of a stream: the bytes that are left of it, how many bits are unused of the "
        "byte before, with which they begin if any are, the plain bytes before, the room for those "
        "that follow, and the CRC-32C of all before and with them. Return how many there are "
        "before the first unsound one.");
}

}  // namespace recmap::bind
