// The file that each of some rows lies in.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "format.h"

namespace recmap {

// What it refers to must outlive it. Each owner must be one of the files.
struct RowFiles {
  std::span<const Bytes> files;
  std::span<const uint32_t> owners = {};  // of the rows; none if all are in the first file

  size_t owner(size_t row) const { return owners.empty() ? 0 : owners[row]; }
  Bytes operator[](size_t row) const { return files[owner(row)]; }
};

}  // namespace recmap
