#include "varint_groups.h"

#include <cstring>

#include "varint_groups_path.h"

namespace recmap {
namespace {

// What is shorter than this is as well taken one by one.
constexpr size_t kWorthwhile = 16;

TakeGroups path(size_t size) {
#if defined(__x86_64__)
  // Asked here because the CPU's file may use, anywhere, the instructions asked for.
  static const bool runs = __builtin_cpu_supports("ssse3");
  if (!runs) return nullptr;
  return size == 4 ? take_groups4_x86 : take_groups8_x86;
#elif defined(__aarch64__)
  return size == 4 ? take_groups4_arm64 : take_groups8_arm64;
#else
  return nullptr;
#endif
}

}  // namespace

Taken take_groups(Bytes packed, uint8_t* out, const uint8_t* end, size_t size) {
  const TakeGroups take = path(size);
  const uint8_t* const stop = packed.data() + packed.size();
  if (take == nullptr) return {packed.data(), out};
  if (packed.size() >= kMasked) return take(packed.data(), stop, out, end);
  if (packed.size() < kWorthwhile) return {packed.data(), out};
  // The end, with zeros behind it. They are values too, but there is no room for
  // them, unless the file changed after its values were counted.
  uint8_t padded[kStride + kMasked] = {};
  std::memcpy(padded, packed.data(), packed.size());
  const Taken taken = take(padded, padded + sizeof padded, out, end);
  const auto bytes = static_cast<size_t>(taken.at - padded);
  if (bytes > packed.size()) return {packed.data(), out};
  return {packed.data() + bytes, taken.out};
}

}  // namespace recmap
