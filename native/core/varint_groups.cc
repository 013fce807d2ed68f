#include "varint_groups.h"

#include <cstring>

#include "varint_groups_path.h"
#include "x86_features.h"

namespace recmap {
namespace {

// Shorter lists are decoded as fast one by one.
constexpr size_t kWorthwhile = 16;

DecodeGroups path(size_t size) {
#if defined(__x86_64__)
  // Asked here, because the compiler may use the instructions anywhere in the file for the CPU.
  static const bool runs = x86_has(bit_SSSE3);
  if (!runs) return nullptr;
  return size == 4 ? decode_groups4_x86 : decode_groups8_x86;
#elif defined(__aarch64__)
  return size == 4 ? decode_groups4_arm64 : decode_groups8_arm64;
#else
  return nullptr;
#endif
}

}  // namespace

GroupEnd decode_groups(Bytes packed, uint8_t* out, const uint8_t* end, size_t size) {
  const DecodeGroups decode = path(size);
  const uint8_t* const stop = packed.data() + packed.size();
  if (decode == nullptr) return {packed.data(), out};
  if (packed.size() >= kMasked) return decode(packed.data(), stop, out, end);
  if (packed.size() < kWorthwhile) return {packed.data(), out};
  // The last bytes, with zeros behind them. Zeros are values too, but there is no room for them,
  // unless the file changed after its values were counted.
  uint8_t padded[kStride + kMasked] = {};
  std::memcpy(padded, packed.data(), packed.size());
  const GroupEnd reached = decode(padded, padded + sizeof padded, out, end);
  const auto bytes = static_cast<size_t>(reached.at - padded);
  if (bytes > packed.size()) return {packed.data(), out};
  return {packed.data() + bytes, reached.out};
}

}  // namespace recmap
