// What the binding files share. These files translate between Python objects
// and the core's spans, and let go of the interpreter lock around the work;
// they decide nothing.
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
#include <span>
#include <vector>

#include "fault.h"
#include "frame.h"
#include "row_files.h"
#include "wire.h"

namespace nb = nanobind;

namespace recmap::bind {

template <typename T>
using Array = nb::ndarray<T, nb::ndim<1>, nb::c_contig, nb::device::cpu>;

using Buffer = Array<const uint8_t>;

template <typename T>
std::span<T> as_span(const Array<T>& array) {
  return {array.data(), array.size()};
}

// A new numpy array. numpy allocates, so that large arrays get what numpy does
// for them.
template <typename T>
nb::object new_array(size_t size, const char* dtype, std::span<T>& contents) {
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

// Files whose rows are read together, none of which is added once they are in use. Holds
// on to the arrays.
struct Files {
  std::vector<Buffer> arrays;
  std::vector<Array<const uint64_t>> marks;
  std::vector<Bytes> bytes;
  std::vector<KnownFile> known;
};

using Owners = std::optional<Array<const uint32_t>>;

// The files of so many rows.
inline RowFiles row_files(const Files& files, const Owners& owners, size_t rows) {
  if (files.bytes.empty()) throw nb::value_error("rows lie in one file or more");
  RowFiles found{files.bytes, {}};
  if (!owners) return found;
  found.owners = as_span(*owners);
  const auto is_file = [&](uint32_t owner) { return owner < files.bytes.size(); };
  if (found.owners.size() != rows ||
      !std::all_of(found.owners.begin(), found.owners.end(), is_file)) {
    throw nb::value_error("every row has one of the files for an owner");
  }
  return found;
}

using MaybeFault = std::optional<Fault>;

inline MaybeFault maybe(const Fault& fault) { return fault ? MaybeFault(fault) : std::nullopt; }

void bind_lzf(nb::module_& m);
void bind_mapping(nb::module_& m);
void bind_frame(nb::module_& m);
void bind_pad(nb::module_& m);
void bind_end_with_parent(nb::module_& m);
void bind_decode(nb::module_& m);
void bind_gather(nb::module_& m);
void bind_encode(nb::module_& m);

}  // namespace recmap::bind
