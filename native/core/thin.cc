#include "thin.h"

#include <bit>
#include <cstdint>
#include <limits>
#include <type_traits>

#include "x86_features.h"

namespace recmap {
namespace {

// Everything is inlined into functions for different CPUs; those of the standard library are not.
#define RECMAP_INLINE [[gnu::always_inline]] inline

// A register of AVX2. Compilers turn loops over numbers into such code only now and then.
template <typename T>
struct Register {
  using type [[gnu::vector_size(32)]] = T;
};

// Numbers with the order of others. CPUs compare integers of 32 bits faster than floats.
template <typename T>
using Key = std::conditional_t<std::is_same_v<T, float>, int32_t, T>;

template <typename T>
RECMAP_INLINE Key<T> key_of(T value) {
  if constexpr (std::is_same_v<T, float>) {
    constexpr int32_t kMost = 0x7FFFFFFF, kInfinity = 0x7F800000;
    auto bits = std::bit_cast<int32_t>(value);
    bits = (bits & kMost) >= kInfinity ? kInfinity : bits;
    return bits ^ ((bits >> 31) & kMost);
  } else if constexpr (std::is_same_v<T, double>) {
    return value - value == 0 ? value : std::numeric_limits<T>::infinity();
  } else {
    return value;
  }
}

template <typename T>
RECMAP_INLINE T value_of(Key<T> key) {
  if constexpr (std::is_same_v<T, float>) {
    return std::bit_cast<float>(key ^ ((key >> 31) & 0x7FFFFFFF));
  } else {
    return key;
  }
}

// Values of a group that are sorted together: two cache lines of each row.
template <typename T>
struct Tile {
  using Keys = typename Register<Key<T>>::type;
  static constexpr size_t kWide = 4, kLanes = kWide * sizeof(Keys) / sizeof(T);

  union {
    Keys rows[kThinGroup][kWide];
    Key<T> keys[kThinGroup][kLanes];
  };

  RECMAP_INLINE static void exchange(Keys& low, Keys& high) {
    const Keys a = low, b = high;
    low = a < b ? a : b;
    high = a < b ? b : a;
  }

  // Exchanges what is `apart` rows from each other, and then what is half as far from each other.
  RECMAP_INLINE void exchange_twice(size_t row, size_t apart, bool up) {
    for (size_t i = 0; i < kWide; ++i) {
      Keys a = rows[row][i], b = rows[row + apart / 2][i];
      Keys c = rows[row + apart][i], d = rows[row + apart + apart / 2][i];
      up ? exchange(a, c) : exchange(c, a);
      up ? exchange(b, d) : exchange(d, b);
      up ? exchange(a, b) : exchange(b, a);
      up ? exchange(c, d) : exchange(d, c);
      rows[row][i] = a, rows[row + apart / 2][i] = b;
      rows[row + apart][i] = c, rows[row + apart + apart / 2][i] = d;
    }
  }

  // The bitonic sorting network of Batcher.
  RECMAP_INLINE void sort() {
    for (size_t run = 2; run <= kThinGroup; run *= 2) {
      size_t apart = run / 2;
      for (; apart > 1; apart /= 4) {
        for (size_t block = 0; block < kThinGroup; block += 2 * apart) {
          if ((block & run) == 0) {
            for (size_t i = 0; i < apart / 2; ++i) exchange_twice(block + i, apart, true);
          } else {
            for (size_t i = 0; i < apart / 2; ++i) exchange_twice(block + i, apart, false);
          }
        }
      }
      if (apart == 0) continue;
      for (size_t row = 0; row < kThinGroup; row += 2) {
        const size_t low = (row & run) == 0 ? row : row + 1;
        for (size_t i = 0; i < kWide; ++i) exchange(rows[low][i], rows[low ^ 1][i]);
      }
    }
  }
};

template <typename T>
RECMAP_INLINE void thin(const T* rows, size_t lanes, const uint8_t* first, size_t step, T* out) {
  constexpr size_t kLanes = Tile<T>::kLanes;
  Tile<T> tile;
  for (size_t lane = 0; lane < lanes; lane += kLanes) {
    const size_t left = lanes - lane, width = left < kLanes ? left : kLanes;
    for (size_t i = 0; i < kThinGroup; ++i) {
      const T* const from = rows + i * lanes + lane;
      if (width == kLanes) {
        for (size_t j = 0; j < kLanes; ++j) tile.keys[i][j] = key_of(from[j]);
      } else {
        for (size_t j = 0; j < kLanes; ++j) tile.keys[i][j] = key_of(j < width ? from[j] : T{0});
      }
    }
    tile.sort();
    T* to = out + lane;
    for (size_t i = 0; i < kThinGroup; i += step, to += lanes) {
      for (size_t j = 0; j < width; ++j) to[j] = value_of<T>(tile.keys[i + first[lane + j]][j]);
    }
  }
}

#if defined(__x86_64__)
template <typename T>
__attribute__((target("avx2"))) void thin_avx2(const T* rows, size_t lanes, const uint8_t* first,
                                               size_t step, T* out) {
  thin(rows, lanes, first, step, out);
}
#endif

}  // namespace

template <typename T>
void thin_lanes(std::span<const T> rows, std::span<const uint8_t> first, size_t step,
                std::span<T> out) {
#if defined(__x86_64__)
  static const bool avx2 = x86_has_avx2();
  if (avx2) return thin_avx2(rows.data(), first.size(), first.data(), step, out.data());
#endif
  thin(rows.data(), first.size(), first.data(), step, out.data());
}

template void thin_lanes(std::span<const int32_t>, std::span<const uint8_t>, size_t,
                         std::span<int32_t>);
template void thin_lanes(std::span<const uint32_t>, std::span<const uint8_t>, size_t,
                         std::span<uint32_t>);
template void thin_lanes(std::span<const int64_t>, std::span<const uint8_t>, size_t,
                         std::span<int64_t>);
template void thin_lanes(std::span<const uint64_t>, std::span<const uint8_t>, size_t,
                         std::span<uint64_t>);
template void thin_lanes(std::span<const float>, std::span<const uint8_t>, size_t,
                         std::span<float>);
template void thin_lanes(std::span<const double>, std::span<const uint8_t>, size_t,
                         std::span<double>);

}  // namespace recmap
