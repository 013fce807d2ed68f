// Where records lie: in which file, and at which byte of it. A "file" is any buffer of framed
// bytes: a mapped file, or a window of an inflated stream.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format.h"

namespace recmap {

// The offset of a record among records that are `stride` bytes apart, of which the first is
// longer by `lead` bytes: it begins with the description of the columns.
constexpr uint64_t strided_offset(uint64_t row, uint64_t stride, uint64_t lead) {
  return row * stride + (row == 0 ? 0 : lead);
}

// A file and the places of its records. If `stride` is not 0, it gives them all. Otherwise they
// are reached from anchors, the rows and offsets of some records, which ascend: the records
// from one anchor to the next lie end to end. What it refers to must outlive it.
struct IndexedFile {
  Bytes bytes;
  uint64_t stride = 0;
  std::span<const uint64_t> anchor_rows = {};
  std::span<const uint64_t> anchor_offsets = {};
  uint64_t lead = 0;
};

// Consecutive rows of a file whose records are `stride` bytes apart.
struct StridedRows {
  uint64_t first = 0;
  uint64_t count = 0;
};

// Records of one or more files, by offset; or consecutive rows of a file that has a stride. What
// it refers to must outlive it.
struct Records {
  std::span<const IndexedFile> files;
  std::span<const uint64_t> offsets = {};
  // The number of each record's file; empty if all lie in the first.
  std::span<const uint32_t> owners = {};
  StridedRows strided = {};

  size_t size() const { return strided.count != 0 ? strided.count : offsets.size(); }
  Bytes file(size_t i) const { return files[owners.empty() ? 0 : owners[i]].bytes; }
  uint64_t offset(size_t i) const {
    if (strided.count == 0) return offsets[i];
    return strided_offset(strided.first + i, files[0].stride, files[0].lead);
  }
  // Bytes from a record to the next, which its frame must fill; 0 if only the frame tells.
  uint64_t distance(size_t i) const {
    if (strided.count == 0) return 0;
    return files[0].stride + (strided.first + i == 0 ? files[0].lead : 0);
  }
  bool in_order() const { return strided.count != 0; }
};

}  // namespace recmap
