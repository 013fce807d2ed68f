#include "draws.h"

#include <algorithm>
#include <array>

#include "parallel.h"

namespace recmap {
namespace {

constexpr uint64_t kStep = 0x9E3779B97F4A7C15;
// A number of 53 bits becomes a fraction of 1, and a fraction one of 32 bits.
constexpr double kFraction = 0x1p-53, kChance = 0x1p32;
// Slots are looked up side by side, because each is a miss in the cache.
constexpr size_t kDrawsAtOnce = 256;
// So many are worth handing to a thread.
constexpr size_t kBlockDraws = 32 * kDrawsAtOnce;

uint64_t hashed(uint64_t number, uint64_t key) {
  uint64_t mixed = number * kStep + key + kStep;
  mixed = (mixed ^ (mixed >> 30)) * 0xBF58476D1CE4E5B9;
  mixed = (mixed ^ (mixed >> 27)) * 0x94D049BB133111EB;
  return mixed ^ (mixed >> 31);
}

void draw(std::span<const uint64_t> slots, uint64_t key, std::span<int64_t> positions) {
  // This file is compiled without fused operations, so that every machine rounds alike.
  const double scale = static_cast<double>(slots.size()) * kFraction;
  std::array<uint64_t, kDrawsAtOnce> chances;
  for (size_t i = 0; i < positions.size(); ++i) {
    const auto drawn = static_cast<int64_t>(hashed(static_cast<uint64_t>(positions[i]), key) >> 11);
    const double place = static_cast<double>(drawn) * scale;
    const auto slot = static_cast<int64_t>(place);
    chances[i] = static_cast<uint64_t>((place - static_cast<double>(slot)) * kChance);
    __builtin_prefetch(&slots[static_cast<size_t>(slot)]);
    positions[i] = slot;
  }
  for (size_t i = 0; i < positions.size(); ++i) {
    const uint64_t found = slots[static_cast<size_t>(positions[i])];
    const auto other = static_cast<int64_t>(found & 0xFFFFFFFF);
    positions[i] = chances[i] >= found >> 32 ? other : positions[i];
  }
}

}  // namespace

bool draw_by_slots(std::span<const uint64_t> slots, uint64_t key, std::span<int64_t> positions,
                   size_t threads) {
  if (slots.empty()) return false;
  each_block(positions.size(), kBlockDraws, threads, [&](size_t begin, size_t end) {
    for (size_t at = begin; at < end; at += kDrawsAtOnce) {
      draw(slots, key, positions.subspan(at, std::min(kDrawsAtOnce, end - at)));
    }
  });
  return true;
}

}  // namespace recmap
