// Any bytes as the footer of a Parquet file, as the header of a page, as levels, and as a Snappy
// stream: what they say is within bounds, and levels and streams mean what they mean one by one.
#include <algorithm>
#include <cstdint>
#include <vector>

#include "fuzz_input.h"
#include "parquet.h"

namespace recmap {
namespace {

// Reads a varint of at most 9 bytes, and removes it from the front.
bool take_varint(Bytes& bytes, uint64_t& value) {
  value = 0;
  for (int i = 0; i < 9 && !bytes.empty(); ++i) {
    const uint8_t byte = bytes[0];
    bytes = bytes.subspan(1);
    value |= static_cast<uint64_t>(byte & 127) << (7 * i);
    if (byte < 128) return true;
  }
  return false;
}

// Unpacks levels one by one, bit by bit.
int64_t count_plainly(Bytes levels, int64_t count, size_t bits) {
  int64_t zeros = 0;
  while (count > 0) {
    uint64_t head;
    if (!take_varint(levels, head) || head < 2) return -1;
    if (head % 2 == 0) {
      if (levels.empty()) return -1;
      for (uint64_t i = 0; i < head / 2 && count > 0; ++i, --count) zeros += levels[0] == 0;
      levels = levels.subspan(1);
      continue;
    }
    for (uint64_t group = 0; group < head / 2 && count > 0; ++group) {
      if (levels.size() < bits) return -1;
      for (size_t i = 0; i < 8 && count > 0; ++i, --count) {
        bool zero = true;
        for (size_t bit = i * bits; bit < (i + 1) * bits; ++bit) {
          zero = zero && (levels[bit / 8] >> bit % 8 & 1) == 0;
        }
        zeros += zero;
      }
      levels = levels.subspan(bits);
    }
  }
  return zeros;
}

// The bytes of a Snappy stream, up to `most` of them, element by element.
std::vector<uint8_t> expand_plainly(Bytes stream, size_t most) {
  std::vector<uint8_t> out;
  uint64_t size;
  if (!take_varint(stream, size)) return out;
  while (!stream.empty() && out.size() < most) {
    const uint8_t tag = stream[0], kind = tag & 3;
    const size_t more = kind == 3 ? 4 : kind != 0 ? kind : tag >> 2 < 60 ? 0 : (tag >> 2) - 59;
    if (stream.size() < 1 + more) break;
    size_t number = 0;
    for (size_t i = more; i > 0; --i) number = number << 8 | stream[i];
    stream = stream.subspan(1 + more);
    if (kind == 0) {
      const size_t n = std::min(more > 0 ? number + 1 : (tag >> 2) + size_t{1}, most - out.size());
      if (stream.size() < n) break;
      out.insert(out.end(), stream.begin(), stream.begin() + static_cast<ptrdiff_t>(n));
      stream = stream.subspan(n);
      continue;
    }
    const size_t distance = kind == 1 ? number | static_cast<size_t>(tag >> 5) << 8 : number;
    const size_t n = kind == 1 ? 4 + (tag >> 2 & 7) : 1 + (tag >> 2);
    if (distance == 0 || distance > out.size()) break;
    for (size_t i = 0; i < n && out.size() < most; ++i) out.push_back(out[out.size() - distance]);
  }
  return out;
}

void check_chunks(Bytes footer) {
  const auto found = read_parquet_chunks(footer);
  if (!found) return;
  REQUIRE(found->size() <= footer.size());
  int64_t group = 0;
  for (const ParquetChunk& chunk : *found) {
    REQUIRE(chunk.group >= group && 0 <= chunk.begin && chunk.begin <= chunk.end);
    REQUIRE(std::min({chunk.type, chunk.values, chunk.size}) >= 0);
    group = chunk.group;
  }
}

void check_page(Bytes bytes) {
  const auto found = read_parquet_page(bytes);
  if (!found) return;
  REQUIRE(0 < found->header && found->header <= static_cast<int64_t>(bytes.size()));
  REQUIRE(std::min({found->kind, found->size, found->stored, found->values}) >= 0);
  // Nothing after the header matters, and all of it does.
  const auto size = static_cast<size_t>(found->header);
  REQUIRE(read_parquet_page(bytes.first(size)).has_value());
  REQUIRE(!read_parquet_page(bytes.first(size - 1)).has_value());
}

}  // namespace
}  // namespace recmap

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace recmap;
  fuzz::Input input({data, size});
  const int bits = 1 + input.byte() % 8;
  const size_t most = input.pair();
  // A copy of its own, so that the sanitizer sees reads past its end.
  const std::vector<uint8_t> bytes(input.rest().begin(), input.rest().end());
  check_chunks(bytes);
  check_page(bytes);
  const auto count = static_cast<int64_t>(most);
  REQUIRE(count_zero_levels(bytes, count, bits) ==
          count_plainly(bytes, count, static_cast<size_t>(bits)));
  std::vector<uint8_t> out(most);
  out.resize(snappy_front(bytes, out));
  REQUIRE(out == expand_plainly(bytes, most));
  return 0;
}
