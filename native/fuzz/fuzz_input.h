// What the fuzz targets share: a check that stops the run, and choices taken
// from the front of the input.
#pragma once

#include <cstdint>
#include <cstdio>
#include <cstdlib>

#include "wire.h"

#define REQUIRE(cond)                                                         \
  do {                                                                        \
    if (!(cond)) {                                                            \
      std::fprintf(stderr, "%s:%d: failed: %s\n", __FILE__, __LINE__, #cond); \
      std::abort();                                                           \
    }                                                                         \
  } while (false)

namespace recmap::fuzz {

class Input {
 public:
  explicit Input(Bytes bytes) : bytes_(bytes) {}

  // 0 past the end, so that every input is complete.
  uint8_t byte() {
    if (bytes_.empty()) return 0;
    const uint8_t value = bytes_.front();
    bytes_ = bytes_.subspan(1);
    return value;
  }
  uint16_t pair() {
    const uint8_t low = byte();
    return static_cast<uint16_t>(low | byte() << 8);
  }
  Bytes rest() const { return bytes_; }

 private:
  Bytes bytes_;
};

}  // namespace recmap::fuzz
