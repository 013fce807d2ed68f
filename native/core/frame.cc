#include "frame.h"

namespace recmap {

void write_header(uint8_t* out, uint64_t length) {
  store_le(out, length);
  store_le(out + 8, masked_crc32c(out, 8));
}

void write_footer(uint8_t* out, Bytes data) {
  store_le(out, masked_crc32c(data.data(), data.size()));
}

}  // namespace recmap
