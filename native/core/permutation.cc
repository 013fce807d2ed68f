#include "permutation.h"

#include <algorithm>
#include <array>
#include <bit>
#include <cstddef>

#include "parallel.h"

namespace recmap {
namespace {

// lowbias32 by Chris Wellons. Halves have 32 bits at most, and compilers vectorise this hash.
inline uint32_t mix(uint32_t x) {
  x = (x ^ (x >> 16)) * 0x7feb352d;
  x = (x ^ (x >> 15)) * 0x846ca68b;
  return x ^ (x >> 16);
}

// Compiled for newer CPUs too, which multiply eight numbers at once; the loader chooses. It does so
// before ThreadSanitizer is ready.
#if defined(__x86_64__) && defined(__gnu_linux__) && !defined(__clang__) && \
    !defined(__SANITIZE_THREAD__)
#define RECMAP_WIDE_VECTORS __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define RECMAP_WIDE_VECTORS
#endif

// One round of the network. Its own inverse: one half decides what is XORed into the other.
RECMAP_WIDE_VECTORS
void mix_into(uint32_t* to, const uint32_t* from, uint32_t key, uint32_t mask, size_t count) {
  for (size_t i = 0; i < count; ++i) to[i] ^= mix(from[i] ^ key) & mask;
}

// Numbers go through the rounds side by side, because one alone would wait for every product.
constexpr size_t kNumbersAtOnce = 512;
// So many are worth handing to a thread.
constexpr size_t kBlockNumbers = 16 * kNumbersAtOnce;

class Network {
 public:
  Network(uint64_t n, std::span<const uint32_t> keys, Direction direction)
      : n_(n), keys_(keys), direction_(direction) {
    const int bits = std::max(2, static_cast<int>(std::bit_width(n - 1)));
    low_bits_ = (bits + 1) / 2;
    low_mask_ = static_cast<uint32_t>((uint64_t{1} << low_bits_) - 1);
    high_mask_ = static_cast<uint32_t>((uint64_t{1} << (bits - low_bits_)) - 1);
  }

  // At most kNumbersAtOnce numbers.
  void apply(std::span<int64_t> numbers) {
    size_t count = numbers.size();
    for (size_t i = 0; i < count; ++i) {
      place_[i] = i;
      split(i, static_cast<uint64_t>(numbers[i]));
    }
    while (count != 0) {
      const size_t rounds = keys_.size();
      for (size_t i = 0; i < rounds; ++i) {
        round(direction_ == Direction::kForth ? i : rounds - 1 - i, count);
      }
      size_t left = 0;
      for (size_t i = 0; i < count; ++i) {
        const uint64_t x = (uint64_t{high_[i]} << low_bits_) | low_[i];
        numbers[place_[i]] = static_cast<int64_t>(x);
        place_[left] = place_[i];
        split(left, x);
        left += x >= n_;
      }
      count = left;
    }
  }

 private:
  void split(size_t i, uint64_t x) {
    high_[i] = static_cast<uint32_t>(x >> low_bits_);
    low_[i] = static_cast<uint32_t>(x) & low_mask_;
  }

  void round(size_t k, size_t count) {
    if (k % 2 == 0) {
      mix_into(high_.data(), low_.data(), keys_[k], high_mask_, count);
    } else {
      mix_into(low_.data(), high_.data(), keys_[k], low_mask_, count);
    }
  }

  uint64_t n_;
  std::span<const uint32_t> keys_;
  Direction direction_;
  int low_bits_;
  uint32_t low_mask_, high_mask_;
  std::array<uint32_t, kNumbersAtOnce> high_, low_;
  std::array<size_t, kNumbersAtOnce> place_;
};

}  // namespace

bool permute(uint64_t n, std::span<const uint32_t> keys, Direction direction,
             std::span<int64_t> numbers, size_t threads) {
  const auto inside = [n](int64_t x) { return static_cast<uint64_t>(x) < n; };
  if (!std::all_of(numbers.begin(), numbers.end(), inside)) return false;
  if (n == 0) return true;
  each_block(numbers.size(), kBlockNumbers, threads, [&](size_t begin, size_t end) {
    Network network(n, keys, direction);
    for (size_t at = begin; at < end; at += kNumbersAtOnce) {
      network.apply(numbers.subspan(at, std::min(kNumbersAtOnce, end - at)));
    }
  });
  return true;
}

}  // namespace recmap
