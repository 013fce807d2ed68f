#include "moments.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <type_traits>
#include <vector>

namespace recmap {
namespace {

// Values in a chunk, which fit into the first cache for the second look that some chunks need.
constexpr size_t kChunk = 8192;
// Fewer sums side by side would wait for each other.
constexpr size_t kLanes = 64;
// Shorter runs of a channel are added side by side with the other channels.
constexpr size_t kLongRun = 1024;
// Rows of lanes that are added at once.
constexpr size_t kRows = 4;
// A chunk has so many values of each sum, where there are that many channels.
constexpr size_t kLeastRows = 16;

template <typename T>
bool finite(T value) {
  if constexpr (std::is_floating_point_v<T>) return std::isfinite(value);
  return true;
}

// Adds chunks. Sums lie in lanes, several of which may belong to a channel: lane `i` to channel
// first + i / inner % channels.
template <typename T>
class Chunks {
 public:
  Chunks(size_t inner, size_t channels, const Moments<T>& moments)
      : channels_(channels),
        width_(inner * channels * ((kLanes - 1) / (inner * channels) + 1)),
        moments_(moments),
        shift_(width_),
        sum_(width_),
        square_(width_),
        low_(width_),
        high_(width_),
        count_(width_),
        channel_(width_),
        totals_(channels) {
    // Two divisions for each lane of each chunk would take as long as the sums.
    for (size_t i = 0; i < width_; ++i) channel_[i] = i / inner % channels;
  }

  size_t chunk() const { return std::max(kChunk / width_, kLeastRows) * width_; }

  void add(std::span<const T> values, size_t first) {
    first_ = first;
    for (size_t i = 0; i < width_; ++i) shift_[i] = moments_.mean[channel(i)];
    bool plain = look<false>(values);
    if (!plain) look<true>(values);
    if (cancels()) {
      for (size_t i = 0; i < width_; ++i) shift_[i] = totals_[channel_[i]].mean();
      plain ? look<false>(values) : look<true>(values);
    }
    if (!plain) count_others(values);
    merge();
  }

 private:
  // Sums of distances from a number near the mean.
  struct Total {
    double count, shift, sum, square;
    T low, high;

    double mean() const { return count == 0 ? 0 : shift + sum / count; }
    double squares() const { return count == 0 ? 0 : square - sum * (sum / count); }
  };

  size_t channel(size_t lane) const { return first_ + channel_[lane]; }

  // Returns false if there are values that are not finite, which only `kMasked` leaves out.
  template <bool kMasked>
  bool look(std::span<const T> values) {
    std::ranges::fill(sum_, 0.0);
    std::ranges::fill(square_, 0.0);
    std::ranges::fill(count_, 0.0);
    std::ranges::fill(low_, std::numeric_limits<T>::max());
    std::ranges::fill(high_, std::numeric_limits<T>::lowest());
    size_t at = 0;
    if constexpr (!kMasked) {
      for (; at + kRows * width_ <= values.size(); at += kRows * width_) add_rows(&values[at]);
    }
    for (; at < values.size(); at += width_) {
      add_row<kMasked>(&values[at], std::min(width_, values.size() - at));
    }
    if constexpr (!kMasked) {
      for (size_t i = 0; i < width_; ++i) {
        count_[i] = static_cast<double>((values.size() + width_ - 1 - i) / width_);
      }
    }
    return total();
  }

  template <bool kMasked>
  void add_row(const T* values, size_t n) {
    // Pointers to members would have to be loaded again after every store.
    double *const sum = sum_.data(), *const square = square_.data(), *const count = count_.data();
    const double* const shift = shift_.data();
    T *const low = low_.data(), *const high = high_.data();
    for (size_t i = 0; i < n; ++i) {
      const T value = values[i];
      if constexpr (kMasked) {
        if (!finite(value)) continue;
      }
      const double apart = static_cast<double>(value) - shift[i];
      sum[i] += apart;
      square[i] += apart * apart;
      if constexpr (kMasked) count[i] += 1;
      low[i] = value < low[i] ? value : low[i];
      high[i] = value > high[i] ? value : high[i];
    }
  }

  // Adds several rows at once: the sums are loaded and stored less often.
  void add_rows(const T* __restrict row) {
    static_assert(kRows == 4);
    double* const __restrict sum = sum_.data();
    double* const __restrict square = square_.data();
    const double* const __restrict shift = shift_.data();
    T* const __restrict low = low_.data();
    T* const __restrict high = high_.data();
    const size_t width = width_;
    for (size_t i = 0; i < width; ++i) {
      const T a = row[i], b = row[i + width], c = row[i + 2 * width], d = row[i + 3 * width];
      const double at = shift[i];
      const double w = static_cast<double>(a) - at, x = static_cast<double>(b) - at;
      const double y = static_cast<double>(c) - at, z = static_cast<double>(d) - at;
      sum[i] += (w + x) + (y + z);
      square[i] += (w * w + x * x) + (y * y + z * z);
      const T ab = a < b ? a : b, cd = c < d ? c : d, least = ab < cd ? ab : cd;
      const T ba = a < b ? b : a, dc = c < d ? d : c, most = ba < dc ? dc : ba;
      low[i] = least < low[i] ? least : low[i];
      high[i] = most > high[i] ? most : high[i];
    }
  }

  bool total() {
    constexpr T kLow = std::numeric_limits<T>::max(), kHigh = std::numeric_limits<T>::lowest();
    std::ranges::fill(totals_, Total{0, 0, 0, 0, kLow, kHigh});
    bool all_finite = true;
    for (size_t i = 0; i < width_; ++i) {
      Total& total = totals_[channel_[i]];
      total.count += count_[i];
      total.shift = shift_[i];
      total.sum += sum_[i];
      total.square += square_[i];
      total.low = std::min(total.low, low_[i]);
      total.high = std::max(total.high, high_[i]);
      all_finite = all_finite && std::isfinite(square_[i]);
    }
    return all_finite;
  }

  // Whether the mean of a channel is so far from what was subtracted that digits are lost.
  bool cancels() const {
    return std::ranges::any_of(totals_,
                               [](const Total& each) { return each.squares() < each.square / 16; });
  }

  void count_others(std::span<const T> values) {
    for (size_t at = 0; at < values.size(); ++at) {
      const T value = values[at];
      if (finite(value)) continue;
      const size_t c = channel(at % width_);
      ++(value != value ? moments_.nan : value > 0 ? moments_.infinite : moments_.negative)[c];
    }
  }

  // The formulas of Chan, Golub and LeVeque.
  void merge() {
    for (size_t i = 0; i < channels_; ++i) {
      const Total& total = totals_[i];
      if (total.count == 0) continue;
      const size_t c = first_ + i;
      const auto before = static_cast<double>(moments_.finite[c]);
      const double all = before + total.count, apart = total.mean() - moments_.mean[c];
      moments_.mean[c] =
          before == 0 ? total.mean() : moments_.mean[c] + apart * (total.count / all);
      moments_.squares[c] += std::max(total.squares(), 0.0);
      if (before != 0) moments_.squares[c] += apart * apart * (before * (total.count / all));
      moments_.low[c] = before == 0 ? total.low : std::min(moments_.low[c], total.low);
      moments_.high[c] = before == 0 ? total.high : std::max(moments_.high[c], total.high);
      moments_.finite[c] += static_cast<int64_t>(total.count);
    }
  }

  const size_t channels_, width_;
  const Moments<T>& moments_;
  size_t first_ = 0;
  std::vector<double> shift_, sum_, square_;
  std::vector<T> low_, high_;
  std::vector<double> count_;
  std::vector<size_t> channel_;
  std::vector<Total> totals_;
};

// Copies what was drawn, group by group, while it is in the cache.
template <typename T>
class Copier {
 public:
  Copier(std::span<const T> values, size_t channels, size_t inner, const Drawn<T>& drawn)
      : values_(values), channels_(channels), inner_(inner), drawn_(drawn) {}

  // Copies what lies before this value.
  void copy_until(size_t end) {
    for (; next_ < drawn_.places.size(); ++next_) {
      const size_t place = next_ * drawn_.step + drawn_.places[next_];
      const size_t group = inner_ == 1 ? place : place / inner_;
      const size_t begin = group * channels_ * inner_;
      if (begin >= end) return;
      const T* const from = &values_[begin + place - group * inner_];
      T* const to = &drawn_.values[next_ * channels_];
      for (size_t i = 0; i < channels_; ++i) to[i] = from[i * inner_];
    }
  }

 private:
  const std::span<const T> values_;
  const size_t channels_, inner_;
  const Drawn<T> drawn_;
  size_t next_ = 0;
};

}  // namespace

template <typename T>
void find_moments(std::span<const T> values, size_t inner, const Moments<T>& moments,
                  const Drawn<T>& drawn) {
  const size_t channels = moments.mean.size();
  for (const auto& counts : {moments.finite, moments.nan, moments.infinite, moments.negative}) {
    std::ranges::fill(counts, 0);
  }
  for (const auto& sums : {moments.mean, moments.squares}) std::ranges::fill(sums, 0.0);
  for (const auto& limits : {moments.low, moments.high}) std::ranges::fill(limits, T{0});
  if (inner < kLongRun && channels > 1) {
    Chunks<T> chunks(inner, channels, moments);
    Copier<T> copier(values, channels, inner, drawn);
    const size_t size = chunks.chunk();
    for (size_t at = 0; at < values.size(); at += size) {
      chunks.add(values.subspan(at, std::min(size, values.size() - at)), 0);
      copier.copy_until(at + size);
    }
    return;
  }
  Chunks<T> chunks(1, 1, moments);
  Copier<T> copier(values, channels, channels == 1 ? 1 : inner, drawn);
  const size_t run = channels == 1 ? values.size() : inner;
  for (size_t begin = 0; begin < values.size(); begin += run) {
    for (size_t at = 0; at < run; at += kChunk) {
      chunks.add(values.subspan(begin + at, std::min(kChunk, run - at)), begin / run % channels);
      if (channels == 1) copier.copy_until(at + kChunk);
    }
  }
  copier.copy_until(values.size());
}

template void find_moments(std::span<const int16_t>, size_t, const Moments<int16_t>&,
                           const Drawn<int16_t>&);
template void find_moments(std::span<const uint16_t>, size_t, const Moments<uint16_t>&,
                           const Drawn<uint16_t>&);
template void find_moments(std::span<const int32_t>, size_t, const Moments<int32_t>&,
                           const Drawn<int32_t>&);
template void find_moments(std::span<const uint32_t>, size_t, const Moments<uint32_t>&,
                           const Drawn<uint32_t>&);
template void find_moments(std::span<const int64_t>, size_t, const Moments<int64_t>&,
                           const Drawn<int64_t>&);
template void find_moments(std::span<const uint64_t>, size_t, const Moments<uint64_t>&,
                           const Drawn<uint64_t>&);
template void find_moments(std::span<const float>, size_t, const Moments<float>&,
                           const Drawn<float>&);
template void find_moments(std::span<const double>, size_t, const Moments<double>&,
                           const Drawn<double>&);

void count_bytes(std::span<const uint8_t> values, size_t inner, std::span<int64_t> counts) {
  const size_t channels = counts.size() / 256;
  if (channels > 1 && inner < kLongRun) {
    for (size_t at = 0; at < values.size();) {
      for (size_t c = 0; c < channels; ++c) {
        for (size_t i = 0; i < inner; ++i) ++counts[c * 256 + values[at++]];
      }
    }
    return;
  }
  const size_t run = channels == 1 ? values.size() : inner;
  for (size_t begin = 0; begin < values.size(); begin += run) {
    // Equal bytes follow each other, and a count that was just written is slow to read.
    std::array<std::array<int64_t, 256>, 4> side_by_side{};
    for (size_t at = 0; at < run; ++at) ++side_by_side[at % 4][values[begin + at]];
    int64_t* const to = counts.data() + begin / run % channels * 256;
    for (const auto& each : side_by_side) {
      for (size_t value = 0; value < 256; ++value) to[value] += each[value];
    }
  }
}

}  // namespace recmap
