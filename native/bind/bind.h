// What the binding files share. Each binds the core file of the same name: it turns Python
// objects into the core's spans, checks what only Python can get wrong, and releases the GIL
// around the work. Bound objects hold on to the arrays they refer to.
#pragma once

#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/tuple.h>
#include <nanobind/stl/vector.h>

#include <algorithm>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "buffer_pool.h"
#include "column.h"
#include "fault.h"
#include "record_reader.h"
#include "records.h"

namespace nb = nanobind;

namespace recmap::bind {

template <typename T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using Buffer = Array<const uint8_t>;
using Owners = std::optional<Array<const uint32_t>>;

template <typename T>
std::span<T> as_span(const Array<T>& array) {
  return {array.data(), array.size()};
}

inline Bytes as_bytes(const nb::bytes& bytes) {
  return {static_cast<const uint8_t*>(bytes.data()), bytes.size()};
}

// Gives a buffer back when the last array that looks into it is gone.
nb::capsule owner_of(const PooledBuffer& buffer);

// Makes a numpy array, in memory that was used before if it is large.
template <typename T>
nb::object new_array(size_t size, const char* dtype, std::span<T>& contents) {
  constexpr size_t kSmallest = size_t{1} << 18;
  if (size >= kSmallest / sizeof(T) && size <= most_kept_bytes() / sizeof(T)) {
    if (const PooledBuffer buffer = take_buffer(size * sizeof(T)); buffer.data != nullptr) {
      contents = {reinterpret_cast<T*>(buffer.data), size};
      using Numbers = nb::ndarray<nb::numpy, T, nb::ndim<1>>;
      return nb::cast(Numbers(contents.data(), {size}, owner_of(buffer)));
    }
  }
  nb::object array = nb::module_::import_("numpy").attr("empty")(size, dtype);
  const auto view = nb::cast<Array<T>>(array);
  contents = {view.data(), view.size()};
  return array;
}

template <typename T>
nb::object copy_array(std::span<const T> from, const char* dtype) {
  std::span<T> contents;
  nb::object array = new_array<T>(from.size(), dtype, contents);
  std::copy(from.begin(), from.end(), contents.begin());
  return array;
}

// Files whose records are read together. None is added while they are in use.
struct Files {
  std::vector<IndexedFile> list;
  std::vector<Buffer> contents;
  std::vector<Array<const uint64_t>> anchors;

  // Checks the owners of so many rows.
  std::span<const uint32_t> owners_of(const Owners& owners, size_t rows) const;
};

// core/records.h, with what it refers to.
struct BoundRecords {
  nb::object files_object;
  const Files* files;
  Array<const uint64_t> offsets;
  Owners owners;
  size_t count;
  std::optional<uint64_t> first = std::nullopt;  // of consecutive rows, which need no offsets

  Records get() const;
};

struct Columns {
  std::vector<Column> list;
  bool count_unknown = false;
};

using MaybeFault = std::optional<Fault>;

inline MaybeFault maybe(const Fault& fault) { return fault ? MaybeFault(fault) : std::nullopt; }

using DescriptionList = nb::typed<nb::list, nb::typed<nb::tuple, nb::bytes, uint64_t>>;
DescriptionList list_descriptions(const Descriptions& descriptions);

void bind_arrow_export(nb::module_& m);
void bind_arrow_import(nb::module_& m);
void bind_buffer_pool(nb::module_& m);
void bind_chunks(nb::module_& m);
void bind_column(nb::module_& m);
void bind_cut_batches(nb::module_& m);
void bind_decode(nb::module_& m);
void bind_draws(nb::module_& m);
void bind_encode(nb::module_& m);
void bind_end_with_parent(nb::module_& m);
void bind_frame(nb::module_& m);
void bind_gather(nb::module_& m);
void bind_gzip_members(nb::module_& m);
void bind_inspect(nb::module_& m);
void bind_jpeg(nb::module_& m);
void bind_locate(nb::module_& m);
void bind_lzf(nb::module_& m);
void bind_mapping(nb::module_& m);
void bind_moments(nb::module_& m);
void bind_pack_rows(nb::module_& m);
void bind_pad(nb::module_& m);
void bind_parquet(nb::module_& m);
void bind_permutation(nb::module_& m);
void bind_place_image(nb::module_& m);
void bind_reserve(nb::module_& m);
void bind_scan(nb::module_& m);
void bind_shuffle(nb::module_& m);
void bind_slots(nb::module_& m);
void bind_text_tables(nb::module_& m);
void bind_utf8(nb::module_& m);

}  // namespace recmap::bind
