// The moments of channels, compared with two plain passes.
#include "moments.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <vector>

#include "check.h"

namespace recmap {
namespace {

template <typename T>
struct Found {
  Found(const std::vector<T>& values, size_t channels, size_t inner,
        const std::vector<uint32_t>& places = {}, size_t step = 1)
      : counts(4 * channels),
        sums(2 * channels),
        limits(2 * channels),
        drawn(places.size() * channels) {
    const std::span<int64_t> c(counts);
    const std::span<double> s(sums);
    const std::span<T> l(limits);
    const size_t n = channels;
    const Moments<T> moments{c.subspan(0, n),     c.subspan(n, n), c.subspan(2 * n, n),
                             c.subspan(3 * n, n), s.subspan(0, n), s.subspan(n, n),
                             l.subspan(0, n),     l.subspan(n, n)};
    find_moments<T>(values, inner, moments, {places, step, drawn});
  }

  std::vector<int64_t> counts;
  std::vector<double> sums;
  std::vector<T> limits, drawn;
};

bool near(double a, double b) { return std::abs(a - b) <= 1e-9 * (std::abs(a) + 1); }

TEST(ChannelsOfEveryLayoutHaveTheirOwnMoments) {
  for (const size_t channels : {1u, 2u, 3u, 7u, 100u}) {
    for (const size_t inner : {1u, 2u, 1023u, 1024u, 5000u}) {
      std::vector<float> values(channels * inner * 3);
      for (size_t i = 0; i < values.size(); ++i) {
        values[i] = static_cast<float>(i * 7919 % 1000 + 1000 * (i / inner % channels));
      }
      const Found<float> found(values, channels, inner);
      for (size_t c = 0; c < channels; ++c) {
        double sum = 0, squares = 0, count = 0;
        for (const bool second : {false, true}) {
          for (size_t i = 0; i < values.size(); ++i) {
            if (i / inner % channels != c) continue;
            const double apart = values[i] - sum / count;
            second ? squares += apart * apart : (sum += values[i], ++count);
          }
        }
        CHECK_EQ(found.counts[c], static_cast<int64_t>(count));
        CHECK(near(found.sums[c], sum / count));
        CHECK(near(found.sums[channels + c], squares));
      }
    }
  }
}

TEST(ValuesOfAllChannelsAreCopiedFromThePlacesThatWereDrawn) {
  for (const size_t channels : {1u, 2u, 7u, 100u}) {
    for (const size_t inner : {1u, 3u, 1023u, 1024u, 5000u}) {
      const size_t groups = inner < 10 ? 3000 : 3;
      std::vector<int32_t> values(groups * channels * inner);
      for (size_t i = 0; i < values.size(); ++i) values[i] = static_cast<int32_t>(i);
      for (const size_t step : {1u, 8u, 1000u}) {
        std::vector<uint32_t> places((groups * inner + step - 1) / step);
        for (size_t i = 0; i < places.size(); ++i) {
          places[i] =
              static_cast<uint32_t>(std::min(i * 7919 % step, groups * inner - i * step - 1));
        }
        const Found<int32_t> found(values, channels, inner, places, step);
        for (size_t i = 0; i < found.drawn.size(); ++i) {
          const size_t place = i / channels * step + places[i / channels];
          const size_t run = place / inner * channels + i % channels;
          CHECK_EQ(found.drawn[i], values[run * inner + place % inner]);
        }
      }
    }
  }
}

TEST(WhatIsNotFiniteIsCountedAndLeftOut) {
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const Found<double> found({1, std::nan(""), 3, kInf, -kInf, -kInf}, 1, 6);
  CHECK((found.counts == std::vector<int64_t>{2, 1, 1, 2}));
  CHECK((found.sums == std::vector<double>{2, 2}));
  CHECK((found.limits == std::vector<double>{1, 3}));
}

TEST(NothingHasNoMoments) {
  const Found<int64_t> found({}, 2, 1);
  CHECK((found.counts == std::vector<int64_t>(8)));
  CHECK((found.limits == std::vector<int64_t>(4)));
}

TEST(BytesAreCountedInEachChannel) {
  for (const size_t inner : {1u, 1024u}) {
    std::vector<uint8_t> values(2 * inner * 3);
    for (size_t i = 0; i < values.size(); ++i) values[i] = i / inner % 2 ? 255 : 1;
    std::vector<int64_t> counts(512);
    count_bytes(values, inner, counts);
    CHECK_EQ(counts[1], static_cast<int64_t>(3 * inner));
    CHECK_EQ(counts[256 + 255], static_cast<int64_t>(3 * inner));
    CHECK_EQ(std::count(counts.begin(), counts.end(), 0), 510);
  }
}

}  // namespace
}  // namespace recmap
