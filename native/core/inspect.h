// What records hold: the facts from which a schema is inferred.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <utility>

#include "fault.h"
#include "format.h"

namespace recmap {

struct Extent {
  uint64_t min = UINT64_MAX;
  uint64_t max = 0;
  void add(uint64_t value) {
    if (value < min) min = value;
    if (value > max) max = value;
  }
};

// What the records seen hold under one key of one of their two maps.
struct FeatureFacts {
  uint64_t rows = 0;  // in which it has a kind, or is a feature list
  // First row with each Kind, indexed by Kind; UINT64_MAX if none.
  uint64_t first_row[4] = {UINT64_MAX, UINT64_MAX, UINT64_MAX, UINT64_MAX};
  Extent values;  // per row, or per step of a feature list
  Extent steps;   // per row; feature lists only
  Extent string_size;
  uint64_t string_size_bits = 0;  // all string sizes ORed: low zeros mean divisible
};

using FactsKey = std::pair<bool, std::string>;  // in the feature lists?, key

struct Facts {
  uint64_t rows = 0;
  std::map<FactsKey, FeatureFacts> features;
  std::optional<Fault> not_example;  // the first record that is not an Example
};

// Reads the records at `offsets`, up to the first that is not an Example. Safe to call from any
// thread.
Facts inspect(Bytes file, std::span<const uint64_t> offsets, bool verify);

}  // namespace recmap
